//! Counts and reports waits and holds by the class of their lock, and requests by operation.
//!
//! Without contention, the counting of a lock and its unlock needs no mutex of this module. A waiting thread locks a
//! mutex to enter the list of waits.

pub(crate) mod class;
mod requests;
mod waits;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::counters::class::{ClassId, Classes};
pub(crate) use crate::engine::counters::requests::Answer;
use crate::engine::counters::waits::Waits;
pub(crate) use crate::engine::counters::waits::{ListedWait, OpenWait};
use crate::ground::clock::Timeline;
use crate::ground::observer::{Event, Observed};
use crate::ground::sync::Mutex;
use crate::ground::{events, metrics};

#[derive(Clone, Debug)]
pub(crate) struct CountSettings {
    /// The user's function from a lock name to its class. If `None`, the class is the name up to its last separator.
    pub(crate) class_of: Option<ClassOf>,
    pub(crate) observer: Observed,
    pub(crate) long_wait: Duration,
    pub(crate) long_hold: Duration,
}

impl Default for CountSettings {
    fn default() -> CountSettings {
        CountSettings {
            class_of: None,
            observer: Observed::default(),
            long_wait: Duration::from_secs(30),
            long_hold: Duration::from_secs(10 * 60),
        }
    }
}

#[derive(Clone)]
pub(crate) struct ClassOf(pub(crate) Arc<dyn for<'a> Fn(&'a str) -> &'a str + Send + Sync>);

impl fmt::Debug for ClassOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClassOf")
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) settings: CountSettings,
    classes: Classes,
    waits: Mutex<Waits>,
    has_no_watchdog: AtomicBool,
    /// The clock of the client's holds.
    pub(crate) timeline: Timeline,
}

pub(crate) fn end_name(is_lost: bool) -> &'static str {
    match is_lost {
        true => "lost",
        false => "unlocked",
    }
}

impl Counters {
    pub(crate) fn new(settings: CountSettings, timeline: &Timeline) -> Counters {
        Counters {
            timeline: timeline.clone(),
            classes: Classes::new(settings.class_of.clone()),
            settings,
            ..Counters::default()
        }
    }

    pub(crate) fn class_of(&self, name: &str) -> ClassId {
        self.classes.of(name)
    }

    pub(crate) fn class(&self, id: ClassId) -> &str {
        self.classes.get(id)
    }

    /// Calls the observer, which is the user's code. So the caller must have no mutex of the library locked.
    pub(crate) fn tell<'a>(&'a self, class: ClassId, event: impl FnOnce(&'a str) -> Event<'a>) {
        let class = self.class(class);
        self.settings.observer.tell(|| event(class));
    }

    /// Calls the user's recorder of metrics. So the caller must have no mutex of the library locked.
    pub(crate) fn began(&self, class: ClassId) {
        metrics::holds(self.class(class), 1.0);
    }

    /// Calls the user's recorder of metrics and observer. So the caller must have no mutex of the library locked.
    pub(crate) fn ended(&self, class: ClassId, lock: &str, held: Duration, is_lost: bool) {
        metrics::holds(self.class(class), -1.0);
        self.tell(class, |class| Event::Ended {
            class,
            lock,
            held,
            end: end_name(is_lost),
        });
    }

    pub(crate) fn listed(&self) -> Vec<Arc<ListedWait>> {
        self.waits.lock().listed.values().cloned().collect()
    }

    pub(crate) fn has_waits(&self) -> bool {
        !self.listed().is_empty()
    }

    pub(crate) fn long_wait(&self, wait: &ListedWait, waited: Duration, holder: Option<&str>) {
        let same = |it: &&Arc<ListedWait>| it.lock.name == wait.lock.name;
        let others = self.listed().iter().filter(same).count().saturating_sub(1);
        let named = holder.unwrap_or("an unknown holder");
        let (lock, seconds) = (&wait.lock.name, waited.as_secs());
        events::long_wait(lock, &wait.thread, &seconds, &named, &others);
        self.tell(wait.class, |class| Event::LongWait {
            class,
            lock: &wait.lock.name,
            thread: wait.thread,
            waited,
            holder,
            others,
        });
    }

    pub(crate) fn long_hold(&self, class: ClassId, lock: &str, thread: u64, held: Duration) {
        events::long_hold(&lock, &thread, &held.as_secs());
        self.tell(class, |class| Event::LongHold {
            class,
            lock,
            thread,
            held,
        });
    }

    /// Notes that a thread of the watchdog has died. Without renewals, no hold of this client is valid.
    pub(crate) fn watchdog_died(&self) {
        self.has_no_watchdog.store(true, Ordering::Release);
    }

    pub(crate) fn has_watchdog(&self) -> bool {
        !self.has_no_watchdog.load(Ordering::Acquire)
    }
}
