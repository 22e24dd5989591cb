//! The minimal client of a lock on Redis.

use redis::{Cmd, Connection, IntoConnectionInfo, Value, io::tcp::TcpSettings};

const LEASE: &str = "30000";

/// KEYS: the lock. ARGV: the lease in ms, the visitor. Returns nil if acquired, else the remaining ms of the holder's
/// lease.
const ACQUIRE: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return nil
end
return redis.call('PTTL', KEYS[1])
";

/// KEYS: the lock, its channel. ARGV: the message, the lease in ms, the visitor. 1 freed, 0 still held, nil not held.
const UNLOCK: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
    return nil
end
if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], ARGV[1])
return 1
";

/// One lock of one thread, with its connection.
pub(crate) struct Bare {
    connection: Connection,
    acquire: String,
    unlock: String,
    name: String,
    channel: String,
    visitor: String,
    /// Whether a reply was not read yet.
    is_owed: bool,
}

impl Bare {
    pub(crate) fn new(url: &str, name: &str, thread: usize) -> Bare {
        let mut connection = connect(url);
        let mut load = |script: &str| {
            let mut command = redis::cmd("SCRIPT");
            command.arg("LOAD").arg(script);
            command
                .query::<String>(&mut connection)
                .expect("a script is loaded")
        };
        Bare {
            acquire: load(ACQUIRE),
            unlock: load(UNLOCK),
            connection,
            name: name.to_owned(),
            channel: channel(name),
            visitor: format!("0b6f0000-0000-4000-8000-000000000000:{thread}"),
            is_owed: false,
        }
    }

    /// Continues with another lock.
    pub(crate) fn go_to(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        self.channel = channel(name);
    }

    pub(crate) fn lock(&mut self) {
        assert!(self.try_lock(), "the lock is free");
    }

    pub(crate) fn try_lock(&mut self) -> bool {
        let held_for: Option<i64> = self
            .acquisition()
            .query(&mut self.connection)
            .expect("an answer to acquire");
        held_for.is_none()
    }

    fn acquisition(&self) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.acquire).arg(1).arg(&self.name);
        command.arg(LEASE).arg(&self.visitor);
        command
    }

    pub(crate) fn unlock(&mut self) {
        let freed: Option<i64> = self
            .release()
            .query(&mut self.connection)
            .expect("an answer to unlock");
        assert_eq!(freed, Some(1), "the lock was held");
    }

    fn release(&self) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.unlock).arg(2).arg(&self.name);
        command.arg(&self.channel).arg("0");
        command.arg(LEASE).arg(&self.visitor);
        command
    }

    /// Sends the acquire request; its reply is pending then.
    pub(crate) fn send_lock(&mut self) {
        let request = self.acquisition();
        self.send(&request);
    }

    /// Sends the release request; its reply is pending then.
    pub(crate) fn send_unlock(&mut self) {
        let request = self.release();
        self.send(&request);
    }

    fn send(&mut self, request: &Cmd) {
        self.receive();
        self.connection
            .send_packed_command(&request.get_packed_command())
            .expect("a request is sent");
        self.is_owed = true;
    }

    /// Reads the pending reply, if there is one.
    pub(crate) fn receive(&mut self) {
        if std::mem::take(&mut self.is_owed) {
            let answer = self.connection.recv_response().expect("an answer");
            assert!(matches!(answer, Value::Nil | Value::Int(1)), "{answer:?}");
        }
    }
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

pub(crate) fn connect(url: &str) -> Connection {
    let info = url
        .into_connection_info()
        .expect("a good URL")
        .set_tcp_settings(TcpSettings::default().set_nodelay(true));
    redis::Client::open(info)
        .and_then(|client| client.get_connection())
        .expect("the server accepts a connection")
}
