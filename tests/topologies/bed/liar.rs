//! A sentinel that says what it is told to, true or not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::kit::free_port;

/// Answers as a sentinel does, and names the server that it is told to; drop cuts its connections.
pub struct Liar {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// The master that it names, and the epoch of the failover that made it one.
    answer: Mutex<(SocketAddr, u64)>,
    is_silent: AtomicBool,
    asked: AtomicUsize,
    is_closed: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl Liar {
    /// Starts a sentinel that names `answer`, with the epoch 0.
    pub fn naming(answer: SocketAddr) -> Liar {
        Liar::naming_since(answer, 0)
    }

    /// Starts a sentinel that names `answer`, made master by the failover of this epoch.
    pub fn naming_since(answer: SocketAddr, epoch: u64) -> Liar {
        let listener = TcpListener::bind(("127.0.0.1", free_port())).expect("a free port");
        let addr = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            answer: Mutex::new((answer, epoch)),
            is_silent: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
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
        Liar { addr, shared }
    }

    /// The URL to give to a client.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Lets it name this server from now on.
    pub fn name(&self, answer: SocketAddr, epoch: u64) {
        let mut told = self.shared.answer.lock();
        *told.as_deref_mut().expect("nobody panics with it") = (answer, epoch);
    }

    /// Cuts its connections and closes new ones at once, until it [speaks](Liar::speak).
    pub fn hush(&self) {
        self.shared.is_silent.store(true, Ordering::SeqCst);
        self.shared.cut();
    }

    /// Lets it answer again.
    pub fn speak(&self) {
        self.shared.is_silent.store(false, Ordering::SeqCst);
    }

    /// How often it was asked for the master.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Liar {
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
            if stream.write_all(self.reply(&words).as_bytes()).is_err() {
                return;
            }
        }
    }

    fn reply(&self, words: &[String]) -> String {
        let word = |index: usize| words.get(index).map_or("", String::as_str);
        let (answer, epoch) = *self.answer.lock().expect("nobody panics with it");
        let (ip, port) = (answer.ip().to_string(), answer.port().to_string());
        match (
            &*word(0).to_ascii_lowercase(),
            &*word(1).to_ascii_lowercase(),
        ) {
            ("sentinel", "get-master-addr-by-name") => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                array(&[&ip, &port])
            }
            ("sentinel", "master") => array(&[
                "name",
                word(2),
                "ip",
                &ip,
                "port",
                &port,
                "flags",
                "master",
                "role-reported",
                "master",
                "config-epoch",
                &epoch.to_string(),
                "num-slaves",
                "0",
                "quorum",
                "2",
            ]),
            ("sentinel", _) => "*0\r\n".into(),
            ("role", _) => format!("*2\r\n{}{}", bulk("sentinel"), array(&["shop"])),
            ("ping", _) => "+PONG\r\n".into(),
            ("hello", _) => "-NOPROTO unsupported protocol version\r\n".into(),
            (verb @ ("subscribe" | "psubscribe"), _) => words[1..]
                .iter()
                .zip(1..)
                .map(|(channel, count)| {
                    format!("*3\r\n{}{}:{count}\r\n", bulk(verb), bulk(channel))
                })
                .collect(),
            _ => "+OK\r\n".into(),
        }
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn array(texts: &[&str]) -> String {
    let items: String = texts.iter().map(|text| bulk(text)).collect();
    format!("*{}\r\n{items}", texts.len())
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
