//! The looks at a place, one after the other, in a thread of their own: a server that is slow holds up no key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, unbounded};
use redlatch::LockInfo;

use crate::connect::Place;
use crate::errors::{Failure, sentence};

/// More locks are no table for people.
const MOST: usize = 10_000;

/// What was seen at one moment.
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) clock: SystemTime,
    pub(super) took: Duration,
    /// The locks, called as they are called here.
    pub(super) locks: Vec<LockInfo>,
    /// The servers that did not tell, and what they said.
    pub(super) silent: BTreeMap<String, String>,
    /// Whether a lock that is not here is held by nobody.
    pub(super) is_whole: bool,
    /// Why the last of those did not.
    failure: Option<Failure>,
    /// How long the least request took.
    pub(super) round_trip: Option<Duration>,
}

impl Look {
    /// When it began; what was told is at least as new.
    pub(super) fn begun(&self) -> Instant {
        self.at.checked_sub(self.took).unwrap_or(self.at)
    }

    /// The same, unless it saw nothing at all.
    pub(super) fn useful(mut self) -> Result<Look, Failure> {
        match self.failure.take() {
            Some(failure) if !self.is_whole && self.locks.is_empty() => Err(failure),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
impl Look {
    /// A look at which this was seen, at this moment.
    pub(super) fn made(
        at: Instant,
        clock: SystemTime,
        locks: Vec<LockInfo>,
        silent: BTreeMap<String, String>,
    ) -> Look {
        Look {
            at,
            clock,
            took: Duration::ZERO,
            locks,
            is_whole: silent.is_empty(),
            silent,
            failure: None,
            round_trip: Some(Duration::from_micros(420)),
        }
    }
}

/// Looks at all locks whose names begin so; an error that no later look can mend is returned.
pub(super) fn look(place: &Place, beginning: &str) -> Result<Look, Failure> {
    let begun = Instant::now();
    let (mut locks, mut silent, mut failure) = (Vec::new(), BTreeMap::new(), None);
    for info in place.locks(beginning) {
        match info {
            Ok(_) if locks.len() == MOST => {
                return Err(Failure::usage(format!(
                    "there are more than {MOST} locks; give the beginning of the names"
                )));
            }
            Ok(mut info) => {
                info.name = place.short(&info.name).into();
                locks.push(info);
            }
            Err(error) if is_lasting(error.kind()) => return Err(Failure::of_all(error)),
            Err(error) => {
                let node = error.node().unwrap_or(place.title()).to_owned();
                silent.insert(node, sentence(&error));
                failure = Some(Failure::of_all(error));
            }
        }
    }
    let is_whole = silent.is_empty() || silent.len() * 2 < place.voters();
    let (at, clock) = (Instant::now(), SystemTime::now());
    Ok(Look {
        at,
        clock,
        took: at - begun,
        locks,
        round_trip: is_whole.then(|| round_trip(place, beginning)).flatten(),
        silent,
        failure,
        is_whole,
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
fn round_trip(place: &Place, beginning: &str) -> Option<Duration> {
    let lock = place.lock(&format!("{beginning}redlatch:rtt"));
    let begun = Instant::now();
    // A user who may not ask for that name sees no time.
    lock.is_locked().ok()?;
    Some(begun.elapsed())
}

/// What is to be done at the place.
pub(super) enum Task {
    Look,
    /// End the hold of this visitor.
    End {
        name: Arc<str>,
        visitor: String,
    },
}

/// What came of it.
pub(super) enum Answer {
    Looked(Result<Look, Failure>),
    Ended {
        name: Arc<str>,
        visitor: String,
        freed: Result<bool, Failure>,
    },
}

/// The thread that asks.
pub(super) struct Asker {
    tasks: Sender<Task>,
    pub(super) answers: Receiver<Answer>,
}

impl Asker {
    pub(super) fn start(place: Place, beginning: String) -> Result<Asker, Failure> {
        let (tasks, given) = unbounded();
        let (tell, answers) = unbounded();
        let work = move || {
            for task in given {
                let answer = match task {
                    Task::Look => Answer::Looked(look(&place, &beginning)),
                    Task::End { name, visitor } => {
                        let freed = end(&place, &name, &visitor);
                        Answer::Ended {
                            name,
                            visitor,
                            freed,
                        }
                    }
                };
                if tell.send(answer).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("redlatch-looks".to_owned())
            .spawn(work)
            .map_err(|error| Failure::usage(format!("no thread can be started: {error}")))?;
        Ok(Asker { tasks, answers })
    }

    pub(super) fn give(&self, task: Task) -> Result<(), Failure> {
        self.tasks.send(task).map_err(|_| stopped())
    }
}

/// The thread that asks is gone.
pub(super) fn stopped() -> Failure {
    Failure::usage("the thread that looks at the locks has stopped")
}

/// Ends one hold, in the way of its kind of lock, and no later one.
fn end(place: &Place, name: &str, visitor: &str) -> Result<bool, Failure> {
    let (lock, _) = place.describe(name)?;
    Ok(lock.force_unlock_of(visitor)?)
}
