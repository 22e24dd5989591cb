//! A server on loopback. A test can set its replies, byte by byte. The in-memory server answers all other requests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use redlatch_server::{Server, next};

pub(crate) use super::fixtures::{GRANTED, Request, Route, bulk, claim, settings, soon, within};
use crate::ground::sync::Mutex;

/// What the server does after a request. If empty, the server does not reply.
#[derive(Clone, Debug)]
pub(crate) struct Says(pub(super) Vec<Act>);

#[derive(Clone, Debug)]
pub(super) enum Act {
    Bytes(Vec<u8>),
    Pause(Duration),
    Cut,
}

/// The prefix of a script's reply. `#` stands for the number of the request.
pub(super) const NUMBERED: &str = "*2\r\n:#\r\n";

pub(crate) struct StubServer(pub(super) Arc<Shared>);

type Answers = Box<dyn FnMut(&Request) -> Option<Says> + Send>;

pub(super) struct Shared {
    pub(super) listener: TcpListener,
    answers: Mutex<Answers>,
    server: Mutex<Server>,
    pub(super) asked: Mutex<Vec<Request>>,
    /// The connections by the client's port.
    pub(super) streams: Mutex<BTreeMap<u64, TcpStream>>,
}

impl StubServer {
    pub(crate) fn start(
        answers: impl FnMut(&Request) -> Option<Says> + Send + 'static,
    ) -> StubServer {
        let shared = Arc::new(Shared {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            answers: Mutex::new(Box::new(answers)),
            server: Mutex::new(Server::new(Default::default(), now())),
            asked: Mutex::default(),
            streams: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok((stream, _)) = accepting.listener.accept() {
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        StubServer(shared)
    }

    pub(crate) fn answer(&self, answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) {
        *self.0.answers.lock() = Box::new(answers);
    }
}

impl Shared {
    fn serve(&self, mut stream: &TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let number = stream.peer_addr().ok()?.port().into();
        self.server.lock().connect(number);
        self.streams.lock().insert(number, stream.try_clone().ok()?);
        let (mut input, mut at, mut piece) = (Vec::new(), 0, [0; 4096]);
        while let Ok(read @ 1..) = stream.read(&mut piece) {
            input.extend(&piece[..read]);
            while let Ok(words) = next(&input, &mut at) {
                let request = Request::of(&words);
                self.asked.lock().push(request.clone());
                let says = (self.answers.lock())(&request);
                if says.is_none() {
                    for reply in self.server.lock().command(now(), number, &words) {
                        let mut to = &self.streams.lock()[&reply.connection];
                        to.write_all(&reply.bytes).ok();
                    }
                }
                for act in says.map(|says| says.0).unwrap_or_default() {
                    match act {
                        Act::Bytes(bytes) => stream.write_all(&numbered(bytes, &request)).ok()?,
                        Act::Pause(span) => thread::sleep(span),
                        Act::Cut => return stream.shutdown(Shutdown::Both).ok(),
                    }
                }
            }
        }
        Some(())
    }
}

fn numbered(bytes: Vec<u8>, request: &Request) -> Vec<u8> {
    match (bytes.strip_prefix(NUMBERED.as_bytes()), request.last()) {
        (Some(rest), Some(number)) => [format!("*2\r\n:{number}\r\n").as_bytes(), rest].concat(),
        _ => bytes,
    }
}

impl Drop for StubServer {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.0.listener, rustix::net::Shutdown::Both).ok();
        for stream in self.0.streams.lock().values() {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

fn now() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as i64
}
