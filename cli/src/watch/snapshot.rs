//! The looks at a place, one after the other, in a thread of their own: a server that is slow holds up no key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, unbounded};
use redlatch::LockInfo;

use crate::connect::Backend;
use crate::errors::{Failure, message_of};

/// More locks are no table for people.
const MOST: usize = 10_000;

/// What was seen at one moment.
pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) clock: SystemTime,
    pub(super) took: Duration,
    /// The locks, called as they are called here.
    pub(super) locks: Vec<LockInfo>,
    /// The servers that did not tell, and what they said.
    pub(super) unreachable: BTreeMap<String, String>,
    /// Whether a lock that is not here is held by nobody.
    pub(super) is_complete: bool,
    /// Why the last of those did not.
    failure: Option<Failure>,
    /// How long the least request took.
    pub(super) round_trip: Option<Duration>,
}

impl Snapshot {
    /// When it began; what was told is at least as new.
    pub(super) fn begun(&self) -> Instant {
        self.at.checked_sub(self.took).unwrap_or(self.at)
    }

    /// The same, unless it saw nothing at all.
    pub(super) fn useful(mut self) -> Result<Snapshot, Failure> {
        match self.failure.take() {
            Some(failure) if !self.is_complete && self.locks.is_empty() => Err(failure),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
impl Snapshot {
    /// A look at which this was seen, at this moment.
    pub(super) fn made(
        at: Instant,
        clock: SystemTime,
        locks: Vec<LockInfo>,
        unreachable: BTreeMap<String, String>,
    ) -> Snapshot {
        Snapshot {
            at,
            clock,
            took: Duration::ZERO,
            locks,
            is_complete: unreachable.is_empty(),
            unreachable,
            failure: None,
            round_trip: Some(Duration::from_micros(420)),
        }
    }
}

/// Looks at all locks whose names begin so; an error that no later look can mend is returned.
pub(super) fn take(backend: &Backend, beginning: &str) -> Result<Snapshot, Failure> {
    let begun = Instant::now();
    let (mut locks, mut unreachable, mut failure) = (Vec::new(), BTreeMap::new(), None);
    for info in backend.locks(beginning) {
        match info {
            Ok(_) if locks.len() == MOST => {
                return Err(Failure::usage(format!(
                    "there are more than {MOST} locks; give the beginning of the names"
                )));
            }
            Ok(mut info) => {
                info.name = backend.short_name(&info.name).into();
                locks.push(info);
            }
            Err(error) if is_lasting(error.kind()) => return Err(Failure::without_lock(error)),
            Err(error) => {
                let node = error.node().unwrap_or(backend.title()).to_owned();
                unreachable.insert(node, message_of(&error));
                failure = Some(Failure::without_lock(error));
            }
        }
    }
    let is_complete = unreachable.is_empty() || unreachable.len() * 2 < backend.node_count();
    let (at, clock) = (Instant::now(), SystemTime::now());
    Ok(Snapshot {
        at,
        clock,
        took: at - begun,
        locks,
        round_trip: is_complete
            .then(|| round_trip(backend, beginning))
            .flatten(),
        unreachable,
        failure,
        is_complete,
    })
}

/// Whether an error is there to stay, as it comes from settings.
fn is_lasting(kind: &str) -> bool {
    matches!(
        kind,
        "permission" | "untrusted" | "invalid_name" | "invalid_config" | "unsupported" | "forked"
    )
}

/// How long the cheapest question takes, which is for a lock that nobody has.
fn round_trip(backend: &Backend, beginning: &str) -> Option<Duration> {
    let lock = backend.lock(&format!("{beginning}redlatch:rtt"));
    let begun = Instant::now();
    // A user who may not ask for that name sees no time.
    lock.is_locked().ok()?;
    Some(begun.elapsed())
}

/// What is to be done at the place.
pub(super) enum Task {
    Snapshot,
    /// End the hold of this visitor.
    End {
        name: Arc<str>,
        visitor: String,
    },
}

/// What came of it.
pub(super) enum Reply {
    Snapshot(Result<Snapshot, Failure>),
    Ended {
        name: Arc<str>,
        visitor: String,
        freed: Result<bool, Failure>,
    },
}

/// The thread that asks.
pub(super) struct Poller {
    tasks: Sender<Task>,
    pub(super) replies: Receiver<Reply>,
}

impl Poller {
    pub(super) fn start(backend: Backend, beginning: String) -> Result<Poller, Failure> {
        let (tasks, given) = unbounded();
        let (sender, replies) = unbounded();
        let work = move || {
            for task in given {
                let reply = match task {
                    Task::Snapshot => Reply::Snapshot(take(&backend, &beginning)),
                    Task::End { name, visitor } => {
                        let freed = end(&backend, &name, &visitor);
                        Reply::Ended {
                            name,
                            visitor,
                            freed,
                        }
                    }
                };
                if sender.send(reply).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("redlatch-looks".to_owned())
            .spawn(work)
            .map_err(|error| Failure::usage(format!("no thread can be started: {error}")))?;
        Ok(Poller { tasks, replies })
    }

    pub(super) fn give(&self, task: Task) -> Result<(), Failure> {
        self.tasks.send(task).map_err(|_| poller_stopped())
    }
}

/// The thread that asks is gone.
pub(super) fn poller_stopped() -> Failure {
    Failure::usage("the thread that looks at the locks has stopped")
}

/// Ends one hold, in the way of its kind of lock, and no later one.
fn end(backend: &Backend, name: &str, visitor: &str) -> Result<bool, Failure> {
    let (lock, _) = backend.describe(name)?;
    Ok(lock.force_unlock_of(visitor)?)
}
