//! The map of the slots as a node tells it, and the redirections that correct it.

use std::time::Instant;

use redis::Value;

use crate::stores::redis::replies::text_of;
use crate::stores::redis::transport::{Address, CallError, Connection};

/// A map as a node tells it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// The first slot, the last one and the master of it.
    pub(super) ranges: Vec<(u16, u16, (String, u16))>,
    pub(super) replicas: Vec<(String, u16)>,
}

/// Asks a node for the map and, if that is not known, whether it knows sharded messages.
pub(super) fn ask_one(
    seed: &Address,
    is_sharded: Option<bool>,
    deadline: Instant,
) -> Result<(SlotMap, bool), CallError> {
    let mut connection = Connection::connect(seed, deadline)?;
    let mut packed = Vec::new();
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS").write_packed_command(&mut packed);
    if is_sharded.is_none() {
        let mut probe = redis::cmd("PUBSUB");
        probe.arg("SHARDNUMSUB").write_packed_command(&mut packed);
    }
    connection.send(&packed, deadline)?;
    let slots = connection
        .receive(deadline)
        .map_err(CallError::of_a_search)?;
    let is_sharded = match is_sharded {
        Some(is_sharded) => is_sharded,
        None => match connection.receive(deadline).map_err(CallError::of_a_search) {
            Ok(_) => true,
            Err(CallError::Server(_)) => false,
            Err(fault) => return Err(fault),
        },
    };
    let told = slot_map_in(&slots, seed.host().unwrap_or("localhost"));
    if told.ranges.is_empty() {
        return Err(CallError::NotSent("it knows of no slots".into()));
    }
    Ok((told, is_sharded))
}

/// The host that a node tells, empty for its own: it does not know it, or is not to tell it.
fn known_host(told: &str) -> &str {
    if told == "?" { "" } else { told }
}

/// Reads the answer to CLUSTER SLOTS; a node that does not know its own host is at `asked`.
pub(super) fn slot_map_in(slots: &Value, asked: &str) -> SlotMap {
    let mut told = SlotMap {
        ranges: Vec::new(),
        replicas: Vec::new(),
    };
    let place = |node: &Value| match node {
        Value::Array(parts) => match parts.as_slice() {
            [host, Value::Int(port), ..] => {
                let host = text_of(host);
                let host = match known_host(&host) {
                    "" => asked.to_owned(),
                    host => host.to_owned(),
                };
                Some((host, u16::try_from(*port).ok()?))
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
        told.replicas.extend(replicas.iter().filter_map(place));
    }
    told
}

/// Where a server sends a request that it does not serve.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirection {
    /// Only this one request, because the slot is on the move.
    pub(crate) is_ask: bool,
    pub(super) slot: u16,
    /// Empty for the host of the one that says so.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Redirection {
    pub(crate) fn of(fault: &CallError) -> Option<Redirection> {
        let CallError::Server(text) = fault else {
            return None;
        };
        let mut words = text.split(' ');
        let is_ask = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse().ok()?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        Some(Redirection {
            is_ask,
            slot,
            host: known_host(host.trim_matches(['[', ']'])).to_owned(),
            port: port.parse().ok()?,
        })
    }
}
