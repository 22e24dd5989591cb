use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::ground::observer::{Event, Observed};
use crate::ground::{metrics, time};

/// The connection counts of a client.
///
/// For a [`Redlock`](crate::Redlock), each count is the sum over all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// The number of idle connections.
    pub idle: u64,
    /// The number of connections that are in use by a request, a transaction or a subscriber, or that lead to a sentinel.
    pub busy: u64,
    /// Whether there are subscriptions but no connection for their messages.
    pub is_subscriber_down: bool,
}

impl ConnectionStats {
    pub(crate) fn add(&mut self, other: ConnectionStats) {
        self.idle += other.idle;
        self.busy += other.busy;
        self.is_subscriber_down |= other.is_subscriber_down;
    }
}

#[derive(Debug, Default)]
pub(crate) struct ConnectionCounter {
    observer: Observed,
    open: AtomicU64,
}

/// Counts one open connection until dropped.
#[derive(Debug)]
pub(crate) struct Opened(Arc<ConnectionCounter>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        metrics::connections(-1.0);
    }
}

impl ConnectionCounter {
    pub(crate) fn with_observer(observer: Observed) -> ConnectionCounter {
        ConnectionCounter {
            observer,
            ..ConnectionCounter::default()
        }
    }

    pub(crate) fn opened(self: &Arc<Self>) -> Opened {
        self.open.fetch_add(1, Ordering::Relaxed);
        metrics::connections(1.0);
        Opened(Arc::clone(self))
    }

    pub(crate) fn connected(&self, node: &str, began: Instant, result: &'static str) {
        self.observer.tell(|| Event::Connected {
            node,
            result,
            took: time::since(began),
        });
    }

    pub(crate) fn read(&self, idle: u32, is_subscriber_down: bool) -> ConnectionStats {
        let open = self.open.load(Ordering::Relaxed);
        // `idle` counts idle slots of the pool, and an idle slot may have no connection.
        let idle = u64::from(idle).min(open);
        ConnectionStats {
            idle,
            busy: open - idle,
            is_subscriber_down,
        }
    }
}
