//! The commands of clients.

use super::Server;
use super::messages::Ask;
use super::sentinel::COMMANDS;
use crate::commands::integer;
use crate::reply::{Reply, array};

fn error(text: impl Into<String>) -> Reply {
    Reply::Error(text.into())
}

impl Server {
    /// Runs a request; `None` if what it answers was sent already.
    pub(super) fn run(&mut self, now: i64, connection: u64, request: &[&[u8]]) -> Option<Reply> {
        let (name, args) = request.split_first()?;
        let said = String::from_utf8_lossy(name);
        let name = said.to_ascii_lowercase();
        let is_asking = (self.connections.get_mut(&connection))
            .is_some_and(|from| std::mem::take(&mut from.is_asking));
        let refusal = self.refusal(connection, &said, args);
        if let Some(refusal) = refusal.or_else(|| self.redirection(now, &name, args, is_asking)) {
            return Some(refusal);
        }
        let ask = match &*name {
            "subscribe" | "ssubscribe" => Some(Ask::Subscribe),
            "unsubscribe" | "sunsubscribe" => Some(Ask::Unsubscribe),
            _ => None,
        };
        if let Some(ask) = ask {
            self.change_subscriptions(
                connection,
                ask,
                name.starts_with('s') && name != "subscribe",
                args,
            );
            return None;
        }
        Some(match (&*name, args) {
            ("auth", args) => self.authenticate(connection, args),
            ("select", [number]) => self.select(connection, number),
            // Its time comes from the clock of the server.
            ("time", _) => array![
                now.div_euclid(1_000_000).to_string().as_str(),
                now.rem_euclid(1_000_000).to_string().as_str(),
            ],
            ("ping", []) if self.listens(connection) => array!["pong", ""],
            ("ping", []) => Reply::Status("PONG"),
            ("client", _) => Reply::OK,
            ("hello", []) => array!["server", "redis", "mode", self.mode()],
            ("eval", args) => self.eval(now, connection, args),
            ("evalsha", args) => self.evalsha(now, connection, args),
            ("publish", [channel, text]) => self.publish(channel, text, false).into(),
            ("spublish", [channel, text]) => self.publish(channel, text, true).into(),
            ("pubsub", [word, channels @ ..]) => self.pubsub(word, channels),
            ("info", []) => Reply::text(self.info("default", now)),
            ("info", [section, ..]) => {
                let section = String::from_utf8_lossy(section).to_ascii_lowercase();
                Reply::text(self.info(&section, now))
            }
            ("config", [_, pattern]) => self.config(&String::from_utf8_lossy(pattern)),
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
            ("command", [_, names @ ..]) => commands(names),
            ("acl", [word, ..]) if word.eq_ignore_ascii_case(b"whoami") => Reply::text("default"),
            ("acl", [word, _, command, ..]) if word.eq_ignore_ascii_case(b"dryrun") => {
                self.rehearsal(command)
            }
            ("quit", _) => {
                if let Some(from) = self.connections.get_mut(&connection) {
                    from.is_closing = true;
                }
                Reply::OK
            }
            _ => unknown(&said, args),
        })
    }

    /// Why a request is not run at all.
    fn refusal(&self, connection: u64, said: &str, args: &[&[u8]]) -> Option<Reply> {
        let name = &*said.to_ascii_lowercase();
        let from = self.connections.get(&connection)?;
        let is_there = self.masters.is_some() == (name == "sentinel") || COMMANDS.contains(&name);
        let arity = LEAST
            .iter()
            .find(|(command, _)| *command == name && is_there);
        let Some((_, least)) = arity else {
            return Some(unknown(said, args));
        };
        if args.len() < *least {
            return Some(error(format!(
                "ERR wrong number of arguments for '{name}' command"
            )));
        }
        let may_pass = matches!(name, "auth" | "quit");
        if self.config.user.is_some() && !from.is_authenticated && !may_pass {
            return Some(error("NOAUTH Authentication required."));
        }
        if self.denied.contains(name) {
            let text = format!("NOPERM this user has no permissions to run the '{name}' command");
            return Some(error(text));
        }
        if self.is_loading
            && !matches!(
                name,
                "auth" | "select" | "client" | "hello" | "time" | "info" | "config"
            )
        {
            return Some(error("LOADING Redis is loading the dataset in memory"));
        }
        let is_about_channels = name.ends_with("subscribe") || matches!(name, "ping" | "quit");
        if self.listens(connection) && !is_about_channels {
            return Some(error(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context"
            )));
        }
        None
    }

    /// The refusal of a request that another server of the cluster is to answer.
    fn redirection(&self, now: i64, name: &str, args: &[&[u8]], is_asking: bool) -> Option<Reply> {
        match (name, args) {
            ("eval" | "evalsha", [_, count, rest @ ..]) => {
                let count = usize::try_from(integer(count).ok()?).ok()?;
                self.elsewhere(now, rest.get(..count)?, is_asking, false)
            }
            ("ssubscribe", channels) => self.elsewhere(now, channels, is_asking, true),
            ("spublish", [channel, ..]) => self.elsewhere(now, &[channel], is_asking, true),
            _ => None,
        }
    }

    fn authenticate(&mut self, connection: u64, args: &[&[u8]]) -> Reply {
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

    fn select(&mut self, connection: u64, number: &[u8]) -> Reply {
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

    fn pubsub(&mut self, word: &[u8], channels: &[&[u8]]) -> Reply {
        match word.to_ascii_uppercase().as_slice() {
            b"NUMSUB" => self.numbers_of_listeners(channels, false),
            b"SHARDNUMSUB" => self.numbers_of_listeners(channels, true),
            _ => error("ERR Unknown PUBSUB subcommand or wrong number of arguments"),
        }
    }

    fn rehearsal(&self, command: &[u8]) -> Reply {
        let command = String::from_utf8_lossy(command).to_ascii_lowercase();
        if self.denied.contains(&command) {
            let text = format!("User default has no permissions to run the '{command}' command");
            return Reply::text(text);
        }
        Reply::OK
    }
}

/// The commands that there are, and how many arguments each has at least.
const LEAST: &[(&str, usize)] = &[
    ("acl", 1),
    ("asking", 0),
    ("auth", 1),
    ("client", 1),
    ("cluster", 1),
    ("command", 1),
    ("config", 2),
    ("eval", 2),
    ("evalsha", 2),
    ("hello", 0),
    ("info", 0),
    ("ping", 0),
    ("publish", 2),
    ("pubsub", 1),
    ("quit", 0),
    ("role", 0),
    ("select", 1),
    ("sentinel", 2),
    ("spublish", 2),
    ("ssubscribe", 1),
    ("subscribe", 1),
    ("sunsubscribe", 0),
    ("time", 0),
    ("unsubscribe", 0),
    ("wait", 2),
];

/// The answer to COMMAND INFO; of each no more than that it is there.
fn commands(names: &[&[u8]]) -> Reply {
    const OTHERS: [&str; 2] = ["flushall", "flushdb"];
    let told = names.iter().map(|name| {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let mut known = LEAST.iter().map(|(name, _)| *name).chain(OTHERS);
        match known.any(|known| known == name) {
            true => array![name.as_str()],
            false => Reply::Nil,
        }
    });
    Reply::Array(told.collect())
}

fn unknown(name: &str, args: &[&[u8]]) -> Reply {
    let args = args
        .iter()
        .map(|arg| format!("'{}' ", String::from_utf8_lossy(arg)));
    let args: String = args.collect();
    let text = format!("ERR unknown command '{name}', with args beginning with: {args}");
    // An error is one line.
    error(text.replace(['\r', '\n'], " "))
}
