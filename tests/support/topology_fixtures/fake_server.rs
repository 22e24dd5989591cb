//! A server with scripted replies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::support::free_listener;

type Reply = dyn Fn(&[String]) -> String + Send + Sync;

/// Reads requests, and replies to each with the result of a function; dropping it cuts its connections.
pub struct FakeServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    reply: Box<Reply>,
    is_silent: AtomicBool,
    is_closed: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl FakeServer {
    /// Starts a server that replies to a request with the result of `reply`, in RESP.
    pub fn start(reply: impl Fn(&[String]) -> String + Send + Sync + 'static) -> FakeServer {
        let listener = free_listener();
        let addr = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            reply: Box::new(reply),
            is_silent: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if serving.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                if serving.is_silent.load(Ordering::SeqCst) {
                    continue;
                }
                let _ = stream.set_nodelay(true);
                if let Ok(twin) = stream.try_clone() {
                    serving
                        .connections
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(twin);
                }
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.talk(&stream));
            }
        });
        FakeServer { addr, shared }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Cuts its connections and closes new ones at once, until [`FakeServer::speak`].
    pub fn hush(&self) {
        self.shared.is_silent.store(true, Ordering::SeqCst);
        self.shared.cut();
    }

    /// Lets it reply again.
    pub fn speak(&self) {
        self.shared.is_silent.store(false, Ordering::SeqCst);
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.addr);
        self.shared.cut();
    }
}

impl Shared {
    fn cut(&self) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for stream in connections.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn talk(&self, mut stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(words) = request(&mut reader) {
            if stream.write_all((self.reply)(&words).as_bytes()).is_err() {
                return;
            }
        }
    }
}

pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

pub(super) fn array(texts: &[&str]) -> String {
    list(&texts.iter().map(|text| bulk(text)).collect::<Vec<_>>())
}

/// An array of RESP values.
pub(super) fn list(items: &[String]) -> String {
    format!("*{}\r\n{}", items.len(), items.concat())
}

/// The next request, an array of bulk strings.
fn request(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut line = String::new();
    let mut number = |reader: &mut dyn BufRead, sign| {
        line.clear();
        reader.read_line(&mut line).ok()?;
        line.trim_end().strip_prefix(sign)?.parse::<usize>().ok()
    };
    let count = number(reader, '*')?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(reader, '$')? + 2];
            reader.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            String::from_utf8(word).ok()
        })
        .collect()
}
