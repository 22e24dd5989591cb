//! Wakes the waiters of a channel when messages arrive. A message can give permits to waiters. A permit allows a waiter
//! one attempt to acquire the lock.
//!
//! The waiters of a channel get permits in the order in which they joined. A waiter has at most one permit. If a waiter
//! leaves with an unused permit, the first waiter without a permit gets it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use smallvec::SmallVec;

use crate::ground::sync::{Clock, Condvar, Mutex, MutexGuard};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The thread got a permit from a message.
    Permit,
    /// The thread got a permit without a message: the queue of this client's waiters changed, messages may have been lost,
    /// or a test moved the clock.
    Look,
    TimedOut,
    Interrupted,
    Closed,
}

/// A waiter can listen to several message sources, and numbers them. A source is a channel at one node. Sources with
/// this number or a larger number share a bit of `notified_by`.
const LAST_SOURCE: u32 = 63;

#[derive(Debug, Default)]
pub(crate) struct Parker {
    state: Mutex<Parked>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Parked {
    /// Either [`Wake::Permit`] or [`Wake::Look`].
    permit: Option<Wake>,
    /// One bit for each source with an unused message. When messages give a permit, all messages are used.
    notified_by: u64,
    /// If a source is in none of these groups, its message alone gives a permit.
    groups: SmallVec<[SourceGroup; 1]>,
    interrupted: bool,
    closed: bool,
}

/// Each bit of `sources` is one message source. The waiter gets a permit after `needed` sources have sent a message.
#[derive(Debug)]
struct SourceGroup {
    sources: u64,
    needed: u32,
}

impl Parker {
    pub(crate) fn park(&self, deadline: Option<Instant>) -> Wake {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return Wake::Closed;
            }
            if state.interrupted {
                return Wake::Interrupted;
            }
            if let Some(wake) = state.permit.take() {
                return wake;
            }
            if deadline.is_some_and(|deadline| Clock::look().has_passed(deadline)) {
                return Wake::TimedOut;
            }
            state = self.changed.wait(state, deadline);
        }
    }

    /// After this call, the sources `first .. first + count` give a permit only if `needed` of them have sent a message. If
    /// there are too many sources to distinguish, one message of any source is enough.
    pub(crate) fn need(&self, first: u32, count: u32, needed: u32) {
        if first + count > LAST_SOURCE {
            return;
        }
        let sources = ((1 << count) - 1) << first;
        let mut state = self.state.lock();
        state.groups.retain(|group| group.sources != sources);
        state.groups.push(SourceGroup { sources, needed });
    }

    /// Returns false if the thread already had a permit or an unused message of this source.
    fn note_message(&self, source: u32, permit: Wake) -> bool {
        let mut state = self.state.lock();
        let bit = 1 << source.min(LAST_SOURCE);
        if state.permit.is_some() || state.notified_by & bit != 0 {
            return false;
        }
        state.notified_by |= bit;
        let mut groups = state.groups.iter();
        let group = groups.find(|group| group.sources & bit != 0);
        let is_enough = group
            .is_none_or(|group| (state.notified_by & group.sources).count_ones() >= group.needed);
        if is_enough {
            state.notified_by = 0;
            state.permit = Some(permit);
            self.wake(state);
        }
        true
    }

    pub(crate) fn give_permit(&self) {
        self.pass(Wake::Look);
    }

    fn pass(&self, permit: Wake) -> bool {
        let mut state = self.state.lock();
        let given = state.permit.is_none();
        state.permit.get_or_insert(permit);
        self.wake(state);
        given
    }

    /// Unlocks the mutex before it wakes the thread. Otherwise the thread would wake and at once block on the mutex.
    fn wake(&self, state: MutexGuard<'_, Parked>) {
        drop(state);
        self.changed.notify_one();
    }

    fn take_permit(&self) -> Option<Wake> {
        self.state.lock().permit.take()
    }

    pub(crate) fn interrupt(&self) {
        let mut state = self.state.lock();
        state.interrupted = true;
        self.wake(state);
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.wake(state);
    }
}

/// The waiters of one client, by channel.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    queues: HashMap<Arc<str>, VecDeque<Listener>>,
    /// The parkers of all threads that may sleep, so that [`Notifier::close`] can wake them.
    parked: Vec<Weak<Parker>>,
    closed: bool,
}

#[derive(Debug)]
struct Listener {
    parker: Arc<Parker>,
    /// The number of the message source; see [`LAST_SOURCE`].
    source: u32,
}

