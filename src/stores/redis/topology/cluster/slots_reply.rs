//! The reply to `CLUSTER SLOTS`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::stores::redis::replies::{integer_at, item_at, text_of};
use crate::stores::redis::transport::{
    Address, Announced, CallError, Connection, ServerId, encode,
};

const NO_CLUSTER: &str = "it is not a cluster node; open it with Client::open (--url), or a master with its \
    replicas with Builder::master_replicas (--replicas)";

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SlotsReply {
    /// The first slot, the last slot and the master of each range.
    pub(super) ranges: Vec<(u16, u16, (String, u16))>,
    pub(super) replicas: Vec<(String, u16)>,
    pub(super) server_ids: HashMap<(String, u16), ServerId>,
    pub(super) by: Arc<str>,
}

impl SlotsReply {
    pub(super) fn announced(&self, at: &(String, u16)) -> Announced {
        Announced {
            by: Arc::clone(&self.by),
            server_id: self.server_ids.get(at).cloned(),
        }
    }
}

/// The returned bool says whether the node supports sharded pub/sub.
pub(super) fn ask_one(
    seed: &Address,
    is_sharded: Option<bool>,
    deadline: Instant,
) -> Result<(SlotsReply, bool), CallError> {
    let mut connection = Connection::connect(seed, deadline)?;
    let mut request = encode(&["CLUSTER", "SLOTS"]);
    if is_sharded.is_none() {
        request.extend(encode(&["PUBSUB", "SHARDNUMSUB"]));
    }
    connection.send(&request, deadline)?;
    let slots = match connection.receive(deadline) {
        Err(CallError::Server(text)) if text.contains("cluster support disabled") => {
            return Err(CallError::wrong_kind(NO_CLUSTER));
        }
        slots => slots.map_err(CallError::of_query)?,
    };
    let is_sharded = match is_sharded {
        Some(is_sharded) => is_sharded,
        None => match connection.receive(deadline).map_err(CallError::of_query) {
            Ok(_) => true,
            Err(CallError::Server(_)) => false,
            Err(fault) => return Err(fault),
        },
    };
    let mut told = slots_in(&slots, seed.host().unwrap_or("localhost"));
    told.by = Arc::clone(&seed.node);
    if seed.mapper.is_none() {
        told.server_ids.clear();
    }
    if told.ranges.is_empty() {
        return Err(CallError::NotSent("it knows no slots".into()));
    }
    Ok((told, is_sharded))
}

/// If a node does not know its own host, or hides it, the node reports `?` or `""`.
pub(super) fn known_host(told: &str) -> &str {
    if told == "?" { "" } else { told }
}

/// `asked` is the host of the node that sent the reply.
pub(super) fn slots_in(slots: &Value, asked: &str) -> SlotsReply {
    let mut told = SlotsReply::default();
    let mut server_ids = HashMap::new();
    let number_at = |list: &Value, at| u16::try_from(integer_at(list, at)?).ok();
    let mut place = |node: &Value| {
        let host = text_of(item_at(node, 0)?);
        let host = match known_host(&host) {
            "" => asked.to_owned(),
            host => host.to_owned(),
        };
        let at = (host, number_at(node, 1)?);
        let id = item_at(node, 2).map(|id| ServerId::NodeId(text_of(id).into()));
        server_ids.extend(id.map(|id| (at.clone(), id)));
        Some(at)
    };
    let Value::Array(ranges) = slots else {
        return told;
    };
    for range in ranges {
        let Value::Array(parts) = range else { continue };
        let mut nodes = parts.iter().skip(2).map(&mut place);
        if let (Some(first), Some(last), Some(Some(master))) =
            (number_at(range, 0), number_at(range, 1), nodes.next())
        {
            told.ranges.push((first, last, master));
        }
        told.replicas.extend(nodes.flatten());
    }
    told.server_ids = server_ids;
    told
}
