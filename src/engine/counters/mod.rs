//! The numbers that a client counts, and whom it tells what happens: waits and holds by the class of their lock, requests by
//! their operation.
//!
//! On the way of every lock and unlock there are atomics alone, which nobody waits for. A thread that waits behind others is
//! listed, too, which takes a mutex: it sleeps anyway.

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
use crate::ground::observer::{Event, Observed};
use crate::ground::sync::Mutex;
use crate::ground::{events, numbers};

/// The settings of the counters of one client.
#[derive(Clone, Debug)]
pub(crate) struct CountSettings {
    /// Names the classes; `None` for names up to their last separator.
    pub(crate) class_of: Option<ClassOf>,
    pub(crate) observer: Observed,
    /// A wait that lasts as long as this is told, and a hold.
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

/// Names the class of a lock by its name.
#[derive(Clone)]
pub(crate) struct ClassOf(pub(crate) Arc<dyn for<'a> Fn(&'a str) -> &'a str + Send + Sync>);

impl fmt::Debug for ClassOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClassOf")
    }
}

/// The counters of one client, and what its holds learn of its end.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    settings: CountSettings,
    classes: Classes,
    waits: Mutex<Waits>,
    has_no_watchdog: AtomicBool,
}

/// The word for the end of a hold here.
pub(crate) fn end_name(is_lost: bool) -> &'static str {
    match is_lost {
        true => "lost",
        false => "unlocked",
    }
}

impl Counters {
    pub(crate) fn new(settings: CountSettings) -> Counters {
        Counters {
            classes: Classes::new(settings.class_of.clone()),
            settings,
            ..Counters::default()
        }
    }

    pub(crate) fn settings(&self) -> &CountSettings {
        &self.settings
    }

    /// The class of the lock of this name.
    pub(crate) fn class_of(&self, name: &str) -> ClassId {
        self.classes.of(name)
    }

    /// The name of a class.
    pub(crate) fn class(&self, id: ClassId) -> &str {
        self.classes.get(id)
    }

    /// Tells the observer of something, with the name of its class and no mutex locked.
    pub(crate) fn tell<'a>(&'a self, class: ClassId, event: impl FnOnce(&'a str) -> Event<'a>) {
        let class = self.class(class);
        self.settings.observer.tell(|| event(class));
    }

    /// Tells that a hold has begun, with no mutex locked.
    pub(crate) fn began(&self, class: ClassId) {
        numbers::holds(self.class(class), 1.0);
    }

    /// Tells that it has ended, with no mutex locked.
    pub(crate) fn ended(&self, class: ClassId, lock: &str, held: Duration, is_lost: bool) {
        numbers::holds(self.class(class), -1.0);
        self.tell(class, |class| Event::Ended {
            class,
            lock,
            held,
            end: end_name(is_lost),
        });
    }

    /// The waits that are listed, the oldest first.
    pub(crate) fn listed(&self) -> Vec<Arc<ListedWait>> {
        self.waits.lock().listed.values().cloned().collect()
    }

    /// Whether anybody waits at present.
    pub(crate) fn has_waits(&self) -> bool {
        !self.listed().is_empty()
    }

    /// Tells of a wait that has lasted for long.
    pub(crate) fn long_wait(&self, wait: &ListedWait, waited: Duration, holder: Option<&str>) {
        let same = |it: &&Arc<ListedWait>| it.lock.name == wait.lock.name;
        let others = self.listed().iter().filter(same).count().saturating_sub(1);
        let named = holder.unwrap_or("an unknown holder");
        events::long_wait(
            &wait.lock.name,
            &wait.thread,
            &waited.as_secs(),
            &named,
            &others,
        );
        self.tell(wait.class, |class| Event::LongWait {
            class,
            lock: &wait.lock.name,
            thread: wait.thread,
            waited,
            holder,
            others,
        });
    }

    /// Tells of a hold that has lasted for long.
    pub(crate) fn long_hold(&self, class: ClassId, lock: &str, thread: u64, held: Duration) {
        events::long_hold(&lock, &thread, &held.as_secs());
        self.tell(class, |class| Event::LongHold {
            class,
            lock,
            thread,
            held,
        });
    }

    /// Notes that a thread of the watchdog has died: nothing is renewed any more, so nothing is valid.
    pub(crate) fn watchdog_died(&self) {
        self.has_no_watchdog.store(true, Ordering::Release);
    }

    pub(crate) fn has_watchdog(&self) -> bool {
        !self.has_no_watchdog.load(Ordering::Acquire)
    }
}
