//! How often something took how long, in fixed buckets that any thread may add to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of all buckets but the last, which has none.
const BOUNDS: [Duration; 17] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
];

const BUCKETS: usize = BOUNDS.len() + 1;

/// The durations noted so far.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Histogram {
    pub(crate) fn note(&self, took: Duration) {
        let at = BOUNDS.partition_point(|bound| *bound < took);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Durations {
        let mut buckets = [0; BUCKETS];
        for (count, bucket) in buckets.iter_mut().zip(&self.buckets) {
            *count = bucket.load(Ordering::Relaxed);
        }
        Durations {
            buckets,
            sum: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

/// How often something took how long.
///
/// It counts in 18 buckets, whose upper bounds go from 1 ms to 30 min; the last one has no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    buckets: [u64; BUCKETS],
    sum: Duration,
}

impl Durations {
    /// Returns how many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns how long all of them took together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the buckets from the shortest on: the upper bound, `None` for the last, and how many durations are at most
    /// that long and longer than the bound before.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bounds = BOUNDS.into_iter().map(Some).chain([None]);
        bounds.zip(self.buckets.iter().copied())
    }

    /// Returns a time that this share of the durations, 0 ..= 1, did not exceed: the upper bound of a bucket.
    ///
    /// `None` if there were none, or if that bucket is the last one, which has no bound.
    pub fn at_most(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        let mut seen = 0;
        let within = self.buckets().find(|(_, in_bucket)| {
            seen += in_bucket;
            seen > 0 && seen as f64 >= share * count as f64
        });
        within?.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(noted: &[u64]) -> Durations {
        let histogram = Histogram::default();
        for ms in noted {
            histogram.note(Duration::from_millis(*ms));
        }
        histogram.read()
    }

    #[test]
    fn a_bound_is_in_its_own_bucket_and_what_is_longer_in_the_next() {
        let durations = of(&[1, 2, 3, 5]);
        let first: Vec<_> = durations
            .buckets()
            .take(4)
            .map(|(_, count)| count)
            .collect();
        assert_eq!(first, [1, 1, 2, 0]);
        assert_eq!(durations.count(), 4);
        assert_eq!(durations.sum(), Duration::from_millis(11));
    }

    #[test]
    fn the_longest_have_a_bucket_without_a_bound() {
        let durations = of(&[30 * 60_000, 30 * 60_000 + 1]);
        let last: Vec<_> = durations.buckets().skip(16).collect();
        assert_eq!(last, [(Some(Duration::from_secs(1800)), 1), (None, 1)]);
    }

    #[test]
    fn a_share_is_told_by_the_bound_of_its_bucket() {
        let durations = of(&[1, 1, 1, 40]);
        assert_eq!(durations.at_most(0.75), Some(Duration::from_millis(1)));
        assert_eq!(durations.at_most(0.76), Some(Duration::from_millis(50)));
        assert_eq!(durations.at_most(0.0), Some(Duration::from_millis(1)));
        assert_eq!(of(&[]).at_most(0.5), None);
        assert_eq!(of(&[4_000_000]).at_most(0.5), None);
    }
}
