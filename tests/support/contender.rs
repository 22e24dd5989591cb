//! Contenders: processes whose threads acquire a lock repeatedly and record it, and the results that their parent
//! collects.
//!
//! Only this file and `shop` use the crate under test in this folder.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Error, Guard, Lock};
use tempfile::TempDir;

use super::child::{arg, listen, say};
use super::history::{Overlap, Recorder, Summary, check};
use super::{Child, eventually, ms};

/// How long a contender may take to open its clients, to report its counts, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// One hold of a thread.
pub struct Visit<'a> {
    pub guard: &'a Guard,
    record: &'a Recorder,
    owner: &'a str,
}

impl Visit<'_> {
    /// Whether the hold is valid; the result is recorded.
    pub fn is_valid(&self) -> bool {
        self.record.check(self.owner, || self.guard.is_valid())
    }
}

/// The counts of a contender, or of all contenders of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub got: u64,
    /// Waits that ended without the lock.
    pub refused: u64,
    pub failed: u64,
    pub lost: u64,
    /// Grants with too few acknowledging replicas.
    pub unreplicated: u64,
    /// The grants of the thread with the fewest.
    pub least: u64,
    /// The longest wait for a grant, in ms.
    pub longest: u64,
}

impl Counts {
    /// Counts an error; an error after which no thread may continue fails the test.
    fn note(&mut self, error: &Error) {
        match error {
            Error::NotReplicated { .. } => self.unreplicated += 1,
            error if error.is_lost() => self.lost += 1,
            error => {
                assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
                self.failed += 1;
            }
        }
    }

    /// The sums of two counts.
    fn add(self, more: Counts) -> Counts {
        Counts {
            got: self.got + more.got,
            refused: self.refused + more.refused,
            failed: self.failed + more.failed,
            lost: self.lost + more.lost,
            unreplicated: self.unreplicated + more.unreplicated,
            least: self.least.min(more.least),
            longest: self.longest.max(more.longest),
        }
    }

    fn sum(all: impl IntoIterator<Item = Counts>) -> Counts {
        all.into_iter().reduce(Counts::add).unwrap_or_default()
    }

    fn words(&self) -> String {
        let Counts {
            got,
            refused,
            failed,
            lost,
            unreplicated,
            least,
            longest,
        } = self;
        format!("{got} {refused} {failed} {lost} {unreplicated} {least} {longest}")
    }

    fn of_words(words: &str) -> Counts {
        let numbers: Vec<u64> = words
            .split(' ')
            .map(|word| word.parse().expect("a number"))
            .collect();
        let [got, refused, failed, lost, unreplicated, least, longest] = numbers[..] else {
            panic!("seven numbers: {words}");
        };
        Counts {
            got,
            refused,
            failed,
            lost,
            unreplicated,
            least,
            longest,
        }
    }
}

/// In a contender: one thread for each of `locks` acquires it repeatedly until the parent ends it, each time for at
/// most `wait`, or without a limit. Under the lock it calls `visit` with the value of `begin` for its thread.
pub fn contend<T>(
    locks: Vec<Lock>,
    wait: Option<Duration>,
    begin: impl Fn() -> T + Sync,
    visit: impl Fn(&mut T, &Visit<'_>) + Sync,
) {
    let record = Recorder::open(&PathBuf::from(arg("RECORD")));
    let number = arg("NUMBER");
    let (is_over, got) = (AtomicBool::new(false), AtomicU64::new(0));
    let take_turns = |thread: usize, lock: Lock| {
        let mut own = begin();
        let mut counts = Counts::default();
        let owner = format!("{number}/{thread}");
        while !is_over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            record.invoke(&owner);
            let granted = match wait {
                Some(wait) => lock.try_guard_for(wait),
                None => lock.guard().map(Some),
            };
            match granted {
                Ok(Some(guard)) => {
                    record.returned(&owner);
                    let waited = begun.elapsed().as_millis() as u64;
                    counts.longest = counts.longest.max(waited);
                    counts.got += 1;
                    got.fetch_add(1, Ordering::Relaxed);
                    let one = Visit {
                        guard: &guard,
                        record: &record,
                        owner: &owner,
                    };
                    visit(&mut own, &one);
                    record.releasing(&owner, || guard.is_valid());
                    if let Err(error) = guard.unlock() {
                        counts.note(&error);
                    }
                    record.released(&owner);
                }
                Ok(None) => counts.refused += 1,
                Err(error) => {
                    counts.note(&error);
                    thread::sleep(ms(5));
                }
            }
        }
        counts.least = counts.got;
        counts
    };
    let counts = thread::scope(|scope| {
        let take_turns = &take_turns;
        let threads: Vec<_> = locks
            .into_iter()
            .enumerate()
            .map(|(thread, lock)| scope.spawn(move || take_turns(thread, lock)))
            .collect();
        say("open");
        while listen().is_some() {
            say(&format!("got {}", got.load(Ordering::Relaxed)));
        }
        is_over.store(true, Ordering::Relaxed);
        let counts = threads.into_iter().map(|thread| thread.join());
        Counts::sum(counts.map(|counts| counts.expect("no thread panics")))
    });
    say(&format!("closed {}", counts.words()));
}

/// The contenders as their parent sees them.
pub struct Contenders {
    records: TempDir,
    /// The running processes.
    pub running: Vec<Child>,
    /// How many were started so far.
    pub started: usize,
}

impl Contenders {
    /// None yet.
    pub fn none() -> Contenders {
        Contenders {
            records: tempfile::tempdir().expect("a temporary directory"),
            running: Vec::new(),
            started: 0,
        }
    }

    /// Starts another process in `role`, with environment variables, and waits until it has opened its clients.
    pub fn start(&mut self, role: &str, env: &[(&str, &str)]) {
        let number = self.started.to_string();
        let record = self.records.path().join(&number);
        let own = [
            ("RECORD", record.to_str().expect("a path of UTF-8")),
            ("NUMBER", &number),
        ];
        let contender = Child::spawn(role, &[env, &own[..]].concat());
        contender.expect_line("open", PATIENCE);
        self.running.push(contender);
        self.started += 1;
    }

    /// Kills the process that has run longest, without a chance to release.
    pub fn kill_one(&mut self) {
        self.running.remove(0).kill();
    }

    /// Waits until every running process has acquired again.
    #[track_caller]
    pub fn all_progress(&mut self, limit: Duration) {
        for contender in &mut self.running {
            let mut got = || -> u64 {
                contender.send_line("how often?");
                let said = contender.expect_line("got ", PATIENCE);
                said.trim_start_matches("got ").parse().expect("a number")
            };
            let before = got();
            eventually(limit, "every process gets it again", || got() > before);
        }
    }

    /// Ends all processes; returns their counts, and the result of checking all records.
    pub fn end(mut self) -> (Counts, Result<Summary, Overlap>) {
        let counts: Vec<Counts> = self
            .running
            .iter_mut()
            .map(|contender| {
                let status = contender.wait(PATIENCE);
                assert!(status.success(), "{status}");
                let said = contender.expect_line("closed ", PATIENCE);
                Counts::of_words(said.trim_start_matches("closed "))
            })
            .collect();
        let records: Vec<PathBuf> = (0..self.started)
            .map(|number| self.records.path().join(number.to_string()))
            .collect();
        (Counts::sum(counts), check(&records))
    }
}
