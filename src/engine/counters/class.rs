//! The classes that locks are counted in: few, whatever names there are.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::counters::ClassOf;
use crate::ground::error::{Error, Result};
use crate::ground::histogram::{Durations, Histogram};
use crate::ground::loss::LossCause;

/// A label has at most so many values, for each client.
const MOST_CLASSES: usize = 64;

/// The class of all locks that came when the others were given away.
const REST: &str = "other";

/// A longer name is no class, but part of the rest: names of locks may have 512 bytes, and labels are kept for good.
const LONGEST: usize = 64;

/// The place of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(u8);

#[derive(Debug, Default)]
pub(crate) struct Classes {
    class_of: Option<ClassOf>,
    /// Filled from the first place on, and never changed. The rest has the place 0.
    named: Box<[OnceLock<Class>]>,
    rest: Class,
}

impl Classes {
    pub(super) fn new(class_of: Option<ClassOf>) -> Classes {
        Classes {
            class_of,
            named: (0..MOST_CLASSES).map(|_| OnceLock::new()).collect(),
            rest: Class::default(),
        }
    }

    pub(super) fn of(&self, lock: &str) -> ClassId {
        let class = match &self.class_of {
            // What the user's function does wrong stays its own affair.
            Some(ClassOf(of)) => catch_unwind(AssertUnwindSafe(|| of(lock))).unwrap_or(REST),
            None => without_last_part(lock),
        };
        if class == REST || class.len() > LONGEST {
            return ClassId::default();
        }
        let places = self.named.iter().zip(1..);
        let found = places.into_iter().find(|(place, _)| {
            // The first to come fills a place; all others find its class there.
            let there = place.get_or_init(|| Class::named(class));
            there.name == class
        });
        found.map_or_else(ClassId::default, |(_, id)| ClassId(id))
    }

    pub(super) fn get(&self, id: ClassId) -> &Class {
        let place = usize::from(id.0).checked_sub(1);
        let class = place.and_then(|place| self.named.get(place)?.get());
        class.unwrap_or(&self.rest)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        let named = self.named.iter().zip(1..);
        let named = named.map_while(|(place, id)| Some((ClassId(id), place.get()?)));
        named.chain([(ClassId::default(), &self.rest)])
    }
}

/// A name up to the last of `:`, `/`, `{` and `}`, but for a brace that it begins or ends with.
fn without_last_part(lock: &str) -> &str {
    const SEPARATORS: [char; 4] = [':', '/', '{', '}'];
    let name = lock.strip_prefix('{').unwrap_or(lock).trim_end_matches('}');
    let class = name
        .rsplit_once(SEPARATORS)
        .map_or(name, |(class, _)| class);
    class.trim_end_matches(SEPARATORS)
}

/// How a thread came to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// The first question was granted.
    Free,
    /// It was woken by a message, and asked.
    Woken,
    /// It asked again by itself.
    Polled,
    /// A thread of this client handed it over.
    Handed,
    /// It had the lock already.
    Reentered,
}

