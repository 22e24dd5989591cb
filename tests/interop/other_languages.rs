//! Programs in Python and Go, and their threads, which execute the calls of a test with the locks of their libraries.
//!
//! The programs are `python/driver.py` and `go/main.go`, which list the commands.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::driver::{Answer, Driver, Pending, unique};

#[derive(Clone, Copy)]
enum Language {
    Python,
    Go,
}

/// A library, and how it is used.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    language: Language,
    kind: &'static str,
    /// The number of servers of its locks.
    pub(crate) servers: usize,
    /// The errors of extend and of unlock for a lost lock; `None` where there is no extend, or no error.
    pub(crate) gone: (Option<&'static str>, Option<&'static str>),
    /// The exception of an unlock while another client holds the lock.
    pub(crate) taken: Option<&'static str>,
}

/// The `Lock` of redis-py.
pub(crate) const REDIS_PY: Peer = Peer {
    language: Language::Python,
    kind: "redis-py",
    servers: 1,
    gone: (Some("LockNotOwnedError"), Some("LockNotOwnedError")),
    taken: Some("LockNotOwnedError"),
};

/// Redsync, with a pool for each server.
pub(crate) const REDSYNC: Peer = Peer {
    language: Language::Go,
    kind: "redsync",
    servers: 1,
    gone: (Some("ErrTaken"), Some("ErrLockAlreadyExpired")),
    taken: Some("ErrTaken"),
};

/// The `Redlock` of redlock-py, whose unlock returns nothing.
pub(crate) const REDLOCK_PY: Peer = Peer {
    language: Language::Python,
    kind: "redlock-py",
    servers: 5,
    gone: (None, None),
    taken: None,
};

impl Language {
    fn start(self) -> Arc<Driver> {
        let built = PathBuf::from(
            std::env::var("FOREIGN")
                .expect("FOREIGN is where the drivers were built; `make interop` sets it"),
        );
        match self {
            Language::Python => {
                let python = built.join("python/bin/python");
                let mut command = Command::new(&python);
                command.arg(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/tests/interop/python/driver.py"
                ));
                Driver::start("python", &python, command)
            }
            Language::Go => {
                let driver = built.join("go/driver");
                Driver::start("go", &driver, Command::new(&driver))
            }
        }
    }

    fn shared(self) -> Arc<Driver> {
        static PYTHON: OnceLock<Arc<Driver>> = OnceLock::new();
        static GO: OnceLock<Arc<Driver>> = OnceLock::new();
        let shared = match self {
            Language::Python => &PYTHON,
            Language::Go => &GO,
        };
        // It ends with its standard input, so nothing has to drop it.
        Arc::clone(shared.get_or_init(|| self.start()))
    }
}

/// Redsync with its locks on five servers.
pub(crate) const REDSYNC_OF_FIVE: Peer = Peer {
    servers: 5,
    ..REDSYNC
};

impl Peer {
    pub(crate) fn extends(&self) -> bool {
        self.gone.0.is_some()
    }

    /// Its name in a report.
    pub(crate) fn name(&self) -> String {
        match self.servers {
            1 => self.kind.to_owned(),
            many => format!("{} on {many} servers", self.kind),
        }
    }

    /// A client of the servers at `urls`, in a process shared by all tests.
    pub(crate) fn open(self, urls: &[String]) -> Foreign {
        self.open_in(self.language.shared(), urls)
    }

    /// A client in its own process, which can be killed.
    pub(crate) fn open_alone(self, urls: &[String]) -> Foreign {
        self.open_in(self.language.start(), urls)
    }

    fn open_in(self, driver: Arc<Driver>, urls: &[String]) -> Foreign {
        let client = format!("client{}", unique());
        let mut words = vec![&*client, "open", &client, self.kind];
        words.extend(urls.iter().map(String::as_str));
        driver.ask(&words).value();
        Foreign { driver, client }
    }
}

/// A client of another library, closed by drop.
pub(crate) struct Foreign {
    driver: Arc<Driver>,
    client: String,
}

impl Foreign {
    /// The lock `name`, in a new thread of the program.
    pub(crate) fn lock(&self, name: &str) -> ForeignLock {
        ForeignLock {
            driver: Arc::clone(&self.driver),
            client: self.client.clone(),
            thread: format!("thread{}", unique()),
            name: name.to_owned(),
        }
    }

    /// Kills the process.
    pub(crate) fn kill(&self) {
        self.driver.kill();
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // A separate thread closes it, so nothing waits for the reply.
        drop(self.driver.ask(&[&self.client, "close", &self.client]));
    }
}

/// A lock of another library, used by one thread of its program.
pub(crate) struct ForeignLock {
    driver: Arc<Driver>,
    client: String,
    thread: String,
    name: String,
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

impl ForeignLock {
    fn start(&self, operation: &str, words: &[&str]) -> Pending {
        let place = [&*self.thread, operation, &self.client, &self.name];
        self.driver.ask(&[&place[..], words].concat())
    }

    /// Starts to acquire it for `lease`, with the timeout `wait`.
    pub(crate) fn start_lock(&self, lease: Duration, wait: Duration) -> Pending {
        self.start("lock", &[&millis(lease), &millis(wait)])
    }

    /// Acquires it for `lease`, where 0 means no end; false if it was not free within `wait`.
    #[track_caller]
    pub(crate) fn lock(&self, lease: Duration, wait: Duration) -> bool {
        self.start_lock(lease, wait).value() == "true"
    }

    /// A single attempt to acquire it.
    #[track_caller]
    pub(crate) fn try_lock(&self, lease: Duration) -> bool {
        self.lock(lease, Duration::ZERO)
    }

    pub(crate) fn try_unlock(&self) -> Answer {
        self.start("unlock", &[]).outcome()
    }

    #[track_caller]
    pub(crate) fn unlock(&self) {
        self.start("unlock", &[]).value();
    }

    pub(crate) fn try_extend(&self, lease: Duration) -> Answer {
        self.start("extend", &[&millis(lease)]).outcome()
    }

    #[track_caller]
    pub(crate) fn is_owned(&self) -> bool {
        self.start("owned", &[]).value() == "true"
    }

    #[track_caller]
    pub(crate) fn is_locked(&self) -> bool {
        self.start("locked", &[]).value() == "true"
    }

    #[track_caller]
    pub(crate) fn token(&self) -> String {
        self.start("token", &[]).value()
    }

    /// Starts to increment `counter` on the server at `url` under the lock.
    pub(crate) fn start_count(
        &self,
        lease: Duration,
        url: &str,
        counter: &str,
        times: u32,
    ) -> Pending {
        let lease = millis(lease);
        self.start("count", &[&lease, url, counter, &times.to_string()])
    }
}
