//! The slots of a cluster as a node tells them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::stores::redis::replies::text_of;
use crate::stores::redis::transport::{Address, Announced, CallError, Connection, Proof};

const NO_CLUSTER: &str = "it is not a cluster node; open it with Client::open (--url), or a master with its \
    replicas with Builder::master_replicas (--replicas)";

/// The answer of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotsReply {
    /// The first slot, the last one and the master of it.
    pub(super) ranges: Vec<(u16, u16, (String, u16))>,
    pub(super) replicas: Vec<(String, u16)>,
    /// How the nodes are recognised.
    pub(super) proofs: HashMap<(String, u16), Proof>,
    /// The node that told this.
    pub(super) by: Arc<str>,
}

impl SlotsReply {
    /// What is known of the node that is announced to be at this host and port.
    pub(super) fn announced(&self, at: &(String, u16)) -> Announced {
        Announced {
            by: Arc::clone(&self.by),
            proof: self.proofs.get(at).cloned(),
        }
    }
}

/// Asks a node for the map and, if that is not known, whether it knows sharded messages.
pub(super) fn ask_one(
    seed: &Address,
    is_sharded: Option<bool>,
    deadline: Instant,
) -> Result<(SlotsReply, bool), CallError> {
    let mut connection = Connection::connect(seed, deadline)?;
    let mut packed = Vec::new();
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS").write_packed_command(&mut packed);
    if is_sharded.is_none() {
        let mut probe = redis::cmd("PUBSUB");
        probe.arg("SHARDNUMSUB").write_packed_command(&mut packed);
    }
    connection.send(&packed, deadline)?;
    let slots = match connection.receive(deadline) {
        Err(CallError::Server(text)) if text.contains("cluster support disabled") => {
            return Err(CallError::misplaced(NO_CLUSTER));
        }
        slots => slots.map_err(CallError::of_a_search)?,
    };
    let is_sharded = match is_sharded {
        Some(is_sharded) => is_sharded,
        None => match connection.receive(deadline).map_err(CallError::of_a_search) {
            Ok(_) => true,
            Err(CallError::Server(_)) => false,
            Err(fault) => return Err(fault),
        },
    };
    let mut told = slots_in(&slots, seed.host().unwrap_or("localhost"));
    told.by = Arc::clone(&seed.node);
    if seed.mapper.is_none() {
        told.proofs.clear();
    }
    if told.ranges.is_empty() {
        return Err(CallError::NotSent("it knows no slots".into()));
    }
    Ok((told, is_sharded))
}

/// The host that a node tells, empty for its own: it does not know it, or is not to tell it.
pub(super) fn known_host(told: &str) -> &str {
    if told == "?" { "" } else { told }
}

/// Reads the answer to CLUSTER SLOTS; a node that does not know its own host is at `asked`.
pub(super) fn slots_in(slots: &Value, asked: &str) -> SlotsReply {
    let mut told = SlotsReply {
        ranges: Vec::new(),
        replicas: Vec::new(),
        proofs: HashMap::new(),
        by: "".into(),
    };
    let mut proofs = HashMap::new();
    let mut place = |node: &Value| match node {
        Value::Array(parts) => match parts.as_slice() {
            [host, Value::Int(port), rest @ ..] => {
                let host = text_of(host);
                let host = match known_host(&host) {
                    "" => asked.to_owned(),
                    host => host.to_owned(),
                };
                let at = (host, u16::try_from(*port).ok()?);
                let proof = rest.first().map(|id| Proof::NodeId(text_of(id).into()));
                proofs.extend(proof.map(|proof| (at.clone(), proof)));
                Some(at)
            }
            _ => None,
        },
        _ => None,
    };
    let Value::Array(ranges) = slots else {
        return told;
    };
    for range in ranges {
        let Value::Array(parts) = range else { continue };
        let [Value::Int(first), Value::Int(last), master, replicas @ ..] = parts.as_slice() else {
            continue;
        };
        if let (Ok(first), Ok(last), Some(master)) =
            (u16::try_from(*first), u16::try_from(*last), place(master))
        {
            told.ranges.push((first, last, master));
        }
        told.replicas.extend(replicas.iter().filter_map(&mut place));
    }
    told.proofs = proofs;
    told
}