impl Via {
    pub(crate) const ALL: [(Via, &'static str); 5] = [
        (Via::Free, "free"),
        (Via::Woken, "woken"),
        (Via::Polled, "polled"),
        (Via::Handed, "handed"),
        (Via::Reentered, "reentered"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Via::ALL.get(self as usize).map_or("", |(_, name)| name)
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    Acquired,
    Refused,
    Interrupted,
    Failed,
}

impl WaitEnd {
    /// How a wait with this outcome ended.
    pub(crate) fn of<T>(outcome: &Result<Option<T>>) -> WaitEnd {
        match outcome {
            Ok(Some(_)) => WaitEnd::Acquired,
            Ok(None) => WaitEnd::Refused,
            Err(Error::Interrupted { .. }) => WaitEnd::Interrupted,
            Err(_) => WaitEnd::Failed,
        }
    }

    pub(crate) const ALL: [(WaitEnd, &'static str); 4] = [
        (WaitEnd::Acquired, "acquired"),
        (WaitEnd::Refused, "refused"),
        (WaitEnd::Interrupted, "interrupted"),
        (WaitEnd::Failed, "failed"),
    ];

    pub(crate) fn name(self) -> &'static str {
        WaitEnd::ALL.get(self as usize).map_or("", |(_, name)| name)
    }
}

/// The counters of the locks of one class.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: String,
    /// By [`WaitEnd`].
    waits: [Histogram; WaitEnd::ALL.len()],
    /// By [`Via`].
    acquisitions: [AtomicU64; Via::ALL.len()],
    contended: AtomicU64,
    begun: AtomicU64,
    unlocked: Histogram,
    lost: Histogram,
    /// By the kind of their cause.
    losses: [AtomicU64; LossCause::KINDS.len()],
    long_waits: AtomicU64,
    long_holds: AtomicU64,
}

impl Default for Class {
    fn default() -> Class {
        Class::named(REST)
    }
}

impl Class {
    fn named(name: &str) -> Class {
        Class {
            name: name.to_owned(),
            waits: Default::default(),
            acquisitions: Default::default(),
            contended: AtomicU64::default(),
            begun: AtomicU64::default(),
            unlocked: Histogram::default(),
            lost: Histogram::default(),
            losses: Default::default(),
            long_waits: AtomicU64::default(),
            long_holds: AtomicU64::default(),
        }
    }

    pub(crate) fn acquired(&self, via: Via) {
        if let Some(count) = self.acquisitions.get(via as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn waited(&self, end: WaitEnd, took: Duration) {
        if let Some(waits) = self.waits.get(end as usize) {
            waits.note(took);
        }
    }

    pub(crate) fn contended(&self) {
        self.contended.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hold_began(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hold_unlocked(&self, held: Duration) {
        self.unlocked.note(held);
    }

    /// Counts the end of a hold by a loss.
    pub(crate) fn hold_lost(&self, held: Duration) {
        self.lost.note(held);
    }

    /// Counts a loss that is told.
    pub(crate) fn lost(&self, cause: &LossCause) {
        if let Some(count) = self.losses.get(cause.place()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn long_wait(&self) {
        self.long_waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn long_hold(&self) {
        self.long_holds.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> ClassRead {
        let unlocked = self.unlocked.read();
        let lost = self.lost.read();
        let ended = unlocked.count() + lost.count();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ClassRead {
            waits: self.waits.each_ref().map(Histogram::read),
            acquisitions: self.acquisitions.each_ref().map(read),
            contended: read(&self.contended),
            // One that began and ended between the two looks is none too many.
            holds: read(&self.begun).saturating_sub(ended),
            unlocked,
            lost,
            losses: self.losses.each_ref().map(read),
            long_waits: read(&self.long_waits),
            long_holds: read(&self.long_holds),
        }
    }
}

/// The counts of one class at one moment.
pub(crate) struct ClassRead {
    pub(crate) waits: [Durations; WaitEnd::ALL.len()],
    pub(crate) acquisitions: [u64; Via::ALL.len()],
    pub(crate) contended: u64,
    pub(crate) holds: u64,
    pub(crate) unlocked: Durations,
    pub(crate) lost: Durations,
    pub(crate) losses: [u64; LossCause::KINDS.len()],
    pub(crate) long_waits: u64,
    pub(crate) long_holds: u64,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_class_is_a_name_up_to_its_last_separator() {
        for (name, class) in [
            ("lock:orders:42", "lock:orders"),
            ("orders:42", "orders"),
            ("{orders}:42", "orders"),
            ("{lock:orders}:42", "lock:orders"),
            ("orders/42", "orders"),
            ("{lock:orders:42}", "lock:orders"),
            ("orders{42}", "orders"),
            ("lock:orders:", "lock:orders"),
            ("orders", "orders"),
            ("orders:", "orders"),
            (":", ""),
            ("", ""),
        ] {
            assert_eq!(without_last_part(name), class, "{name}");
        }
    }

    #[test]
    fn one_name_has_one_class_and_many_names_have_few() {
        let classes = Classes::new(None);
        let first = classes.of("c0:1");
        for number in 0..100_000 {
            classes.of(&format!("c{number}:7"));
        }
        assert_eq!(classes.of("c0:2"), first);
        assert_eq!(classes.get(first).name, "c0");
        assert_eq!(classes.get(classes.of("c99999:1")).name, "other");
        assert_eq!(classes.get(classes.of("other:1")).name, "other");
        assert_eq!(classes.all().count(), MOST_CLASSES + 1);
    }

    #[test]
    fn a_class_has_no_secret_of_a_long_name_and_survives_a_panic() {
        let classes = Classes::new(None);
        assert_eq!(classes.of(&"n".repeat(65)), ClassId::default());
        assert_ne!(classes.of(&"n".repeat(64)), ClassId::default());
        let panics = ClassOf(Arc::new(|_: &str| panic!("no class")));
        assert_eq!(
            Classes::new(Some(panics)).of("orders:1"),
            ClassId::default()
        );
    }

    #[test]
    fn a_given_function_names_the_classes() {
        fn last(name: &str) -> &str {
            name.rsplit(':').next().unwrap_or(name)
        }
        let classes = Classes::new(Some(ClassOf(Arc::new(last))));
        assert_eq!(classes.get(classes.of("a:orders")).name, "orders");
    }

    #[test]
    fn what_began_and_has_not_ended_is_held() {
        let class = Class::named("orders");
        (0..5).for_each(|_| class.hold_began());
        let held = [1, 2, 3].map(Duration::from_secs);
        held.iter().for_each(|held| class.hold_unlocked(*held));
        class.hold_lost(Duration::from_secs(7));
        class.lost(&LossCause::Gone);
        class.long_hold();
        class.long_hold();
        class.long_wait();
        let read = class.read();
        assert_eq!((read.unlocked.count(), read.lost.count()), (3, 1));
        assert_eq!(read.unlocked.sum(), Duration::from_secs(6));
        assert_eq!(read.holds, 1);
        assert_eq!(read.losses.iter().sum::<u64>(), 1);
        assert_eq!((read.long_holds, read.long_waits), (2, 1));
    }

    #[test]
    fn each_way_and_each_end_has_the_word_of_its_place() {
        for (place, (via, name)) in Via::ALL.into_iter().enumerate() {
            assert_eq!((via as usize, via.name()), (place, name));
        }
        for (place, (end, name)) in WaitEnd::ALL.into_iter().enumerate() {
            assert_eq!((end as usize, end.name()), (place, name));
        }
    }
}
