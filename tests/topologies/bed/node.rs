//! One data server of a set, with the password its administrator needs.

use std::ops::Deref;

use redis::{FromRedisValue, RedisResult, Value};

use crate::kit::RedisServer;

/// A data server; freezing, killing and starting again are those of the kit's server.
pub struct Node {
    server: RedisServer,
    password: Option<String>,
}

impl Node {
    /// Starts a server with arguments added to the kit's own, and with a password if there is one.
    pub fn start(args: &[&str], password: Option<&str>) -> Node {
        let options = RedisServer::options();
        let options = match password {
            Some(password) => options.args(&["--requirepass", password, "--masterauth", password]),
            None => options,
        };
        Node {
            server: options.args(args).start(),
            password: password.map(str::to_owned),
        }
    }

    /// The URL of this server for the default user.
    pub fn url(&self) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@{}", self.addr()),
            None => self.server.url(),
        }
    }

    /// The password of the default user, if it has one.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Sends a command as the administrator and returns the answer.
    #[track_caller]
    pub fn cmd(&self, words: &[&str]) -> Value {
        match self.try_cmd(words) {
            Ok(value) => value,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// Sends a command as the administrator; an error answer is returned.
    ///
    /// It is sent once more if the connection was closed, as a sentinel does to all clients of a server whose role it
    /// changes.
    pub fn try_cmd(&self, words: &[&str]) -> RedisResult<Value> {
        match self.try_once(words) {
            Err(error) if error.is_connection_dropped() => self.try_once(words),
            answer => answer,
        }
    }

    fn try_once(&self, words: &[&str]) -> RedisResult<Value> {
        let answer = self.server.try_cmd(words);
        let refused = answer
            .as_ref()
            .is_err_and(|error| error.code() == Some("NOAUTH"));
        match &self.password {
            Some(password) if refused => {
                self.server.try_cmd(&["AUTH", password])?;
                self.server.try_cmd(words)
            }
            _ => answer,
        }
    }

    /// Sends a command whose answer is of a known type.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let value = self.cmd(words);
        redis::from_redis_value(value).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// One field of `INFO`, such as `role`; `None` also if the server does not answer.
    pub fn told(&self, field: &str) -> Option<String> {
        let value = self.try_cmd(&["INFO", "everything"]).ok()?;
        let info: String = redis::from_redis_value(value).ok()?;
        info.lines().find_map(|line| {
            line.strip_prefix(field)?
                .strip_prefix(':')
                .map(str::to_owned)
        })
    }

    /// Whether the server answers and says that it is a master.
    pub fn is_master(&self) -> bool {
        self.told("role").as_deref() == Some("master")
    }

    /// Whether the server is a replica that has all that the server at `port` has.
    pub fn follows(&self, port: u16) -> bool {
        let told = |field| self.told(field);
        told("role").as_deref() == Some("slave")
            && told("master_port") == Some(port.to_string())
            && told("master_link_status").as_deref() == Some("up")
    }

    /// How many replicas the server sends its changes to.
    pub fn replicas_online(&self) -> usize {
        let count = self.told("connected_slaves");
        let count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
        (0..count)
            .filter(|index| {
                self.told(&format!("slave{index}"))
                    .is_some_and(|line| line.contains("state=online"))
            })
            .count()
    }

    /// Waits until `count` replicas have all that this server has now; `name` is a key of a slot that it serves.
    #[track_caller]
    pub fn replicate(&self, count: usize, name: &str) {
        self.cmd(&["SET", &format!("kit-mark:{{{name}}}"), "1"]);
        let copied: usize = self.ask(&["WAIT", &count.to_string(), "20000"]);
        assert!(copied >= count, "{copied} of {count} replicas");
    }

    /// Closes the connections of the replicas, which may be frozen: what is written from now on does not wait for them in
    /// the buffer of a socket.
    pub fn drop_replicas(&self) {
        self.cmd(&["CLIENT", "KILL", "TYPE", "replica"]);
    }

    /// The keys of the database 0 that match `pattern`.
    pub fn keys(&self, pattern: &str) -> Vec<String> {
        self.ask(&["KEYS", pattern])
    }
}

impl Deref for Node {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.server
    }
}
