//! Redirections: the replies `MOVED` and `ASK` of a node that does not serve a slot.

use std::sync::Arc;

use super::Cluster;
use super::slot_map::Shard;
use super::slots_reply::known_host;
use crate::ground::events;
use crate::stores::redis::transport::{Announced, CallError, name_of};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirection {
    /// True for `ASK`. An `ASK` is valid for one request only, because the slot is migrating.
    pub(crate) is_ask: bool,
    pub(super) slot: u16,
    /// Empty if the target has the host of the node that sent the redirection.
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

impl Cluster {
    pub(crate) fn follow(&self, redirection: &Redirection, from: &Shard) -> Arc<Shard> {
        let host = match &redirection.host {
            host if host.is_empty() => from.address.host().unwrap_or("localhost"),
            host => host,
        };
        let mut map = self.map.lock();
        let is_new = !map.shards.contains_key(&*name_of(host, redirection.port));
        let announced = Announced {
            by: Arc::clone(&from.address.node),
            server_id: None,
        };
        let target = self.shard(&mut map, (host, redirection.port), announced);
        if !redirection.is_ask {
            map.moved.insert(redirection.slot, Arc::clone(&target));
            drop(map);
            if is_new {
                // Slots usually migrate to known masters. So an unknown target probably became a master by a failover.
                self.on_takeover.call();
            }
            // Other slots of `from` may have moved as well, so the map is refreshed before the next request to `from`.
            from.suspect();
            events::slot_moved(&redirection.slot, &target.address.node);
            self.resubscribe();
        }
        target
    }
}
