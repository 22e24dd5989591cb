//! One task that acquires a lock on several servers and releases it, with rslock or redlock.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use redlock::RedLock;
use rslock::LockManager;
use tokio::runtime::Runtime;

use crate::{cpu_time, say};

/// A call is abandoned this long after its timeout.
const GRACE: Duration = Duration::from_secs(5);

enum Peer {
    Rslock(Runtime, LockManager),
    Redlock(RedLock),
}

impl Peer {
    fn new(who: &str, urls: &[String]) -> Peer {
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        match who {
            "rslock" => {
                let runtime = Runtime::new().expect("a runtime");
                Peer::Rslock(runtime, LockManager::new(urls))
            }
            "redlock" => Peer::Redlock(RedLock::new(urls)),
            other => panic!("no such peer: {other}"),
        }
    }

    /// Acquires and releases the lock. Returns whether it was granted.
    fn pair(&self, name: &str, lease: Duration) -> bool {
        match self {
            Peer::Rslock(runtime, manager) => runtime.block_on(async {
                match manager.lock(name, lease).await {
                    Ok(lock) => {
                        lock.release().await;
                        true
                    }
                    Err(_) => false,
                }
            }),
            Peer::Redlock(redlock) => {
                match redlock.lock(name.as_bytes(), lease.as_millis() as usize) {
                    Ok(Some(lock)) => {
                        redlock.unlock(&lock);
                        true
                    }
                    _ => false,
                }
            }
        }
    }

    fn pairs(&self, name: &str, lease: Duration, slice: Duration, done: &Sender<(bool, Duration)>) {
        let end = Instant::now() + slice;
        let mut start = Instant::now();
        while start < end {
            let granted = self.pair(name, lease);
            let now = Instant::now();
            if done.send((granted, now - start)).is_err() {
                return;
            }
            start = now;
        }
    }
}

/// Executes `pairs NAME LEASE_MS MS`. Prints the CPU time in ns, the number of failed acquisitions, whether the last
/// one hangs, and the duration of each other one in ns.
pub(crate) fn act(who: &str, urls: &[String]) {
    let peer = Arc::new(Peer::new(who, urls));
    say(&[]);
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let ["pairs", name, lease, slice] = order.split(' ').collect::<Vec<_>>()[..] else {
            panic!("no such order: {order}")
        };
        let ms = |text: &str| Duration::from_millis(text.parse().expect("a number"));
        let (name, lease, slice) = (name.to_owned(), ms(lease), ms(slice));
        let (sender, done) = channel();
        let before = cpu_time();
        let given_up = Instant::now() + slice + GRACE;
        let worker = Arc::clone(&peer);
        thread::spawn(move || worker.pairs(&name, lease, slice, &sender));
        let mut said = vec![0, 0, 0];
        loop {
            match done.recv_timeout(given_up.saturating_duration_since(Instant::now())) {
                Ok((true, took)) => said.push(took.as_nanos() as u64),
                Ok((false, _)) => said[1] += 1,
                Err(error) => {
                    said[2] = u64::from(error == std::sync::mpsc::RecvTimeoutError::Timeout);
                    break;
                }
            }
        }
        said[0] = cpu_time() - before;
        say(&said);
    }
}
