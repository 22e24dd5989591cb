//! The commands that the server really received, from `MONITOR`.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{RedisServer, ms};

/// The time that a responsive server needs to catch up; with a frozen one [`Monitor::lines`] waits this long in vain.
const CATCH_UP: Duration = ms(1000);

/// Collects every command a server runs, from its start until its drop.
pub struct Monitor {
    addr: SocketAddr,
    stream: TcpStream,
    seen: Arc<Seen>,
    marks: AtomicU64,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

impl Monitor {
    /// Starts to collect; commands sent after this call are seen.
    pub fn start(server: &RedisServer) -> Self {
        let addr = server.addr();
        let stream = TcpStream::connect(addr).expect("the server accepts a monitor");
        (&stream)
            .write_all(b"MONITOR\r\n")
            .expect("MONITOR can be sent");
        let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
        let answer = lines.next().and_then(Result::ok);
        assert_eq!(answer.as_deref(), Some("+OK"), "the answer to MONITOR");
        let seen = Arc::new(Seen::default());
        let collected = seen.clone();
        let reader = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                collected
                    .lock()
                    .push(line.trim_start_matches('+').to_string());
                collected.more.notify_all();
            }
        });
        Self {
            addr,
            stream,
            seen,
            marks: AtomicU64::new(0),
            reader: Some(reader),
        }
    }

    /// Every line so far, such as `1700000000.123456 [0 127.0.0.1:40000] "GET" "key"`; commands of scripts have `lua`
    /// in place of the address.
    ///
    /// It includes everything that the server has run before this call.
    pub fn lines(&self) -> Vec<String> {
        self.catch_up();
        self.seen.lock().clone()
    }

    /// The lines which contain `needle`.
    pub fn lines_containing(&self, needle: &str) -> Vec<String> {
        self.lines()
            .into_iter()
            .filter(|line| line.contains(needle))
            .collect()
    }

    /// Drops all lines so far.
    pub fn clear(&self) {
        self.catch_up();
        self.seen.lock().clear();
    }

    /// The server feeds monitors with a delay, so our own marker proves that nothing before it is missing.
    fn catch_up(&self) {
        let mark = format!(
            "support-monitor-mark-{}",
            self.marks.fetch_add(1, Ordering::Relaxed)
        );
        let Ok(mut stream) = TcpStream::connect(self.addr) else {
            return;
        };
        if stream
            .write_all(format!("ECHO {mark}\r\n").as_bytes())
            .is_err()
        {
            return;
        }
        let quoted = format!("\"{mark}\"");
        let absent = |lines: &mut Vec<String>| !lines.iter().any(|line| line.ends_with(&quoted));
        let waited = self
            .seen
            .more
            .wait_timeout_while(self.seen.lock(), CATCH_UP, absent);
        waited
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .retain(|line| !line.ends_with(&quoted));
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
