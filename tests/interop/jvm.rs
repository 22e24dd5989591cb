//! A JVM with Redisson in it, and the threads of it that do what a test says.
//!
//! The other end is `redisson/src/main/java/Driver.java`, which has the list of commands.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::kit::ms;

/// More than any command takes, the start of the JVM included.
const LIMIT: Duration = Duration::from_secs(120);

/// How long Redisson waits for a reply, as it does by default.
const TIMEOUT: Duration = Duration::from_secs(3);

/// What Redisson threw.
#[derive(Debug, PartialEq)]
pub(crate) struct Exception {
    /// The class, without its package.
    pub(crate) class: String,
    pub(crate) message: String,
}

type Answer = Result<String, Exception>;
type Asked = Arc<Mutex<HashMap<u64, Sender<Answer>>>>;

/// A JVM, killed by drop.
pub(crate) struct Jvm {
    process: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    asked: Asked,
    log: PathBuf,
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

fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Jvm {
    /// The JVM that all tests use which do not kill it.
    pub(crate) fn shared() -> Arc<Jvm> {
        static SHARED: OnceLock<Arc<Jvm>> = OnceLock::new();
        // It ends with its standard input, so it does not matter that nothing drops it.
        Arc::clone(SHARED.get_or_init(Jvm::start))
    }

    /// A JVM of one's own.
    pub(crate) fn start() -> Arc<Jvm> {
        let jar = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/interop/redisson/target")
            .join(version_text())
            .join("driver.jar");
        assert!(
            jar.exists(),
            "{} is missing; `make interop` builds it",
            jar.display()
        );
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "jvm-{}-{}.log",
            std::process::id(),
            unique()
        ));
        let mut process = Command::new("java")
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"])
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .args(
                std::env::var("JVM_OPTIONS")
                    .unwrap_or_default()
                    .split_whitespace(),
            )
            .arg("-jar")
            .arg(jar)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .expect("java is in the PATH; `make interop` installs it");
        let asked = Asked::default();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (ready, is_ready) = mpsc::channel();
        thread::spawn({
            let asked = Arc::clone(&asked);
            move || {
                for line in lines.map_while(Result::ok) {
                    if line == "ready" {
                        let _ = ready.send(());
                    } else {
                        pass_on(&line, &asked);
                    }
                }
                // Whoever still waits finds the channel closed.
                locked(&asked).clear();
            }
        });
        let jvm = Arc::new(Jvm {
            stdin: Mutex::new(process.stdin.take().unwrap()),
            process: Mutex::new(process),
            asked,
            log,
        });
        if is_ready.recv_timeout(LIMIT).is_err() {
            panic!("the JVM does not start: {}", jvm.said());
        }
        jvm
    }

    /// Ends it without a chance to say goodbye, and waits for its end.
    pub(crate) fn kill(&self) {
        let mut process = locked(&self.process);
        let _ = process.kill();
        let _ = process.wait();
    }

    /// What it has logged.
    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn ask(self: &Arc<Self>, words: &[&str]) -> Pending {
        let number = unique();
        let (sender, answer) = mpsc::channel();
        locked(&self.asked).insert(number, sender);
        let line = format!("{number}\t{}\n", words.join("\t"));
        // A JVM that was killed answers nothing.
        let _ = locked(&self.stdin).write_all(line.as_bytes());
        Pending {
            jvm: Arc::clone(self),
            what: words.join(" "),
            answer,
        }
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_file(&self.log);
    }
}

