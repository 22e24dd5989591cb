//! A server on loopback that answers as a test tells it, so that each answer and each order of answers is a matter of
//! milliseconds.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod route;
mod usual;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use redis::Value;

use crate::ground::sync::Mutex;
use crate::stores::idle::IdleTimeout;
use crate::stores::redis::{Redis, Settings, TlsConfig};
pub(in crate::stores::redis) use route::Route;
pub(in crate::stores::redis) use usual::{GRANTED, claim, soon, within};

/// One request: the command and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request(pub(crate) Vec<String>);

impl Deref for Request {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl Request {
    /// Whether this is the command, and these are the first of its arguments, in any case.
    pub(crate) fn is(&self, words: &str) -> bool {
        let words: Vec<_> = words.split(' ').collect();
        self.len() >= words.len()
            && self
                .iter()
                .zip(words)
                .all(|(is, word)| is.eq_ignore_ascii_case(word))
    }

    /// Whether it calls a script, by its hash or with its text.
    pub(crate) fn is_script(&self) -> bool {
        self.is("EVAL") || self.is("EVALSHA")
    }

    /// The keys of the script.
    pub(crate) fn keys(&self) -> &[String] {
        &self[3..3 + self.key_count()]
    }

    /// The arguments of the script, without the number of the request.
    pub(crate) fn args(&self) -> &[String] {
        &self[3 + self.key_count()..self.len() - 1]
    }

    fn key_count(&self) -> usize {
        self[2].parse().unwrap()
    }

    /// The number of the request, which the answer of a script repeats.
    pub(crate) fn number(&self) -> i64 {
        self.last().unwrap().parse().unwrap()
    }
}

/// An act of the server upon a request.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    /// A reply that needs no number.
    Reply(Value),
    /// The answer of a script, with the number of the request.
    Answer(Value),
    /// An error.
    Error(String),
    /// These bytes.
    Bytes(Vec<u8>),
    /// Nothing, ever.
    Nothing,
    /// It closes the connection.
    Cut,
    /// One behind the other.
    Both(Box<Says>, Box<Says>),
    /// The same so much later.
    Later(Duration, Box<Says>),
}

impl Says {
    pub(crate) fn int(number: i64) -> Option<Says> {
        Some(Says::Answer(Value::Int(number)))
    }

    pub(crate) fn ints(numbers: &[i64]) -> Option<Says> {
        let items = numbers.iter().map(|number| Value::Int(*number)).collect();
        Some(Says::Answer(Value::Array(items)))
    }

    pub(crate) fn error(text: &str) -> Option<Says> {
        Some(Says::Error(text.to_owned()))
    }

    pub(crate) fn text(text: &str) -> Option<Says> {
        Some(Says::Reply(bulk(text)))
    }
}

/// A string as a server sends it.
pub(crate) fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

type Answers = Box<dyn FnMut(&Request) -> Option<Says> + Send>;

struct Shared {
    answers: Mutex<Answers>,
    asked: Mutex<Vec<Request>>,
    /// Each connection that was made.
    streams: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

/// A server that answers as told, and that keeps what it was asked. It ends with its value.
pub(crate) struct StubServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl StubServer {
    /// A server that does what `answers` says about each request. On `None` it greets, tells the true time, says OK to the
    /// settings of a connection, confirms a subscription, and refuses all else.
    pub(crate) fn start(
        answers: impl FnMut(&Request) -> Option<Says> + Send + 'static,
    ) -> StubServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answers: Mutex::new(Box::new(answers)),
            asked: Mutex::default(),
            streams: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if of_thread.is_over.load(Ordering::Relaxed) {
                    return;
                }
                stream.set_nodelay(true).unwrap();
                let kept = stream.try_clone().unwrap();
                of_thread.streams.lock().push(kept);
                let shared = Arc::clone(&of_thread);
                thread::spawn(move || serve(&stream, &shared));
            }
        });
        StubServer { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Does what `answers` says from now on.
    pub(crate) fn answer(&self, answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) {
        *self.shared.answers.lock() = Box::new(answers);
    }

    /// The requests so far, without those with which a connection begins.
    pub(crate) fn asked(&self) -> Vec<Request> {
        let asked = self.shared.asked.lock();
        let greetings = ["CLIENT SETNAME", "HELLO", "TIME"];
        asked
            .iter()
            .filter(|request| !greetings.iter().any(|it| request.is(it)))
            .cloned()
            .collect()
    }

    /// How many connections were made to it.
    pub(crate) fn connected(&self) -> usize {
        self.shared.streams.lock().len()
    }

    /// Closes all connections that it has.
    pub(crate) fn cut_all(&self) {
        for stream in &*self.shared.streams.lock() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The store of a client to it.
    pub(crate) fn store(&self) -> Arc<Redis> {
        self.store_with(|_| {})
    }

    /// As [`StubServer::store`], with settings of its own.
    pub(crate) fn store_with(&self, set: impl FnOnce(&mut Settings)) -> Arc<Redis> {
        let mut settings = settings();
        set(&mut settings);
        Arc::new(Redis::open(&self.url(), &settings).unwrap())
    }
}

/// Settings with times that no test waits for.
pub(crate) fn settings() -> Settings {
    Settings {
        connection_name: "redlatch".into(),
        traffic: Arc::default(),
        command_timeout: Duration::from_secs(3),
        connect_timeout: Duration::from_secs(3),
        pool_size: 8,
        idle_timeout: IdleTimeout::new(Duration::from_secs(300)),
        check_idle_after: Duration::from_secs(30),
        tls_config: TlsConfig::default(),
        lease: Duration::from_secs(30),
        credentials: None,
        database: 0,
        sharded: None,
        replication: None,
        patience: Duration::from_secs(300),
    }
}

impl Drop for StubServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // So that the thread which accepts looks.
        let _ = TcpStream::connect(self.address);
        self.cut_all();
    }
}

