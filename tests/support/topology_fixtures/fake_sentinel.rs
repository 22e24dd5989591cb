//! A sentinel that names any master it is given, rightly or wrongly.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::fake_server::{FakeServer, array, bulk};

/// Replies like a sentinel, and names the given server; dropping it cuts its connections.
pub struct FakeSentinel {
    server: FakeServer,
    shared: Arc<Shared>,
}

struct Shared {
    /// The master that it names, and the epoch of the failover that made it one.
    answer: Mutex<(SocketAddr, u64)>,
    asked: AtomicUsize,
}

impl FakeSentinel {
    /// Starts a sentinel that names `answer`, with the epoch 0.
    pub fn naming(answer: SocketAddr) -> FakeSentinel {
        FakeSentinel::naming_since(answer, 0)
    }

    /// Starts a sentinel that names `answer`, made master by the failover of this epoch.
    pub fn naming_since(answer: SocketAddr, epoch: u64) -> FakeSentinel {
        let shared = Arc::new(Shared {
            answer: Mutex::new((answer, epoch)),
            asked: AtomicUsize::new(0),
        });
        let telling = Arc::clone(&shared);
        FakeSentinel {
            server: FakeServer::start(move |words| telling.reply(words)),
            shared,
        }
    }

    /// The URL to give to a client.
    pub fn url(&self) -> String {
        format!("redis://{}", self.server.addr())
    }

    /// Names this server from now on.
    pub fn name(&self, answer: SocketAddr, epoch: u64) {
        let told = self.shared.answer.lock();
        *told.unwrap_or_else(PoisonError::into_inner) = (answer, epoch);
    }

    /// Cuts its connections and closes new ones at once, until [`FakeSentinel::speak`].
    pub fn hush(&self) {
        self.server.hush();
    }

    /// Lets it reply again.
    pub fn speak(&self) {
        self.server.speak();
    }

    /// How often it was asked for the master.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn reply(&self, words: &[String]) -> String {
        let word = |index: usize| words.get(index).map_or("", String::as_str);
        let (answer, epoch) = *self.answer.lock().unwrap_or_else(PoisonError::into_inner);
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
