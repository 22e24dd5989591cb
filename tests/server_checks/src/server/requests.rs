//! The requests of clients: commands of clusters, sentinels and replication here, all others in the inner server.

use std::sync::LazyLock;

use redlatch_server::{Delivery, keys_of};

use super::sentinel::COMMANDS;
use super::{ALONE, READ_ONLY, Server, delivery};
use crate::reply::Reply;
use crate::scripts;

/// The commands that the server inside does not have, and how many arguments each has at least.
const OWN: [(&str, usize); 5] = [
    ("asking", 0),
    ("cluster", 1),
    ("role", 0),
    ("sentinel", 2),
    ("wait", 2),
];

/// The script of guarded writes, and its hash: users' keys have to be declared, because they may be on any server.
static GUARDED: LazyLock<(String, String)> = LazyLock::new(|| {
    let text = scripts::named("guarded").map_or("", |script| script.text);
    (text.to_owned(), scripts::hash(text.as_bytes()))
});

impl Server {
    pub(super) fn run(&mut self, now: i64, connection: u64, request: &[&[u8]]) -> Vec<Delivery> {
        let Some((name, args)) = request.split_first() else {
            return Vec::new();
        };
        let name = &*String::from_utf8_lossy(name).to_ascii_lowercase();
        let is_asking = (self.connections.get_mut(&connection))
            .is_some_and(|from| std::mem::take(&mut from.is_asking));
        let is_sentinel = self.masters.is_some();
        let own = OWN.iter().find(|(own, _)| *own == name);
        let is_here = match is_sentinel {
            true => COMMANDS.contains(&name),
            false => name != "sentinel",
        };
        if !is_here {
            return vec![delivery(connection, &unknown(request))];
        }
        if let Some((_, least)) = own {
            let reply = match self.inner.refusal(connection, name) {
                _ if args.len() < *least => {
                    let text = format!("ERR wrong number of arguments for '{name}' command");
                    Some(Reply::Error(text))
                }
                None => self.run_own(now, connection, name, args),
                refusal => refusal,
            };
            let replies = reply.iter().map(|reply| delivery(connection, reply));
            return replies.collect();
        }
        if let Some(refusal) = self.redirection(now, name, request, is_asking)
            && self.inner.refusal(connection, name).is_none()
        {
            return vec![delivery(connection, &refusal)];
        }
        self.prepare(request);
        let sent = self.inner.command(now, connection, request);
        self.absorb(Some(connection));
        sent
    }

    /// Runs a command that the inner server does not have; `None` if its reply comes later.
    fn run_own(&mut self, now: i64, connection: u64, name: &str, args: &[&[u8]]) -> Option<Reply> {
        Some(match (name, args) {
            ("asking", _) => {
                if let Some(from) = self.connections.get_mut(&connection) {
                    from.is_asking = true;
                }
                Reply::OK
            }
            ("cluster", [word, ..]) => self.tell_cluster(word),
            ("sentinel", [word, name]) => self.tell_master(word, name),
            ("role", _) => self.replication.role(),
            ("wait", args) => return self.wait(now, connection, args),
            _ => Reply::Error("ERR syntax error".to_owned()),
        })
    }

    /// The refusal of a request that belongs to another server of the cluster.
    fn redirection(
        &self,
        now: i64,
        name: &str,
        request: &[&[u8]],
        is_asking: bool,
    ) -> Option<Reply> {
        self.cluster.as_ref()?;
        match (name, &request[1..]) {
            ("eval" | "evalsha" | "eval_ro" | "evalsha_ro", [_, count, rest @ ..]) => {
                let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
                self.elsewhere(now, rest.get(..count)?, is_asking, false)
            }
            ("ssubscribe", channels) => self.elsewhere(now, channels, is_asking, true),
            ("spublish", [channel, ..]) => self.elsewhere(now, &[channel], is_asking, true),
            _ => self.elsewhere(now, &keys_of(request), is_asking, false),
        }
    }

    /// Updates the inner server for the next request.
    fn prepare(&mut self, request: &[&[u8]]) {
        // Other scripts derive the names of some keys from the content of declared ones.
        let script = request.get(1).copied().unwrap_or_default();
        let (text, hash) = &*GUARDED;
        let is_guarded = script == hash.as_bytes() || script == text.as_bytes();
        self.inner.set_keys_are_declared(is_guarded);
        let refusal = match &self.refuses_writes {
            Some(refusal) => Some(&**refusal),
            None if self.replication.is_replica() => Some(READ_ONLY),
            None if self.replication.replicas() < self.config.least_replicas => Some(ALONE),
            None => None,
        };
        self.inner.refuse_writes(refusal);
        if std::mem::take(&mut self.is_replication_changed) {
            let mut info = self.replication.info();
            if self.config.least_replicas > 0 {
                let replicas = self.replication.replicas();
                info += &format!("min_slaves_good_slaves:{replicas}\r\n");
            }
            self.inner.set_replication(info);
        }
    }

    /// Records the effects of the last request.
    pub(super) fn absorb(&mut self, connection: Option<u64>) {
        let effects = self.inner.take_effects();
        if self.cluster.is_some() {
            let plain = effects.published.into_iter().filter(|it| !it.is_sharded);
            let broadcasts = plain.map(|message| (message.channel, message.text));
            self.broadcasts.extend(broadcasts);
        }
        if effects.changes.is_empty() {
            return;
        }
        self.replication.record(effects.changes);
        self.is_replication_changed = true;
        let from = connection.and_then(|it| self.connections.get_mut(&it));
        if let Some(from) = from {
            from.written = self.replication.offset;
        }
    }
}

/// The error for a command that a server does not have.
fn unknown(request: &[&[u8]]) -> Reply {
    let mut words = request.iter().map(|word| String::from_utf8_lossy(word));
    let name = words.next().unwrap_or_default();
    let args: String = words.map(|arg| format!("'{arg}' ")).collect();
    let text = format!("ERR unknown command '{name}', with args beginning with: {args}");
    Reply::Error(text.replace(['\r', '\n'], " "))
}
