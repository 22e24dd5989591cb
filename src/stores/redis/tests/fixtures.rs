#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::Value;
use redlatch_server::Reply;

use super::stub::{Act, NUMBERED, Says, StubServer};
use crate::ground::claim::{Claim, Kind, VisitorId};
use crate::stores::redis::transport::{
    Address, CallError, Connection, Connector, KnownMaster, TlsConfig,
};
use crate::stores::redis::{Redis, Settings};

/// A reply of `acquire.lua` that grants the lock. `left` is at its cap, so the client derives no server time from it.
pub(crate) const GRANTED: i64 = (1 << 22) - 1;

pub(crate) fn soon() -> Instant {
    within(3000)
}

pub(crate) fn within(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

pub(crate) fn claim(name: &str) -> Claim {
    Claim {
        kind: Kind::Reentrant,
        name: name.into(),
        visitor: VisitorId::new("client", 1, 1),
        count: 0,
        lease: Duration::from_secs(30),
        is_renewed: false,
        inside: None,
        queueing: Default::default(),
    }
}

pub(crate) fn settings() -> Settings {
    let timeout = Duration::from_secs(3);
    Settings {
        connect_timeout: timeout,
        command_timeout: timeout,
        pool_size: 8,
        ..Settings::default()
    }
}

pub(crate) struct Route {
    address: Address,
    pub(crate) known_master: KnownMaster,
    is_blocked: AtomicBool,
}

impl Route {
    pub(crate) fn to(server: &StubServer) -> Arc<Route> {
        let timeout = Duration::from_secs(3);
        let address = Address::parse(&server.url(), timeout, &TlsConfig::default()).unwrap();
        Arc::new(Route {
            address,
            known_master: KnownMaster::new("the stub"),
            is_blocked: AtomicBool::new(false),
        })
    }

    /// Makes connecting fail as if all connections were in use.
    pub(crate) fn block(&self) {
        self.is_blocked.store(true, Ordering::Relaxed);
    }

    /// From now on, this connector leads to another server, which is unreachable.
    pub(crate) fn lead_elsewhere(&self) {
        self.block();
        self.known_master.suspect(self.known_master.generation());
    }
}

impl Connector for Route {
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        if self.is_blocked.load(Ordering::Relaxed) {
            return Err(CallError::NotSent("there is no room for it".into()));
        }
        let mut connection = Connection::connect(&self.address, deadline)?;
        connection.generation = self.known_master.generation();
        Ok(connection)
    }

    fn master(&self) -> &KnownMaster {
        &self.known_master
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Request(Vec<String>);

impl Deref for Request {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl Request {
    pub(super) fn of(words: &[Vec<u8>]) -> Request {
        let words = words.iter().map(|word| String::from_utf8_lossy(word));
        Request(words.map(String::from).collect())
    }

    /// Whether the request begins with these words. Ignores case.
    pub(crate) fn is(&self, words: &str) -> bool {
        let begin = self.iter().take(words.split(' ').count());
        let begin: Vec<_> = begin.map(String::as_str).collect();
        begin.join(" ").eq_ignore_ascii_case(words)
    }

    pub(crate) fn is_script(&self) -> bool {
        self.is("EVAL") || self.is("EVALSHA")
    }

    pub(crate) fn keys(&self) -> &[String] {
        let count: usize = self[2].parse().unwrap();
        &self[3..3 + count]
    }
}

impl Says {
    pub(crate) fn nothing() -> Says {
        Says(Vec::new())
    }

    pub(crate) fn cut() -> Says {
        Says(vec![Act::Cut])
    }

    pub(crate) fn bytes(bytes: impl AsRef<[u8]>) -> Says {
        Says(vec![Act::Bytes(bytes.as_ref().to_vec())])
    }

    pub(crate) fn later(span: Duration, says: Says) -> Says {
        Says(vec![Act::Pause(span)]).then(says)
    }

    pub(crate) fn then(mut self, next: Says) -> Says {
        self.0.extend(next.0);
        self
    }

    pub(crate) fn error(text: &str) -> Says {
        Says::bytes(format!("-{text}\r\n"))
    }

    pub(crate) fn reply(value: Value) -> Says {
        Says::bytes(encoded(&value))
    }

    /// The reply of a script: the number of the request, then `value`.
    pub(crate) fn answer(value: Value) -> Says {
        Says::bytes([NUMBERED.as_bytes(), &encoded(&value)].concat())
    }

    pub(crate) fn ints(numbers: &[i64]) -> Says {
        let items = numbers.iter().map(|number| Value::Int(*number)).collect();
        Says::answer(Value::Array(items))
    }
}

impl StubServer {
    pub(crate) fn address(&self) -> String {
        self.0.listener.local_addr().unwrap().to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Returns the requests so far, except for handshakes.
    pub(crate) fn asked(&self) -> Vec<Request> {
        let mut asked = self.0.asked.lock().clone();
        let handshake = ["CLIENT SETNAME", "HELLO", "TIME"];
        asked.retain(|request| !handshake.iter().any(|it| request.is(it)));
        asked
    }

    pub(crate) fn connected(&self) -> usize {
        self.0.streams.lock().len()
    }

    pub(crate) fn store(&self) -> Arc<Redis> {
        self.store_with(|_| {})
    }

    pub(crate) fn store_with(&self, set: impl FnOnce(&mut Settings)) -> Arc<Redis> {
        let mut settings = settings();
        set(&mut settings);
        Arc::new(Redis::open(&self.url(), &settings).unwrap())
    }
}

pub(crate) fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply_of(value).encode(&mut bytes);
    bytes
}

fn reply_of(value: &Value) -> Reply {
    match value {
        Value::Okay => Reply::OK,
        Value::Int(number) => Reply::Int(*number),
        Value::BulkString(bytes) => Reply::text(bytes),
        Value::SimpleString(word) => Reply::Status(word.clone().into()),
        Value::Array(items) => Reply::Array(items.iter().map(reply_of).collect()),
        _ => Reply::Nil,
    }
}
