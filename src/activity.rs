use std::sync::Arc;
use std::time::Duration;

use crate::engine::client_inner::ClientInner;
use crate::engine::hold::Hold;
use crate::ground::claim::VisitorId;
use crate::ground::time;
pub use crate::store::ConnectionStats;

const LISTED: usize = 100;

/// The oldest holds and waits of a client, at most 100 of each, and its connections.
///
/// [`Client::activity`](crate::Client::activity) and [`Redlock::activity`](crate::Redlock::activity) return this snapshot,
/// without I/O.
///
/// # Examples
///
/// ```
/// use redlatch::Client;
///
/// let client = Client::in_memory();
/// let _guard = client.lock("orders:42").guard()?;
/// let activity = client.activity();
/// assert_eq!(activity.holds[0].lock, "orders:42");
/// assert!(activity.waits.is_empty());
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Activity {
    /// The oldest holds.
    pub holds: Vec<ActiveHold>,
    /// The calls that have waited longest.
    pub waits: Vec<ActiveWait>,
    /// The number of holds and queue entries that a background thread tries to remove from the store after a fault.
    pub doubts: u64,
    /// The connections.
    pub connections: ConnectionStats,
}

/// A hold of this client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ActiveHold {
    /// The lock, prefix included.
    pub lock: String,
    /// The number of the holding thread, as in [`current_thread_id`](crate::current_thread_id), or of the holding
    /// [`OwnedGuard`](crate::OwnedGuard).
    pub thread: u64,
    /// The id of the hold in the store.
    pub visitor: VisitorId,
    /// The time since the acquisition.
    pub lasts: Duration,
    /// How long the hold stays valid without a further renewal; zero if the hold is not valid.
    pub remaining_validity: Duration,
}

/// A call that waits for a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ActiveWait {
    /// The lock, prefix included.
    pub lock: String,
    /// The number of the waiting thread, as in [`current_thread_id`](crate::current_thread_id), or of the
    /// [`OwnedGuard`](crate::OwnedGuard) for which the call waits.
    pub thread: u64,
    /// The time since the call began to wait.
    pub lasts: Duration,
}

impl ClientInner {
    pub(crate) fn activity(&self) -> Activity {
        // A mutex that a thread of the parent process had locked at the fork stays locked in the child.
        if self.is_forked() {
            return Activity::default();
        }
        let mut holds = self.watchdog.holds();
        holds.retain(|hold| hold.is_held());
        let mut holds: Vec<_> = holds.iter().map(|hold| (hold.age(), hold)).collect();
        holds.sort_by(|(one, _), (other, _)| other.cmp(one));
        let active = |(age, hold): (Option<Duration>, &Arc<Hold>)| ActiveHold {
            lock: hold.name.to_string(),
            thread: hold.thread,
            visitor: hold.visitor.clone(),
            lasts: age.unwrap_or_default(),
            remaining_validity: hold.remaining_validity(),
        };
        let now = time::now();
        let waits = self.counters.listed().into_iter().map(|wait| ActiveWait {
            lock: wait.lock.name.to_string(),
            thread: wait.thread,
            lasts: wait.lasts(now),
        });
        Activity {
            holds: holds.into_iter().take(LISTED).map(active).collect(),
            waits: waits.take(LISTED).collect(),
            doubts: self.watchdog.doubts(),
            connections: self.store.connections(),
        }
    }
}
