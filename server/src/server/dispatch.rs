//! Dispatch of client commands.

use super::Server;
use crate::commands::{OF_CONNECTIONS, command};
use crate::number::integer;
use crate::reply::{Reply, array};

pub(super) fn error(text: impl Into<String>) -> Reply {
    Reply::Error(text.into())
}

impl Server {
    /// Returns `None` if the request is empty, or if its replies were already sent.
    pub(super) fn run(&mut self, now: i64, connection: u64, request: &[&[u8]]) -> Option<Reply> {
        let (name, args) = request.split_first()?;
        let said = String::from_utf8_lossy(name);
        let name = &*said.to_ascii_lowercase();
        let data = command(name.as_bytes());
        let least = OF_CONNECTIONS.iter().find(|(_, it)| *it == name);
        let takes = match (data, least) {
            (Some(command), _) => command.takes(args.len()),
            (None, Some((least, _))) => args.len() >= *least,
            (None, None) => return Some(unknown(&said, args)),
        };
        if !takes {
            let text = format!("ERR wrong number of arguments for '{name}' command");
            return Some(error(text));
        }
        if let Some(refusal) = self.refusal(connection, name) {
            return Some(refusal);
        }
        Some(match (name, args) {
            ("subscribe" | "ssubscribe" | "unsubscribe" | "sunsubscribe", channels) => {
                self.change_subscriptions(connection, name, channels);
                return None;
            }
            ("auth", args) => self.authenticate(connection, args),
            ("select", [number]) => self.select(connection, number),
            ("ping", []) if self.listens(connection) => array!["pong", ""],
            ("client", args) => self.client(now, connection, args),
            ("hello", args) => self.hello(connection, args),
            ("eval", args) => self.eval(now, connection, args, false),
            ("eval_ro", args) => self.eval(now, connection, args, true),
            ("evalsha", args) => self.evalsha(now, connection, args, false),
            ("evalsha_ro", args) => self.evalsha(now, connection, args, true),
            ("script", args) => self.script(args),
            ("info", []) => Reply::text(self.info("default", now)),
            ("info", [section, ..]) => {
                let section = String::from_utf8_lossy(section).to_ascii_lowercase();
                Reply::text(self.info(&section, now))
            }
            ("config", [word, pattern]) if word.eq_ignore_ascii_case(b"GET") => {
                self.config(&String::from_utf8_lossy(pattern))
            }
            ("command", [word, names @ ..]) if word.eq_ignore_ascii_case(b"INFO") => known(names),
            ("acl", [word]) if word.eq_ignore_ascii_case(b"WHOAMI") => {
                let user = self.config.user.as_ref();
                Reply::text(user.map_or("default", |(user, _)| user))
            }
            ("acl", [word, _, command, ..]) if word.eq_ignore_ascii_case(b"DRYRUN") => {
                self.rehearsal(command)
            }
            ("role", _) => array!["master", 0_i64, Reply::Array(Vec::new())],
            ("readonly" | "readwrite", _) => Reply::OK,
            ("wait", [replicas, timeout]) => match (integer(replicas), integer(timeout)) {
                (Ok(_), Ok(_)) => Reply::Int(0),
                (Err(refused), _) | (_, Err(refused)) => refused.into(),
            },
            ("cluster", _) => error("ERR This instance has cluster support disabled"),
            ("quit" | "reset", _) => {
                if let Some(from) = self.connections.get_mut(&connection) {
                    from.is_closing = true;
                }
                Reply::OK
            }
            _ if data.is_some() => {
                let database = self.database_of(connection);
                self.execute(database, now, |execution| execution.command(request))
            }
            ("config" | "acl" | "command" | "select", _) => error(format!(
                "ERR unknown subcommand or wrong number of arguments for '{said}'"
            )),
            _ => unknown(&said, args),
        })
    }

    /// Returns the error with which the connection's state refuses a command, whatever its arguments are. Reasons are
    /// missing authentication, missing rights, loading and subscriptions. `name` is in lower case.
    pub fn refusal(&self, connection: u64, name: &str) -> Option<Reply> {
        let from = self.connections.get(&connection)?;
        let may_pass = matches!(name, "auth" | "quit" | "hello");
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
        if !is_about_channels && self.listens(connection) {
            return Some(error(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context"
            )));
        }
        None
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

/// The reply to COMMAND INFO. For each command, it contains only the name, or nil if the command does not exist.
fn known(names: &[&[u8]]) -> Reply {
    let told = names.iter().map(|name| {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let is_known = OF_CONNECTIONS.iter().any(|(_, known)| *known == name);
        match is_known || command(name.as_bytes()).is_some() {
            true => array![name.into_bytes()],
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
    // An error reply has only one line.
    error(text.replace(['\r', '\n'], " "))
}