fn pass_on(line: &str, asked: &Asked) {
    let words: Vec<&str> = line.split('\t').collect();
    let Some(sender) = locked(asked).remove(&words[0].parse().unwrap_or(0)) else {
        return;
    };
    let _ = sender.send(match words[..] {
        [_, "ok", value] => Ok(value.to_owned()),
        [_, _, class, message] => Err(Exception {
            class: class.to_owned(),
            message: message.to_owned(),
        }),
        _ => panic!("an answer of another form: {line}"),
    });
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer to a command that may still run.
pub(crate) struct Pending {
    jvm: Arc<Jvm>,
    what: String,
    answer: Receiver<Answer>,
}

impl Pending {
    /// Waits for what Redisson returned or threw.
    #[track_caller]
    pub(crate) fn outcome(&self) -> Answer {
        match self.answer.recv_timeout(LIMIT) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{}: no answer; {}", self.what, self.jvm.said())
            }
            Err(RecvTimeoutError::Disconnected) => {
                panic!("{}: the JVM has ended; {}", self.what, self.jvm.said())
            }
        }
    }

    /// Waits for what Redisson returned.
    #[track_caller]
    pub(crate) fn value(&self) -> String {
        match self.outcome() {
            Ok(value) => value,
            Err(Exception { class, message }) => {
                panic!("{}: {class}: {message}; {}", self.what, self.jvm.said())
            }
        }
    }

    /// Whether it still runs after `time`.
    pub(crate) fn still_runs_after(&self, time: Duration) -> bool {
        matches!(
            self.answer.recv_timeout(time),
            Err(RecvTimeoutError::Timeout)
        )
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
        Redisson::made(jvm, Redisson::try_open(jvm, url, watchdog, TIMEOUT, ""))
    }

    /// Makes a client that waits for a reply no longer than `timeout`.
    #[track_caller]
    pub(crate) fn open_impatient(
        jvm: &Arc<Jvm>,
        url: &str,
        watchdog: Duration,
        timeout: Duration,
    ) -> Redisson {
        Redisson::made(jvm, Redisson::try_open(jvm, url, watchdog, timeout, ""))
    }

    #[track_caller]
    fn made(jvm: &Jvm, outcome: Result<Redisson, Exception>) -> Redisson {
        match outcome {
            Ok(client) => client,
            Err(Exception { class, message }) => panic!("{class}: {message}; {}", jvm.said()),
        }
    }

    /// Makes a client whose name mapper puts `prefix` before every name.
    pub(crate) fn open_with_prefix(
        jvm: &Arc<Jvm>,
        url: &str,
        watchdog: Duration,
        prefix: &str,
    ) -> Result<Redisson, Exception> {
        Redisson::try_open(jvm, url, watchdog, TIMEOUT, prefix)
    }

    fn try_open(
        jvm: &Arc<Jvm>,
        url: &str,
        watchdog: Duration,
        timeout: Duration,
        prefix: &str,
    ) -> Result<Redisson, Exception> {
        let name = format!("client{}", unique());
        let [watchdog, timeout] = [watchdog, timeout].map(|time| time.as_millis().to_string());
        jvm.ask(&[&name, "open", &name, url, &watchdog, &timeout, prefix])
            .outcome()?;
        Ok(Redisson {
            jvm: Arc::clone(jvm),
            name,
        })
    }

    /// The lock `name` as a thread of the JVM sees it that does nothing else.
    pub(crate) fn lock(&self, name: &str) -> JavaLock {
        self.thread().lock("plain", name)
    }

    /// A new thread of the JVM.
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
        // Its own thread closes it, so nobody need wait for it.
        drop(self.jvm.ask(&[&self.name, "close", &self.name]));
    }
}

/// A thread of the JVM, which does one thing after the other.
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

    /// Starts to add to `counter` under the lock `lock`, each time by one.
    pub(crate) fn start_count(&self, lock: &str, counter: &str, times: u32) -> Pending {
        let words = [&self.name, "count", &self.client, lock, counter];
        self.jvm.ask(&[&words[..], &[&times.to_string()]].concat())
    }
}

/// A lock of Redisson, in the hands of one thread of the JVM.
pub(crate) struct JavaLock {
    jvm: Arc<Jvm>,
    client: String,
    thread: String,
    kind: &'static str,
    name: String,
}

impl JavaLock {
    /// Starts an operation.
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

    /// `tryLock(wait, -1)`, under the watchdog.
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

    /// In ms; -2 if there is no such lock.
    #[track_caller]
    pub(crate) fn remain_time_to_live(&self) -> i64 {
        self.ask("remainTimeToLive")
    }

    /// The field under which its thread stands in the hash.
    #[track_caller]
    pub(crate) fn field(&self) -> String {
        self.jvm.ask(&[&self.thread, "owner", &self.client]).value()
    }
}

/// Fails unless `outcome` is what Redisson throws at a thread that does not hold the lock.
#[track_caller]
pub(crate) fn is_illegal_monitor_state(outcome: &Answer) {
    match outcome {
        Err(exception) if exception.class == "IllegalMonitorStateException" => {}
        other => panic!("an IllegalMonitorStateException was expected, not {other:?}"),
    }
}

/// A moment for what was just started to be on its way.
pub(crate) fn settle() {
    thread::sleep(ms(50));
}
