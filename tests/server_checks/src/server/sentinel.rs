//! A sentinel: a server without keys that names masters. It names any server it is given, rightly or wrongly.

use std::collections::BTreeMap;

use redlatch_server::Delivery;

use super::{Config, Server};
use crate::reply::{Reply, array};

/// The master that a sentinel names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    host: String,
    port: u16,
    /// Of the failover that made it master.
    epoch: i64,
}

/// The masters by their names.
pub(super) type Masters = BTreeMap<String, Named>;

/// The commands of a sentinel.
pub(super) const COMMANDS: [&str; 11] = [
    "acl",
    "auth",
    "client",
    "command",
    "info",
    "ping",
    "quit",
    "role",
    "sentinel",
    "subscribe",
    "unsubscribe",
];

impl Server {
    /// A sentinel without a master.
    pub fn sentinel(config: Config, now: i64) -> Server {
        let mut server = Server::new(config, now);
        server.masters = Some(Masters::new());
        server.inner.set_mode("sentinel");
        server
    }

    /// Sets the named master, promoted by the failover of this epoch. Subscribers are notified if the master changes.
    pub fn name_master(&mut self, name: &str, host: &str, port: u16, epoch: i64) -> Vec<Delivery> {
        let host = host.to_owned();
        let named = Named { host, port, epoch };
        let text = format!("{} {port}", named.host);
        let before = self
            .masters
            .get_or_insert_default()
            .insert(name.to_owned(), named);
        let before = before.map(|before| format!("{} {}", before.host, before.port));
        let Some(before) = before.filter(|before| *before != text) else {
            return Vec::new();
        };
        let text = format!("{name} {before} {text}");
        self.hear(b"+switch-master", text.as_bytes())
    }

    /// SENTINEL GET-MASTER-ADDR-BY-NAME and SENTINEL MASTER.
    pub(super) fn tell_master(&self, word: &[u8], name: &[u8]) -> Reply {
        let name = String::from_utf8_lossy(name);
        let named = self
            .masters
            .as_ref()
            .and_then(|masters| masters.get(&*name));
        let port = named
            .map(|named| named.port.to_string())
            .unwrap_or_default();
        match (word.to_ascii_uppercase().as_slice(), named) {
            (b"GET-MASTER-ADDR-BY-NAME", None) => Reply::Nil,
            (b"GET-MASTER-ADDR-BY-NAME", Some(named)) => {
                array![named.host.as_str(), port.as_str()]
            }
            (b"MASTER", None) => Reply::Error("ERR No such master with that name".into()),
            (b"MASTER", Some(named)) => array![
                "name",
                &*name,
                "ip",
                named.host.as_str(),
                "port",
                port.as_str(),
                "flags",
                "master",
                "config-epoch",
                named.epoch.to_string().as_str(),
            ],
            _ => Reply::Error("ERR unknown subcommand".into()),
        }
    }
}
