//! The connections of a store, and how connecting ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::ground::observer::{Event, Observed};
use crate::ground::{numbers, time};

/// The connections of a client.
///
/// Those of a [`Redlock`](crate::Redlock) are those of its nodes together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// How many are ready for the next request.
    pub idle: u64,
    /// How many are in use: by a request or a transaction, to listen, or to ask a sentinel.
    pub busy: u64,
    /// Whether somebody waits for messages and there is no connection that they come over.
    pub is_subscriber_down: bool,
}

impl ConnectionStats {
    /// Adds those of another store.
    pub(crate) fn add(&mut self, other: ConnectionStats) {
        self.idle += other.idle;
        self.busy += other.busy;
        self.is_subscriber_down |= other.is_subscriber_down;
    }
}

/// The connections of one client, and whom it tells of them.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    observer: Observed,
    open: AtomicU64,
}

/// An open connection, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Opened(Arc<Traffic>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        numbers::connections(-1.0);
    }
}

impl Traffic {
    /// Connections that this observer hears of.
    pub(crate) fn told_to(observer: Observed) -> Traffic {
        Traffic {
            observer,
            ..Traffic::default()
        }
    }

    pub(crate) fn opened(self: &Arc<Self>) -> Opened {
        self.open.fetch_add(1, Ordering::Relaxed);
        numbers::connections(1.0);
        Opened(Arc::clone(self))
    }

    /// Tells of an attempt to connect that was begun then and has ended now.
    pub(crate) fn connected(&self, node: &str, began: Instant, result: &'static str) {
        self.observer.tell(|| Event::Connected {
            node,
            result,
            took: time::since(began),
        });
    }

    /// The connections that there are; those that are not idle are busy.
    pub(crate) fn read(&self, idle: u32, is_subscriber_down: bool) -> ConnectionStats {
        let open = self.open.load(Ordering::Relaxed);
        // A slot may be empty.
        let idle = u64::from(idle).min(open);
        ConnectionStats {
            idle,
            busy: open - idle,
            is_subscriber_down,
        }
    }
}
