//! A JVM with Redisson, and its threads, which execute the calls of a test.
//!
//! The program is `redisson/src/main/java/Driver.java`, which lists the commands.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crate::driver::{Answer, Driver, Exception, Pending, unique};
use crate::support::ms;

/// How long Redisson waits for a reply, its default.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The mode of a client of one server.
const SINGLE: &str = "single";

/// The mode of a client of a cluster.
pub(crate) const CLUSTER: &str = "cluster";

/// A JVM, killed by drop.
pub(crate) struct Jvm {
    driver: Arc<Driver>,
}

/// The version of Redisson under test.
pub(crate) fn version() -> (u32, u32) {
    let text = version_text();
    let mut numbers = text.split('.').map(|part| part.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn version_text() -> String {
    std::env::var("REDISSON")
        .expect("REDISSON names the version to test against; `make interop` sets it")
}

impl Jvm {
    /// The JVM shared by all tests that do not kill it.
    pub(crate) fn shared() -> Arc<Jvm> {
        static SHARED: OnceLock<Arc<Jvm>> = OnceLock::new();
        // It ends with its standard input, so nothing has to drop it.
        Arc::clone(SHARED.get_or_init(Jvm::start))
    }

    /// A private JVM.
    pub(crate) fn start() -> Arc<Jvm> {
        // It lives for minutes with little work.
        let small = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"];
        Jvm::start_version(&version_text(), &small)
    }

    /// A JVM with this version of Redisson, and only these options.
    pub(crate) fn start_version(version: &str, options: &[&str]) -> Arc<Jvm> {
        let jar = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/interop/redisson/target")
            .join(version)
            .join("driver.jar");
        let mut java = Command::new("java");
        java.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .args(options)
            .args(
                std::env::var("JVM_OPTIONS")
                    .unwrap_or_default()
                    .split_whitespace(),
            )
            .arg("-jar")
            .arg(&jar);
        Arc::new(Jvm {
            driver: Driver::start("jvm", &jar, java),
        })
    }

    /// Kills it, and waits for its end.
    pub(crate) fn kill(&self) {
        self.driver.kill();
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Pending {
        self.driver.ask(words)
    }
}

/// A Redisson client, closed by drop.
pub(crate) struct Redisson {
    jvm: Arc<Jvm>,
    name: String,
}

impl Redisson {
    /// Makes a client of the server at `url`.
    #[track_caller]
    pub(crate) fn open(jvm: &Arc<Jvm>, url: &str, watchdog: Duration) -> Redisson {
        let outcome = Redisson::try_open(jvm, SINGLE, url, watchdog, TIMEOUT, "");
        Redisson::made(jvm, outcome)
    }

    /// Makes a client of a cluster, for `mode` [`CLUSTER`], or else of the master with this name in the sentinels.
    #[track_caller]
    pub(crate) fn open_set(
        jvm: &Arc<Jvm>,
        mode: &str,
        urls: &[String],
        watchdog: Duration,
    ) -> Redisson {
        let outcome = Redisson::try_open(jvm, mode, &urls.join(" "), watchdog, TIMEOUT, "");
        Redisson::made(jvm, outcome)
    }

    /// Makes a client with this response timeout.
    #[track_caller]
    pub(crate) fn open_impatient(
        jvm: &Arc<Jvm>,
        url: &str,
        watchdog: Duration,
        timeout: Duration,
    ) -> Redisson {
        let outcome = Redisson::try_open(jvm, SINGLE, url, watchdog, timeout, "");
        Redisson::made(jvm, outcome)
    }

    #[track_caller]
    fn made(jvm: &Jvm, outcome: Result<Redisson, Exception>) -> Redisson {
        match outcome {
            Ok(client) => client,
            Err(Exception { class, message }) => {
                panic!("{class}: {message}; {}", jvm.driver.said())
            }
        }
    }

    /// Makes a client whose name mapper prefixes every name with `prefix`.
    pub(crate) fn open_with_prefix(
        jvm: &Arc<Jvm>,
        url: &str,
        watchdog: Duration,
        prefix: &str,
    ) -> Result<Redisson, Exception> {
        Redisson::try_open(jvm, SINGLE, url, watchdog, TIMEOUT, prefix)
    }

    fn try_open(
        jvm: &Arc<Jvm>,
        mode: &str,
        urls: &str,
        watchdog: Duration,
        timeout: Duration,
        prefix: &str,
    ) -> Result<Redisson, Exception> {
        let name = format!("client{}", unique());
        let [watchdog, timeout] = [watchdog, timeout].map(|time| time.as_millis().to_string());
        let words = [
            &name, "open", &name, mode, urls, &watchdog, &timeout, prefix,
        ];
        jvm.ask(&words).outcome()?;
        Ok(Redisson {
            jvm: Arc::clone(jvm),
            name,
        })
    }

    /// The lock `name`, in a dedicated thread of the JVM.
    pub(crate) fn lock(&self, name: &str) -> JavaLock {
        self.thread().lock("plain", name)
    }

    /// An operation of the latch `name`, in a dedicated thread of the JVM.
    pub(crate) fn latch(&self, name: &str, operation: &str, words: &[&str]) -> Pending {
        self.count("latch", name, operation, words)
    }

    /// An operation of the semaphore `name`, in a dedicated thread of the JVM.
    pub(crate) fn semaphore(&self, name: &str, operation: &str, words: &[&str]) -> Pending {
        self.count("semaphore", name, operation, words)
    }

    /// An operation of the semaphore with ids `name`, in a dedicated thread of the JVM.
    pub(crate) fn permits(&self, name: &str, operation: &str, words: &[&str]) -> Pending {
        self.count("permits", name, operation, words)
    }

    fn count(&self, kind: &str, name: &str, operation: &str, words: &[&str]) -> Pending {
        let thread = format!("thread{}", unique());
        let place = [&thread, kind, &self.name, name, operation];
        self.jvm.ask(&[&place[..], words].concat())
    }

    pub(crate) fn thread(&self) -> JavaThread {
        JavaThread {
            jvm: Arc::clone(&self.jvm),
            client: self.name.clone(),
            name: format!("thread{}", unique()),
        }
    }
}

impl Drop for Redisson {
    fn drop(&mut self) {
        // A separate thread closes it, so nothing waits for the reply.
        drop(self.jvm.ask(&[&self.name, "close", &self.name]));
    }
}

/// A thread of the JVM, which runs its commands in order.
pub(crate) struct JavaThread {
    jvm: Arc<Jvm>,
    client: String,
    name: String,
}

impl JavaThread {
    /// The lock `name`; `kind` is `plain`, `read`, `write`, `fair`, `spin` or `fenced`.
    pub(crate) fn lock(&self, kind: &'static str, name: &str) -> JavaLock {
        JavaLock {
            jvm: Arc::clone(&self.jvm),
            client: self.client.clone(),
            thread: self.name.clone(),
            kind,
            name: name.to_owned(),
        }
    }

    /// Starts to increment `counter`, on the same server as `other`, under the lock `lock`.
    pub(crate) fn start_count(
        &self,
        lock: &str,
        other: &Redisson,
        counter: &str,
        times: u32,
    ) -> Pending {
        let words = [
            &self.name,
            "count",
            &self.client,
            lock,
            &other.name,
            counter,
        ];
        self.jvm.ask(&[&words[..], &[&times.to_string()]].concat())
    }
}

/// A lock of Redisson, used by one thread of the JVM.
pub(crate) struct JavaLock {
    jvm: Arc<Jvm>,
    client: String,
    thread: String,
    kind: &'static str,
    name: String,
}

impl JavaLock {
    pub(crate) fn start(&self, operation: &str, words: &[&str]) -> Pending {
        let place = [&self.thread, operation, &self.client, self.kind, &self.name];
        self.jvm.ask(&[&place[..], words].concat())
    }

    #[track_caller]
    fn ask<T: FromStr>(&self, operation: &str) -> T {
        let value = self.start(operation, &[]).value();
        let Ok(value) = value.parse() else {
            panic!("{operation} returned {value}")
        };
        value
    }

    #[track_caller]
    pub(crate) fn lock(&self) {
        self.start("lock", &[]).value();
    }

    #[track_caller]
    pub(crate) fn lock_for(&self, lease: Duration) {
        let lease = lease.as_millis().to_string();
        self.start("lockFor", &[&lease]).value();
    }

    /// `tryLock(wait, -1)`, renewed by the watchdog.
    #[track_caller]
    pub(crate) fn try_lock(&self, wait: Duration) -> bool {
        let wait = wait.as_millis().to_string();
        self.start("tryLock", &[&wait, "-1"]).value() == "true"
    }

    pub(crate) fn try_unlock(&self) -> Answer {
        self.start("unlock", &[]).outcome()
    }

    #[track_caller]
    pub(crate) fn unlock(&self) {
        self.start("unlock", &[]).value();
    }

    /// Acquires a fenced lock, and returns the token of the hold.
    #[track_caller]
    pub(crate) fn lock_and_get_token(&self) -> u64 {
        self.ask("lockAndGetToken")
    }

    /// The last token of a fenced lock.
    #[track_caller]
    pub(crate) fn token(&self) -> u64 {
        self.ask("getToken")
    }

    #[track_caller]
    pub(crate) fn force_unlock(&self) -> bool {
        self.ask("forceUnlock")
    }

    #[track_caller]
    pub(crate) fn is_locked(&self) -> bool {
        self.ask("isLocked")
    }

    #[track_caller]
    pub(crate) fn is_held(&self) -> bool {
        self.ask("isHeldByCurrentThread")
    }

    #[track_caller]
    pub(crate) fn hold_count(&self) -> u32 {
        self.ask("getHoldCount")
    }

    /// The TTL in ms; -2 if there is no such lock.
    #[track_caller]
    pub(crate) fn remain_time_to_live(&self) -> i64 {
        self.ask("remainTimeToLive")
    }

    /// The field of its thread in the hash.
    #[track_caller]
    pub(crate) fn field(&self) -> String {
        self.jvm.ask(&[&self.thread, "owner", &self.client]).value()
    }
}

/// Panics unless `outcome` is Redisson's exception for a thread that does not hold the lock.
#[track_caller]
pub(crate) fn is_illegal_monitor_state(outcome: &Answer) {
    match outcome {
        Err(exception) if exception.class == "IllegalMonitorStateException" => {}
        other => panic!("an IllegalMonitorStateException was expected, not {other:?}"),
    }
}

/// Waits a moment, until what was just started has been sent.
pub(crate) fn settle() {
    thread::sleep(ms(50));
}
