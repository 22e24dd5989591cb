//! One data server of a set, with the password its administrator needs.

use std::ops::Deref;

use redis::{FromRedisValue, RedisResult, Value};

use super::Certificates;
use crate::support::RedisServer;

/// How a server authenticates clients.
#[derive(Clone, Copy, Default)]
pub struct Access<'a> {
    /// The password of the default user.
    pub password: Option<&'a str>,
    /// The authority of the server's certificate, if clients, replicas and cluster nodes are to use TLS.
    pub certificates: Option<&'a Certificates>,
}

impl<'a> Access<'a> {
    /// Requires this password, if there is one.
    pub fn with(password: Option<&'a str>) -> Access<'a> {
        Access {
            password,
            certificates: None,
        }
    }
}

/// A data server, which can be frozen, killed and restarted as a [`RedisServer`].
pub struct Node {
    server: RedisServer,
    password: Option<String>,
    tls_port: Option<u16>,
}

impl Node {
    /// Starts a server with additional arguments for [`RedisServer`].
    pub fn start(args: &[&str], access: Access<'_>) -> Node {
        let mut options = RedisServer::options();
        if let Some(password) = access.password {
            options = options.args(&["--requirepass", password, "--masterauth", password]);
        }
        let mut tls_port = None;
        if let Some(certificates) = access.certificates {
            let (own, port) = certificates.server_args(&certificates.server(), false);
            tls_port = Some(port);
            let own: Vec<_> = own.iter().map(String::as_str).collect();
            options = options.args(&own).args(&[
                "--tls-replication",
                "yes",
                "--tls-cluster",
                "yes",
                "--replica-announce-port",
                &port.to_string(),
            ]);
        }
        Node {
            server: options.args(args).start(),
            password: access.password.map(str::to_owned),
            tls_port,
        }
    }

    /// The URL of this server for the default user.
    pub fn url(&self) -> String {
        let scheme = if self.tls_port.is_some() {
            "rediss"
        } else {
            "redis"
        };
        let password = self.password.as_ref();
        let password = password.map_or(String::new(), |password| format!(":{password}@"));
        format!("{scheme}://{password}127.0.0.1:{}", self.port())
    }

    /// The port for clients; with TLS the administrator has another one.
    pub fn port(&self) -> u16 {
        self.tls_port.unwrap_or_else(|| self.server.port())
    }

    /// Whether this is one of the server's ports.
    pub fn has_port(&self, port: u16) -> bool {
        port == self.port() || port == self.server.port()
    }

    /// The password of the default user, if it has one.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Sends a command as the administrator and returns the reply.
    #[track_caller]
    pub fn cmd(&self, words: &[&str]) -> Value {
        match self.try_cmd(words) {
            Ok(value) => value,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// Sends a command as the administrator; an error reply is returned.
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

    /// Sends a command whose reply is of a known type.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let value = self.cmd(words);
        redis::from_redis_value(value).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// One field of `INFO`, such as `role`; `None` also if the server does not reply.
    pub fn told(&self, field: &str) -> Option<String> {
        let value = self.try_cmd(&["INFO", "everything"]).ok()?;
        let info: String = redis::from_redis_value(value).ok()?;
        info.lines().find_map(|line| {
            line.strip_prefix(field)?
                .strip_prefix(':')
                .map(str::to_owned)
        })
    }

    /// Whether the server replies and is a master.
    pub fn is_master(&self) -> bool {
        self.told("role").as_deref() == Some("master")
    }

    /// Whether the server is a replica with all data of the server at `port`.
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

    /// Waits until `count` replicas have all present data of this server; `name` is a key in one of its slots.
    #[track_caller]
    pub fn replicate(&self, count: usize, name: &str) {
        self.cmd(&["SET", &format!("support-mark:{{{name}}}"), "1"]);
        let copied: usize = self.ask(&["WAIT", &count.to_string(), "20000"]);
        assert!(copied >= count, "{copied} of {count} replicas");
    }

    /// Closes the connections of the replicas, which may be frozen: later writes then do not wait for them in a socket
    /// buffer.
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