fn serve(stream: &TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader) {
        shared.asked.lock().push(request.clone());
        let told = (shared.answers.lock())(&request);
        let says = told.unwrap_or_else(|| by_default(&request));
        if !say(stream, &request, &says) {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// Returns whether the connection goes on.
fn say(mut stream: &TcpStream, request: &Request, says: &Says) -> bool {
    match says {
        Says::Reply(value) => stream.write_all(&encoded(value)).is_ok(),
        Says::Answer(value) => {
            let numbered = Value::Array(vec![Value::Int(request.number()), value.clone()]);
            stream.write_all(&encoded(&numbered)).is_ok()
        }
        Says::Error(text) => stream.write_all(format!("-{text}\r\n").as_bytes()).is_ok(),
        Says::Bytes(bytes) => stream.write_all(bytes).is_ok(),
        Says::Nothing => true,
        Says::Cut => false,
        Says::Both(first, second) => say(stream, request, first) && say(stream, request, second),
        Says::Later(span, says) => {
            thread::sleep(*span);
            say(stream, request, says)
        }
    }
}

fn by_default(request: &Request) -> Says {
    let ok = Says::Reply(Value::Okay);
    if request.is("TIME") {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let parts = [now.as_secs(), u64::from(now.subsec_micros())];
        return Says::Reply(Value::Array(
            parts.map(|part| bulk(&part.to_string())).to_vec(),
        ));
    }
    let kind = request[0].to_ascii_lowercase();
    match &*kind {
        "client" | "auth" | "select" | "asking" => ok,
        "ping" => Says::Reply(Value::SimpleString("PONG".into())),
        "subscribe" | "ssubscribe" | "unsubscribe" | "sunsubscribe" => {
            let confirmed = request[1..].iter().map(|channel| {
                encoded(&Value::Array(vec![
                    bulk(&kind),
                    bulk(channel),
                    Value::Int(1),
                ]))
            });
            Says::Bytes(confirmed.collect::<Vec<_>>().concat())
        }
        _ => Says::Error(format!("ERR nobody told what to say to {request:?}")),
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = || -> Option<usize> {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse().ok()
    };
    let count = line()?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let length: usize = header.trim_end().get(1..)?.parse().ok()?;
        let mut bytes = vec![0; length + 2];
        reader.read_exact(&mut bytes).ok()?;
        bytes.truncate(length);
        words.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    Some(Request(words))
}

/// A value as a server sends it.
pub(crate) fn encoded(value: &Value) -> Vec<u8> {
    match value {
        Value::Nil => b"$-1\r\n".to_vec(),
        Value::Int(number) => format!(":{number}\r\n").into_bytes(),
        Value::BulkString(bytes) => {
            let header = format!("${}\r\n", bytes.len()).into_bytes();
            [header, bytes.clone(), b"\r\n".to_vec()].concat()
        }
        Value::Array(items) => {
            let header = format!("*{}\r\n", items.len()).into_bytes();
            let items: Vec<_> = items.iter().map(encoded).collect();
            [header, items.concat()].concat()
        }
        Value::SimpleString(text) => format!("+{text}\r\n").into_bytes(),
        Value::Okay => b"+OK\r\n".to_vec(),
        other => panic!("no server sends {other:?} here"),
    }
}
