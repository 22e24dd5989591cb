//! A program in another language that executes the lock calls of a test.
//!
//! A command is a line on its standard input, `number thread command word...`, separated by tabs. The reply is a line
//! on its standard output, `number ok value` or `number failed exception message`. Each thread of the program runs its
//! commands in order. The program prints `ready` first, and ends with its standard input.
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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Longer than any command takes, including the start of the program.
const LIMIT: Duration = Duration::from_secs(120);

/// The exception of the other library.
#[derive(Debug, PartialEq)]
pub(crate) struct Exception {
    /// The class name, without its package.
    pub(crate) class: String,
    pub(crate) message: String,
}

pub(crate) type Answer = Result<String, Exception>;
type Asked = Arc<Mutex<HashMap<u64, Sender<Answer>>>>;

/// The process, killed by drop.
pub(crate) struct Driver {
    name: &'static str,
    process: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    asked: Asked,
    log: PathBuf,
}

/// A number that is unique in this process.
pub(crate) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Driver {
    /// Starts `command`, which needs the file `built`, and waits until it is ready.
    pub(crate) fn start(name: &'static str, built: &Path, mut command: Command) -> Arc<Driver> {
        assert!(
            built.exists(),
            "{} is missing; `make interop` builds it",
            built.display()
        );
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "{name}-{}-{}.log",
            std::process::id(),
            unique()
        ));
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}; `make interop` installs it"));
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
                // Pending calls then find their channel closed.
                locked(&asked).clear();
            }
        });
        let driver = Arc::new(Driver {
            name,
            stdin: Mutex::new(process.stdin.take().unwrap()),
            process: Mutex::new(process),
            asked,
            log,
        });
        if is_ready.recv_timeout(LIMIT).is_err() {
            panic!("the {name} driver does not start: {}", driver.said());
        }
        driver
    }

    /// Kills it, and waits for its end.
    pub(crate) fn kill(&self) {
        let mut process = locked(&self.process);
        let _ = process.kill();
        let _ = process.wait();
    }

    /// The program's log.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn ask(self: &Arc<Self>, words: &[&str]) -> Pending {
        let number = unique();
        let (sender, answer) = mpsc::channel();
        locked(&self.asked).insert(number, sender);
        let line = format!("{number}\t{}\n", words.join("\t"));
        // A killed driver cannot be written to.
        let _ = locked(&self.stdin).write_all(line.as_bytes());
        Pending {
            driver: Arc::clone(self),
            what: words.join(" "),
            answer,
        }
    }
}

impl Drop for Driver {
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

/// The reply to a command that may still run.
pub(crate) struct Pending {
    driver: Arc<Driver>,
    what: String,
    answer: Receiver<Answer>,
}

impl Pending {
    /// Waits for the returned value or the exception.
    #[track_caller]
    pub(crate) fn outcome(&self) -> Answer {
        let name = self.driver.name;
        let said = || self.driver.said();
        match self.answer.recv_timeout(LIMIT) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => panic!("{}: no answer; {}", self.what, said()),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("{}: the {name} driver has ended; {}", self.what, said())
            }
        }
    }

    /// Waits for the returned value.
    #[track_caller]
    pub(crate) fn value(&self) -> String {
        match self.outcome() {
            Ok(value) => value,
            Err(Exception { class, message }) => {
                panic!("{}: {class}: {message}; {}", self.what, self.driver.said())
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
