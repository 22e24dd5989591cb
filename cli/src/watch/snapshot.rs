//! Queries the held locks in a thread of its own, so that a slow server delays no key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, unbounded};
use redlatch::LockInfo;

use crate::connect::Backend;
use crate::errors::{Failure, message_of};

const MAX_LOCKS: usize = 10_000;

pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) clock: SystemTime,
    pub(super) took: Duration,
    /// The locks. Their names lack the prefix, as the user types them.
    pub(super) locks: Vec<LockInfo>,
    /// The servers that did not reply, and their errors.
    pub(super) unreachable: BTreeMap<String, String>,
    /// Whether a lock that is missing here is free.
    pub(super) is_complete: bool,
    /// The last error of an unreachable server.
    failure: Option<Failure>,
    /// The time of the cheapest request.
    pub(super) round_trip: Option<Duration>,
}

impl Snapshot {
    /// When the query began. All replies are newer.
    pub(super) fn begun(&self) -> Instant {
        self.at.checked_sub(self.took).unwrap_or(self.at)
    }

    /// Fails if the snapshot contains nothing.
    pub(super) fn useful(mut self) -> Result<Snapshot, Failure> {
        match self.failure.take() {
            Some(failure) if !self.is_complete && self.locks.is_empty() => Err(failure),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
impl Snapshot {
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

/// Returns an error only if another query cannot help.
pub(super) fn take(backend: &Backend, beginning: &str) -> Result<Snapshot, Failure> {
    let begun = Instant::now();
    let (mut locks, mut unreachable, mut failure) = (Vec::new(), BTreeMap::new(), None);
    for info in backend.locks(beginning) {
        match info {
            Ok(_) if locks.len() == MAX_LOCKS => {
                return Err(Failure::usage(format!(
                    "more than {MAX_LOCKS} locks match; give a longer prefix"
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

/// Whether an error comes from the settings, so that another query cannot help.
fn is_lasting(kind: &str) -> bool {
    matches!(
        kind,
        "permission" | "untrusted" | "invalid_name" | "invalid_config" | "unsupported" | "forked"
    )
}

/// Times the cheapest request, which is a query of a free lock.
fn round_trip(backend: &Backend, beginning: &str) -> Option<Duration> {
    let lock = backend.lock(&format!("{beginning}redlatch:rtt"));
    let begun = Instant::now();
    // If the user has no right to this name, no time is shown.
    lock.is_locked().ok()?;
    Some(begun.elapsed())
}

pub(super) enum Task {
    Snapshot,
    /// Release the hold of this visitor.
    End {
        name: Arc<str>,
        visitor: String,
    },
}

pub(super) enum Reply {
    Snapshot(Result<Snapshot, Failure>),
    Ended {
        name: Arc<str>,
        visitor: String,
        freed: Result<bool, Failure>,
    },
}

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
            .name("redlatch-polls".to_owned())
            .spawn(work)
            .map_err(|error| Failure::usage(format!("cannot start a thread: {error}")))?;
        Ok(Poller { tasks, replies })
    }

    pub(super) fn give(&self, task: Task) -> Result<(), Failure> {
        self.tasks.send(task).map_err(|_| poller_stopped())
    }
}

pub(super) fn poller_stopped() -> Failure {
    Failure::usage(
        "the thread that queries the server has stopped; report this as a defect of redlatch",
    )
}

/// `describe` finds the lock's kind, which determines how waiters are notified.
fn end(backend: &Backend, name: &str, visitor: &str) -> Result<bool, Failure> {
    let (lock, _) = backend.describe(name)?;
    Ok(lock.force_unlock_of(visitor)?)
}
