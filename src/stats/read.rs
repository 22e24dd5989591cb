//! How the numbers of a client are read from its counters.

use crate::engine::client_inner::ClientInner;
use crate::engine::counters::class::ClassRead;
use crate::ground::loss::LossCause;
use crate::stats::{Acquisitions, ClassStats, RenewalStats, RequestStats, Stats};
use crate::store::{Operation, RequestEnd, RequestsRead};

impl ClientInner {
    pub(crate) fn stats(&self) -> Stats {
        // A thread of the parent may have had a mutex of the numbers at the fork, which nobody opens here.
        if self.is_forked() {
            return Stats::default();
        }
        let counters = &self.counters;
        let listed = counters.listed();
        let classes = counters.classes().filter_map(|(id, class)| {
            let waiters = listed.iter().filter(|wait| wait.class == id).count();
            let waiters = u64::try_from(waiters).unwrap_or(u64::MAX);
            let stats = class_stats(&class.name, class.read(), waiters);
            stats.is_used().then_some(stats)
        });
        let requests = counters.requests.read().map(request_stats);
        let requests: Vec<_> = requests.filter(|it| !it.results.is_empty()).collect();
        Stats {
            classes: classes.collect(),
            renewals: renewal_stats(&requests),
            requests,
            oldest_wait: listed.first().map(|wait| wait.lasts),
            oldest_hold: self.watchdog.oldest_hold(),
            doubts: self.watchdog.doubts(),
            connections: self.store.connections(),
        }
    }
}

impl ClassStats {
    fn is_used(&self) -> bool {
        let calls = [
            &self.acquired,
            &self.refused,
            &self.interrupted,
            &self.failed,
        ];
        self.waiters > 0 || calls.iter().any(|it| it.count() > 0)
    }
}

fn class_stats(name: &str, read: ClassRead, waiters: u64) -> ClassStats {
    let [acquired, refused, interrupted, failed] = read.waits;
    let [free, woken, polled, handed, reentered] = read.acquisitions;
    ClassStats {
        class: name.to_owned(),
        acquisitions: Acquisitions {
            free,
            woken,
            polled,
            handed,
            reentered,
        },
        contended: read.contended,
        acquired,
        refused,
        interrupted,
        failed,
        unlocked: read.unlocked,
        lost: read.lost,
        long_waits: read.long_waits,
        long_holds: read.long_holds,
        losses: some(LossCause::KINDS.into_iter().zip(read.losses)),
        holds: read.holds,
        waiters,
    }
}

fn request_stats(read: RequestsRead) -> RequestStats {
    let ends = RequestEnd::ALL.into_iter().map(RequestEnd::name);
    RequestStats {
        operation: read.operation,
        results: some(ends.zip(read.ends)),
        took: read.took,
    }
}

/// The outcomes of renewals: each hold of a request to renew has its own.
fn renewal_stats(requests: &[RequestStats]) -> RenewalStats {
    let renew = Operation::Renew.name();
    let of = requests.iter().find(|it| it.operation == renew);
    let count = |end: RequestEnd| {
        let results = of.into_iter().flat_map(|it| &it.results);
        let count = results.filter(|(name, _)| *name == end.name());
        count.map(|(_, count)| count).sum()
    };
    RenewalStats {
        renewed: count(RequestEnd::Done),
        lost: count(RequestEnd::Gone),
        unknown: count(RequestEnd::Unknown),
    }
}

/// Those that ever were.
fn some(counts: impl Iterator<Item = (&'static str, u64)>) -> Vec<(&'static str, u64)> {
    counts.filter(|(_, count)| *count > 0).collect()
}
