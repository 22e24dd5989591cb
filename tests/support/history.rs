//! Who believed to hold a lock, and when: a record for each process, and the check that no two beliefs overlap.
//!
//! A line is written before the act it announces, so a process that is killed leaves a record that can be used.
//! Time is the kernel's, common to all processes of a machine, and does not stop while the machine sleeps.
//!
//! | line              | written                                        | effect on the hold of the owner              |
//! |-------------------|------------------------------------------------|----------------------------------------------|
//! | `invoke`          | before it asks for the lock                    | none, the outcome is not known yet           |
//! | `return`          | after it has got the lock                      | starts, or nests                             |
//! | `valid`           | after a check, with the instant before it      | was held at that instant                     |
//! | `lost`            | when it has learnt of the loss                 | ended at the last `valid`, else at its start |
//! | `release-invoke`  | before it gives the lock back                  | ends, when it is the outermost               |
//! | `release-return`  | after it has given it back                     | none                                         |
//!
//! The hold of a process that ends without a release counts up to its last `return` or `valid`.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

/// Writes the record of one process about one lock; threads share it.
pub struct Recorder {
    file: File,
}

impl Recorder {
    /// Appends to the record at `path`, one file per process and lock.
    pub fn open(path: &Path) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .expect("the record can be written");
        Self { file }
    }

    /// `owner` is about to request the lock; owners are unique over all records, such as `pid/thread`.
    pub fn invoke(&self, owner: &str) {
        self.write(now(), "invoke", owner);
    }

    /// `owner` has acquired the lock.
    pub fn returned(&self, owner: &str) {
        self.write(now(), "return", owner);
    }

    /// Checks whether `owner` still holds the lock and records the result.
    pub fn check(&self, owner: &str, is_valid: impl FnOnce() -> bool) -> bool {
        let before = now();
        let valid = is_valid();
        self.write(before, if valid { "valid" } else { "lost" }, owner);
        valid
    }

    /// `owner` has noticed that the lock is lost.
    pub fn lost(&self, owner: &str) {
        self.write(now(), "lost", owner);
    }

    /// `owner` is about to release the lock; a hold that is no longer valid is recorded as lost.
    pub fn releasing(&self, owner: &str, is_valid: impl FnOnce() -> bool) {
        let before = now();
        self.write(
            before,
            if is_valid() { "release-invoke" } else { "lost" },
            owner,
        );
    }

    /// `owner` has released the lock.
    pub fn released(&self, owner: &str) {
        self.write(now(), "release-return", owner);
    }

    fn write(&self, at: u64, event: &str, owner: &str) {
        // A single write per line keeps the lines of threads apart.
        (&self.file)
            .write_all(format!("{at} {event} {owner}\n").as_bytes())
            .expect("the record can be written");
    }
}

/// Nanoseconds on a clock shared by all processes.
pub fn now() -> u64 {
    // Elsewhere the monotonic clock includes sleep, or there is no better one.
    let clock = if cfg!(target_os = "linux") {
        BOOT
    } else {
        ClockId::Monotonic
    };
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).expect("time since boot") * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(target_os = "linux")]
const BOOT: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT: ClockId = ClockId::Monotonic;

/// The result of checking a record; check the counts too, because an empty record is clean.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Granted holds; nested ones count once.
    pub holds: usize,
    pub owners: usize,
    /// Requests without a reply: refused, timed out or cut off by the end of the process.
    pub unanswered: usize,
    pub lost: usize,
}

/// A time during which an owner considered the lock held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The owner.
    pub owner: String,
    pub start: u64,
    pub end: u64,
}

/// Two owners that both considered the lock held at the same time.
#[derive(Debug, PartialEq, Eq)]
pub struct Overlap {
    pub first: Hold,
    pub second: Hold,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = (&self.first, &self.second);
        let micros = (first.end.min(second.end) - second.start) / 1000;
        write!(
            f,
            "{} and {} both held the lock for {micros} us from {}",
            first.owner, second.owner, second.start
        )
    }
}

/// Checks that the holds of different owners are disjoint.
///
/// # Errors
///
/// The first [`Overlap`] in time.
///
/// # Panics
///
/// When a record cannot be read.
pub fn check(files: &[PathBuf]) -> Result<Summary, Overlap> {
    let mut summary = Summary::default();
    let mut holds = Vec::new();
    for path in files {
        let text =
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        collect(&text, &mut summary, &mut holds);
    }
    holds.sort_by_key(|hold| (hold.start, hold.end));
    summary.holds = holds.len();
    summary.owners = holds
        .iter()
        .map(|hold| &hold.owner)
        .collect::<BTreeSet<_>>()
        .len();
    // Comparing with the hold that ends last is sufficient: any other open hold overlaps it, and was found.
    let mut last: Option<Hold> = None;
    for hold in holds {
        match &last {
            Some(first) if hold.start < first.end && hold.owner != first.owner => {
                return Err(Overlap {
                    first: first.clone(),
                    second: hold,
                });
            }
            Some(first) if hold.end <= first.end => {}
            _ => last = Some(hold),
        }
    }
    Ok(summary)
}

/// The open hold of an owner.
struct Open {
    depth: usize,
    start: u64,
    /// The last instant at which it was certainly held.
    sure: u64,
}

fn collect(text: &str, summary: &mut Summary, holds: &mut Vec<Hold>) {
    let mut open: HashMap<&str, Open> = HashMap::new();
    let mut asked: HashMap<&str, usize> = HashMap::new();
    // A process killed during a write leaves an incomplete last line.
    for line in text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
    {
        let mut words = line.splitn(3, ' ');
        let at = words.next().and_then(|word| word.parse().ok());
        let (Some(at), Some(event), Some(owner)) = (at, words.next(), words.next()) else {
            panic!("not a line of a record: {line:?}");
        };
        let mut close = |hold: Open, end: u64| {
            holds.push(Hold {
                owner: owner.to_string(),
                start: hold.start,
                end,
            })
        };
        match event {
            "invoke" => *asked.entry(owner).or_default() += 1,
            "return" => {
                asked
                    .entry(owner)
                    .and_modify(|count| *count = count.saturating_sub(1));
                let hold = open.entry(owner).or_insert(Open {
                    depth: 0,
                    start: at,
                    sure: at,
                });
                hold.depth += 1;
                hold.sure = at;
            }
            "valid" => {
                // A successful check before the hold began proves nothing about the hold.
                open.entry(owner)
                    .and_modify(|hold| hold.sure = hold.sure.max(at));
            }
            "lost" => {
                if let Some(hold) = open.remove(owner) {
                    summary.lost += 1;
                    let end = hold.sure;
                    close(hold, end);
                }
            }
            "release-invoke" => {
                if let Some(mut hold) = open.remove(owner) {
                    hold.depth -= 1;
                    if hold.depth == 0 {
                        close(hold, at);
                    } else {
                        open.insert(owner, hold);
                    }
                }
            }
            "release-return" => {}
            _ => panic!("not a line of a record: {line:?}"),
        }
    }
    summary.unanswered += asked.values().sum::<usize>();
    for (owner, hold) in open {
        holds.push(Hold {
            owner: owner.to_string(),
            start: hold.start,
            end: hold.sure,
        });
    }
}
