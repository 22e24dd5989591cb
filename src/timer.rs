//! The timer heap: things that fall due, and the one thread that sleeps until the first of them does.
//!
//! Thousands of holds fall due at one instant, because they are renewed in batches. So the heap is an ordered map of
//! instants, each with all that is due then, and a batch is taken out at one blow.

use std::collections::BTreeMap;
use std::time::Instant;

use smallvec::SmallVec;

use crate::sync::{Clock, Condvar, Mutex, planted};

/// Entries are cancelled by their owner, and swept when they outnumber the living.
#[derive(Debug)]
pub(crate) struct Timer<T> {
    inner: Mutex<Inner<T>>,
    changed: Condvar,
}

type Entries<T> = BTreeMap<Instant, SmallVec<[T; 1]>>;

#[derive(Debug)]
struct Inner<T> {
    entries: Entries<T>,
    /// Those that somebody waits to hear of, apart, so that the first of them is found at once.
    urgent: Entries<T>,
    len: usize,
    /// How many entries were cancelled and still lie there.
    stale: usize,
    /// When the thread will look again by itself; `None` while it is awake or sleeps without an end.
    alarm: Option<Instant>,
    asleep: bool,
    closed: bool,
}

/// What a timer can hold.
pub(crate) trait Timed {
    /// Whether an entry that was made for `due` still counts.
    fn is_due_at(&self, due: Instant) -> bool;

    /// Whether somebody waits to hear that it is due.
    fn is_urgent(&self) -> bool;
}

impl<T> Default for Timer<T> {
    fn default() -> Self {
        Timer {
            inner: Mutex::new(Inner {
                entries: Entries::new(),
                urgent: Entries::new(),
                len: 0,
                stale: 0,
                alarm: None,
                asleep: false,
                closed: false,
            }),
            changed: Condvar::default(),
        }
    }
}

impl<T: Timed> Timer<T> {
    /// Below this many cancelled entries a sweep is not worth its while.
    const SWEEP_FROM: usize = 64;

    /// Adds an entry. The thread is woken only if it would sleep past it, so that a lock which is taken and freed
    /// within its renewal period costs no wake-up.
    pub(crate) fn schedule(&self, due: Instant, item: T) {
        let mut inner = self.inner.lock();
        inner.len += 1;
        let entries = if item.is_urgent() {
            &mut inner.urgent
        } else {
            &mut inner.entries
        };
        entries.entry(due).or_default().push(item);
        let oversleeps = inner.asleep && inner.alarm.is_none_or(|alarm| due < alarm);
        if oversleeps && !planted("an earlier entry wakes nobody") {
            self.changed.notify_one();
        }
    }

    /// Notes that one entry no longer counts (its `is_due_at` is false from now on).
    pub(crate) fn cancelled(&self) {
        let mut inner = self.inner.lock();
        inner.stale += 1;
        if inner.stale > Self::SWEEP_FROM && inner.stale > inner.len / 2 {
            let inner = &mut *inner;
            let mut left = 0;
            for entries in [&mut inner.entries, &mut inner.urgent] {
                entries.retain(|due, items| {
                    items.retain(|item| item.is_due_at(*due));
                    left += items.len();
                    !items.is_empty()
                });
            }
            inner.len = left;
            inner.stale = 0;
        }
    }

    /// Sleeps until something is due, then returns all that is; `None` after [`Timer::close`].
    ///
    /// For the one thread that owns the timer.
    pub(crate) fn next_due(&self) -> Option<Vec<T>> {
        let mut inner = self.inner.lock();
        loop {
            if inner.closed {
                return None;
            }
            let clock = Clock::look();
            let mut due = Vec::new();
            let state = &mut *inner;
            for entries in [&mut state.urgent, &mut state.entries] {
                while let Some(first) = entries.first_entry()
                    && clock.has_passed(*first.key())
                {
                    let (at, items) = first.remove_entry();
                    state.len -= items.len();
                    let before = due.len() + items.len();
                    due.extend(items.into_iter().filter(|item| item.is_due_at(at)));
                    state.stale = state.stale.saturating_sub(before - due.len());
                }
            }
            if !due.is_empty() {
                return Some(due);
            }
            let next = [&inner.urgent, &inner.entries]
                .into_iter()
                .filter_map(|entries| entries.keys().next().copied())
                .min();
            inner.alarm = next;
            inner.asleep = true;
            inner = self.changed.wait(inner, next);
            inner.asleep = false;
        }
    }

    /// When the first urgent entry falls due.
    pub(crate) fn first_urgent(&self) -> Option<Instant> {
        first(&self.inner.lock().urgent)
    }

    /// When the first entry of any kind falls due.
    pub(crate) fn first(&self) -> Option<Instant> {
        let inner = self.inner.lock();
        let firsts = [first(&inner.urgent), first(&inner.entries)];
        firsts.into_iter().flatten().min()
    }

    /// Visits every entry that still counts.
    pub(crate) fn each(&self, mut visit: impl FnMut(&T)) {
        let inner = self.inner.lock();
        for (due, items) in inner.entries.iter().chain(&inner.urgent) {
            for item in items.iter().filter(|item| item.is_due_at(*due)) {
                visit(item);
            }
        }
    }

    /// Ends the owner's thread at its next look.
    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.changed.notify_one();
    }
}

/// When the first entry that still counts falls due.
fn first<T: Timed>(entries: &Entries<T>) -> Option<Instant> {
    let counts = |(due, items): &(&Instant, &SmallVec<[T; 1]>)| {
        items.iter().any(|item| item.is_due_at(**due))
    };
    entries.iter().find(counts).map(|(due, _)| *due)
}
