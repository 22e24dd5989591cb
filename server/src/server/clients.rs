//! Commands about the connection that sends them: AUTH, SELECT, HELLO, CLIENT.

use std::collections::BTreeSet;

use super::Server;
use super::dispatch::error;
use crate::number::integer;
use crate::reply::{Reply, array};

impl Server {
    pub(super) fn database_of(&self, connection: u64) -> u32 {
        self.connections
            .get(&connection)
            .map_or(0, |it| it.database)
    }

    pub(super) fn authenticate(&mut self, connection: u64, args: &[&[u8]]) -> Reply {
        let Some((user, password)) = &self.config.user else {
            return match args {
                [_] => error(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                     your configuration is correct?",
                ),
                _ => error("WRONGPASS invalid username-password pair or user is disabled."),
            };
        };
        let (given, secret): (&[u8], &[u8]) = match args {
            [secret] => (b"default", secret),
            [user, secret, ..] => (user, secret),
            [] => (b"", b""),
        };
        let is_right = given == user.as_bytes() && secret == password.as_bytes();
        if let Some(from) = self.connections.get_mut(&connection)
            && is_right
        {
            from.is_authenticated = true;
            return Reply::OK;
        }
        error("WRONGPASS invalid username-password pair or user is disabled.")
    }

    pub(super) fn select(&mut self, connection: u64, number: &[u8]) -> Reply {
        let number = match integer(number) {
            Ok(number) => u32::try_from(number).ok().filter(|number| *number < 16),
            Err(refused) => return refused.into(),
        };
        match (number, self.connections.get_mut(&connection)) {
            (Some(number), Some(from)) => {
                from.database = number;
                Reply::OK
            }
            _ => error("ERR DB index is out of range"),
        }
    }

    /// Supports only RESP2.
    pub(super) fn hello(&mut self, connection: u64, args: &[&[u8]]) -> Reply {
        if let Some(version) = args.first()
            && *version != b"2"
        {
            return error("NOPROTO unsupported protocol version");
        }
        let mut options = args.iter().skip(1);
        while let Some(option) = options.next() {
            let reply = match option.to_ascii_uppercase().as_slice() {
                b"AUTH" => {
                    let pair: Vec<&[u8]> = options.by_ref().take(2).copied().collect();
                    self.authenticate(connection, &pair)
                }
                b"SETNAME" => {
                    let name = options.next().copied().unwrap_or_default();
                    self.set_name(connection, name)
                }
                _ => error("ERR syntax error in HELLO"),
            };
            if reply != Reply::OK {
                return reply;
            }
        }
        let id = connection as i64;
        let modules = Reply::Array(Vec::new());
        array![
            "server",
            "redis",
            "version",
            "7.0.15",
            "proto",
            2_i64,
            "id",
            id,
            "mode",
            self.mode,
            "role",
            self.role(),
            "modules",
            modules,
        ]
    }

    fn role(&self) -> &'static str {
        match self.replication.contains("role:slave") {
            true => "replica",
            false => "master",
        }
    }

    fn set_name(&mut self, connection: u64, name: &[u8]) -> Reply {
        if !name.iter().all(|sign| (b'!'..=b'~').contains(sign)) {
            return error(
                "ERR Client names cannot contain spaces, newlines or special characters.",
            );
        }
        if let Some(from) = self.connections.get_mut(&connection) {
            from.name = name.to_vec();
        }
        Reply::OK
    }

    /// Supports SETNAME, GETNAME, ID, LIST and INFO. Other subcommands reply `OK` and have no effect.
    pub(super) fn client(&mut self, now: i64, connection: u64, args: &[&[u8]]) -> Reply {
        match (args[0].to_ascii_uppercase().as_slice(), &args[1..]) {
            (b"SETNAME", [name]) => self.set_name(connection, name),
            (b"GETNAME", []) => {
                let from = self.connections.get(&connection);
                let name = from.map(|from| from.name.clone());
                name.filter(|name| !name.is_empty()).into()
            }
            (b"ID", []) => (connection as i64).into(),
            (b"LIST", _) => {
                let lines = self.connections.keys().map(|it| self.line_of(now, *it));
                lines.collect::<String>().into_bytes().into()
            }
            (b"INFO", []) => self.line_of(now, connection).into_bytes().into(),
            _ => Reply::OK,
        }
    }

    fn line_of(&self, now: i64, connection: u64) -> String {
        let Some(it) = self.connections.get(&connection) else {
            return String::new();
        };
        let name = String::from_utf8_lossy(&it.name);
        let age = (now - it.since.unwrap_or(now)).max(0) / 1_000_000;
        let heard = |channels: &crate::commands::Subscriptions| {
            let listened = |listeners: &&BTreeSet<u64>| listeners.contains(&connection);
            channels.values().filter(listened).count()
        };
        let (plain, sharded) = (heard(&self.channels), heard(&self.shard_channels));
        let (flags, database) = (if plain + sharded > 0 { "P" } else { "N" }, it.database);
        format!(
            "id={connection} addr=127.0.0.1:0 laddr=127.0.0.1:6379 name={name} age={age} idle=0 flags={flags} \
             db={database} sub={plain} psub=0 ssub={sharded} multi=-1 user=default resp=2\n"
        )
    }
}
