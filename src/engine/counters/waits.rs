//! The threads of a client that wait behind others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::counters::Counters;
use crate::engine::counters::class::ClassId;
use crate::ground::sync::Mutex;
use crate::ground::time;

#[derive(Debug, Default)]
pub(super) struct Waits {
    listed: Mutex<Listed>,
}

#[derive(Debug, Default)]
struct Listed {
    last: u64,
    by_number: BTreeMap<u64, Began>,
}

#[derive(Debug)]
struct Began {
    class: ClassId,
    lock: Arc<str>,
    thread: u64,
    since: Instant,
}

/// A wait that goes on as long as this lives.
#[derive(Debug)]
pub(crate) struct OpenWait {
    counters: Arc<Counters>,
    number: u64,
    wait: ListedWait,
    since: Instant,
    /// It is told when it has lasted as long as this.
    long_from: Duration,
}

/// A wait that was going on when it was asked for.
#[derive(Debug)]
pub(crate) struct ListedWait {
    pub(crate) class: ClassId,
    pub(crate) lock: Arc<str>,
    pub(crate) thread: u64,
    pub(crate) lasts: Duration,
}

impl Began {
    fn listed(&self, now: Instant) -> ListedWait {
        ListedWait {
            class: self.class,
            lock: Arc::clone(&self.lock),
            thread: self.thread,
            lasts: now.saturating_duration_since(self.since),
        }
    }
}

impl OpenWait {
    pub(super) fn begin(
        counters: &Arc<Counters>,
        class: ClassId,
        lock: &Arc<str>,
        thread: u64,
    ) -> OpenWait {
        let began = Began {
            class,
            lock: Arc::clone(lock),
            thread,
            since: time::now(),
        };
        let since = began.since;
        let wait = began.listed(since);
        let mut listed = counters.waits.listed.lock();
        listed.last += 1;
        let number = listed.last;
        listed.by_number.insert(number, began);
        OpenWait {
            counters: Arc::clone(counters),
            number,
            wait,
            since,
            long_from: counters.settings().long_wait,
        }
    }

    /// Tells if the wait has lasted for long by now; `holder` is the one that it was refused by last.
    pub(crate) fn look(&mut self, now: Instant, holder: Option<&str>) {
        self.wait.lasts = now.saturating_duration_since(self.since);
        if self.wait.lasts >= self.long_from {
            self.long_from = self.wait.lasts.saturating_mul(2);
            self.counters.long_wait(&self.wait, holder);
        }
    }
}

impl Drop for OpenWait {
    fn drop(&mut self) {
        let ended = self
            .counters
            .waits
            .listed
            .lock()
            .by_number
            .remove(&self.number);
        drop(ended);
    }
}

impl Waits {
    pub(super) fn has_any(&self) -> bool {
        !self.listed.lock().by_number.is_empty()
    }

    pub(super) fn all(&self) -> Vec<ListedWait> {
        let listed = self.listed.lock();
        let began = listed.by_number.values();
        let now = time::now();
        began.map(|wait| wait.listed(now)).collect()
    }
}
