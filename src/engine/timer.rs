//! A timer on which one thread sleeps until the first entry is due.
//!
//! Holds are renewed in batches, so thousands of entries can be due at one instant. A map from instants to entries lets
//! one operation remove all entries of an instant.

use std::collections::BTreeMap;
use std::time::Instant;

use smallvec::SmallVec;

use crate::ground::sync::{Clock, Condvar, Mutex};

/// A cancelled entry stays in the map until it is due, or until cancelled entries outnumber valid ones.
#[derive(Debug)]
pub(crate) struct Timer<T> {
    inner: Mutex<Inner<T>>,
    changed: Condvar,
}

type Entries<T> = BTreeMap<Instant, SmallVec<[T; 1]>>;

#[derive(Debug)]
struct Inner<T> {
    entries: Entries<T>,
    len: usize,
    stale: usize,
    /// When the sleeping thread wakes by itself; `None` if it sleeps without a deadline.
    alarm: Option<Instant>,
    asleep: bool,
    closed: bool,
}

pub(crate) trait Timed {
    /// Returns false if the entry for `due` was cancelled.
    fn is_due_at(&self, due: Instant) -> bool;
}

impl<T> Default for Timer<T> {
    fn default() -> Self {
        Timer {
            inner: Mutex::new(Inner {
                entries: Entries::new(),
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
    /// With at most this many cancelled entries, none is removed early.
    const SWEEP_FROM: usize = 8;

    /// Returns false after [`Timer::close`].
    pub(crate) fn schedule(&self, due: Instant, item: T) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed {
            return false;
        }
        inner.len += 1;
        inner.entries.entry(due).or_default().push(item);
        let oversleeps = inner.asleep && inner.alarm.is_none_or(|alarm| due < alarm);
        if oversleeps {
            self.changed.notify_one();
        }
        true
    }

    /// Counts a cancelled entry. From now on, `is_due_at` of the entry must return false.
    pub(crate) fn cancelled(&self) {
        let mut inner = self.inner.lock();
        inner.stale += 1;
        if inner.stale > Self::SWEEP_FROM && inner.stale > inner.len / 2 {
            let inner = &mut *inner;
            let mut left = 0;
            inner.entries.retain(|due, items| {
                items.retain(|item| item.is_due_at(*due));
                left += items.len();
                !items.is_empty()
            });
            inner.len = left;
            inner.stale = 0;
        }
    }

    /// Returns `None` after [`Timer::close`]. Only one thread may call this function.
    pub(crate) fn next_due(&self) -> Option<Vec<T>> {
        let mut inner = self.inner.lock();
        loop {
            if inner.closed {
                return None;
            }
            let clock = Clock::look();
            let mut due = Vec::new();
            let state = &mut *inner;
            while let Some(first) = state.entries.first_entry()
                && clock.has_passed(*first.key())
            {
                let (at, items) = first.remove_entry();
                state.len -= items.len();
                let before = due.len() + items.len();
                due.extend(items.into_iter().filter(|item| item.is_due_at(at)));
                state.stale = state.stale.saturating_sub(before - due.len());
            }
            if !due.is_empty() {
                return Some(due);
            }
            let next = inner.entries.keys().next().copied();
            inner.alarm = next;
            inner.asleep = true;
            inner = self.changed.wait(inner, next);
            inner.asleep = false;
        }
    }

    pub(crate) fn each(&self, mut visit: impl FnMut(&T)) {
        let inner = self.inner.lock();
        for (due, items) in &inner.entries {
            for item in items.iter().filter(|item| item.is_due_at(*due)) {
                visit(item);
            }
        }
    }

    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.changed.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }
}

// These tests use threads that shuttle does not control.
#[cfg(all(test, not(redlatch_shuttle)))]
mod tests;