impl Inner {
    fn note_parker(&mut self, parker: &Arc<Parker>) {
        if self.closed {
            return parker.close();
        }
        if self.parked.len() == self.parked.capacity() {
            self.parked.retain(|parked| parked.strong_count() > 0);
        }
        self.parked.push(Arc::downgrade(parker));
    }
}

impl Notifier {
    pub(crate) fn parker(&self) -> Arc<Parker> {
        let parker = Arc::new(Parker::default());
        let mut inner = self.inner.lock();
        inner.note_parker(&parker);
        parker
    }

    /// The waiter stays in the queue of `channel` until the returned registration is dropped.
    pub(crate) fn join(
        self: &Arc<Self>,
        source: u32,
        channel: &Arc<str>,
        parker: &Arc<Parker>,
    ) -> Registration {
        let mut inner = self.inner.lock();
        // A thread that waits for locks of several clients has one parker, which another client may have made. The
        // parker must wake when any of these clients is closed.
        let is_known = |parked: &Weak<Parker>| parked.as_ptr() == Arc::as_ptr(parker);
        if source > 0 && !inner.parked.iter().any(is_known) {
            inner.note_parker(parker);
        }
        let waiter = Listener {
            parker: Arc::clone(parker),
            source,
        };
        let queue = inner.queues.entry(Arc::clone(channel)).or_default();
        queue.push_back(waiter);
        Registration {
            notifier: Arc::clone(self),
            channel: Arc::clone(channel),
            parker: Arc::clone(parker),
            owes: None,
        }
    }

    /// Delivers a message to the first `most` waiters that have neither a permit nor an unused message of `channel`.
    /// Returns how many waiters received the message.
    pub(crate) fn release(&self, channel: &str, most: usize) -> usize {
        self.hand_out(channel, most, Wake::Permit)
    }

    /// Notifies all waiters of `channel`, because messages may have been lost.
    pub(crate) fn wake_all_of(&self, channel: &str) {
        self.hand_out(channel, usize::MAX, Wake::Look);
    }

    fn hand_out(&self, channel: &str, most: usize, permit: Wake) -> usize {
        let inner = self.inner.lock();
        let waiters = inner.queues.get(channel).into_iter().flatten();
        let woken = waiters.filter(|waiter| waiter.parker.note_message(waiter.source, permit));
        woken.take(most).count()
    }

    /// Counts the waiters of `channel` that wait for a multi-lock or a Redlock. Their source numbers are above 0. They
    /// are not in the client's wait queue for the lock of `channel`.
    pub(crate) fn waiters_for_several(&self, channel: &str) -> usize {
        let inner = self.inner.lock();
        let waiters = inner.queues.get(channel).into_iter().flatten();
        waiters.filter(|waiter| waiter.source > 0).count()
    }

    #[cfg(feature = "in-memory")]
    pub(crate) fn wake_all(&self) {
        let parked = &self.inner.lock().parked;
        for parker in parked.iter().filter_map(|parked| parked.upgrade()) {
            parker.give_permit();
        }
    }

    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        for parked in inner.parked.drain(..).filter_map(|parked| parked.upgrade()) {
            parked.close();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Registration {
    notifier: Arc<Notifier>,
    channel: Arc<str>,
    parker: Arc<Parker>,
    /// The permit that the waiter consumed for an attempt that has no reply yet. If this waiter leaves, another waiter gets
    /// the permit.
    owes: Option<Wake>,
}

impl Registration {
    pub(crate) fn park(&mut self, deadline: Option<Instant>) -> Wake {
        let wake = self.parker.park(deadline);
        if matches!(wake, Wake::Permit | Wake::Look) {
            self.owes = Some(wake);
        }
        wake
    }

    /// The store has replied to the attempt, so the permit is used up.
    pub(crate) fn spend(&mut self) {
        self.owes = None;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut inner = self.notifier.inner.lock();
        if let Some(queue) = inner.queues.get_mut(&self.channel) {
            queue.retain(|waiter| !Arc::ptr_eq(&waiter.parker, &self.parker));
            // The waiter has left the queue, so no message of this channel can give it a permit after this line.
            let unspent = self.parker.take_permit().or(self.owes);
            if let Some(permit) = unspent {
                queue.iter().any(|waiter| waiter.parker.pass(permit));
            }
            if queue.is_empty() {
                inner.queues.remove(&self.channel);
            }
        }
    }
}

#[cfg(all(test, not(redlatch_shuttle)))]
#[path = "notify/tests.rs"]
mod tests;
