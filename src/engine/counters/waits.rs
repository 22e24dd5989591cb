use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::counters::Counters;
use crate::engine::counters::class::ClassId;
use crate::ground::claim::LockId;
use crate::ground::{metrics, time};

#[derive(Debug, Default)]
pub(super) struct Waits {
    last: u64,
    pub(super) listed: BTreeMap<u64, Arc<ListedWait>>,
}

#[derive(Debug)]
pub(crate) struct ListedWait {
    pub(crate) class: ClassId,
    pub(crate) lock: LockId,
    pub(crate) thread: u64,
    since: Instant,
}

/// A wait in the client's list of waits. Dropping this value removes the wait from the list.
#[derive(Debug)]
pub(crate) struct OpenWait {
    counters: Arc<Counters>,
    number: u64,
    wait: Arc<ListedWait>,
    /// The wait is reported next when it has this age.
    long_from: Duration,
}

impl ListedWait {
    pub(crate) fn lasts(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

impl OpenWait {
    pub(crate) fn begin(
        counters: &Arc<Counters>,
        class: ClassId,
        lock: &LockId,
        thread: u64,
    ) -> OpenWait {
        let wait = Arc::new(ListedWait {
            class,
            lock: lock.clone(),
            thread,
            since: time::now(),
        });
        metrics::waiters(counters.class(class), 1.0);
        let mut waits = counters.waits.lock();
        waits.last += 1;
        let number = waits.last;
        waits.listed.insert(number, Arc::clone(&wait));
        OpenWait {
            counters: Arc::clone(counters),
            number,
            wait,
            long_from: counters.settings.long_wait,
        }
    }

    /// Reports a wait when its age reaches `long_wait`, and each time that its age has doubled.
    pub(crate) fn report_if_long(&mut self, now: Instant, holder: Option<&str>) {
        let lasts = self.wait.lasts(now);
        if lasts >= self.long_from {
            self.long_from = lasts.saturating_mul(2);
            self.counters.long_wait(&self.wait, lasts, holder);
        }
    }
}

impl Drop for OpenWait {
    fn drop(&mut self) {
        let mut waits = self.counters.waits.lock();
        waits.listed.remove(&self.number);
        drop(waits);
        metrics::waiters(self.counters.class(self.wait.class), -1.0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::engine::counters::CountSettings;
    use crate::ground::claim::Kind;
    use crate::ground::clock::PROCESS;
    use crate::ground::observer::{Event, Observed, Observer};

    /// The number of other waiters in the last `Event::LongWait`; 100 if none has arrived.
    #[derive(Debug)]
    struct Others(AtomicUsize);

    impl Observer for Others {
        fn event(&self, event: &Event<'_>) {
            if let Event::LongWait { others, .. } = event {
                self.0.store(*others, Ordering::Relaxed);
            }
        }
    }

    fn begin(counters: &Arc<Counters>, lock: &str, thread: u64) -> OpenWait {
        let (kind, name) = (Kind::Reentrant, lock.into());
        let class = counters.class_of(lock);
        OpenWait::begin(counters, class, &LockId { kind, name }, thread)
    }

    #[test]
    fn a_wait_is_listed_until_its_end() {
        let counters = Arc::<Counters>::default();
        let threads = || {
            counters
                .listed()
                .iter()
                .map(|it| it.thread)
                .collect::<Vec<_>>()
        };
        assert!(!counters.has_waits());
        let first = begin(&counters, "orders:1", 7);
        let second = begin(&counters, "orders:1", 8);
        assert!(counters.has_waits());
        assert_eq!(threads(), [7, 8]);
        drop(first);
        assert_eq!(threads(), [8]);
        drop(second);
        assert!(!counters.has_waits());
    }

    #[test]
    fn a_long_wait_is_reported_at_each_doubling() {
        let others = Arc::new(Others(AtomicUsize::new(100)));
        let counters = Arc::new(Counters::new(
            CountSettings {
                observer: Observed::by(Arc::<Others>::clone(&others)),
                long_wait: Duration::from_secs(10),
                ..CountSettings::default()
            },
            &PROCESS,
        ));
        let told = || others.0.swap(100, Ordering::Relaxed);
        let mut wait = begin(&counters, "orders:1", 7);
        let _same = begin(&counters, "orders:1", 8);
        let _others = [2, 3, 4].map(|lock| begin(&counters, &format!("orders:{lock}"), 9));
        for (lasts, expected) in [(9, 100), (10, 1), (19, 100), (20, 1), (39, 100)] {
            wait.report_if_long(wait.wait.since + Duration::from_secs(lasts), None);
            assert_eq!(told(), expected, "after {lasts} s");
        }
    }
}
