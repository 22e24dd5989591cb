//! How a sleeping visitor hears that another try is worth it: a zero-permit semaphore per channel.
//!
//! Permits go to the waiters of a channel in the order in which they came, one permit per waiter at most. A waiter
//! that leaves without having used its permit passes it on to the next, so no wake-up is lost with it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use smallvec::SmallVec;

use crate::ground::sync::{Clock, Condvar, Mutex, MutexGuard};

/// Why a parked thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// It was handed a permit by a message.
    Permit,
    /// It was handed a permit without a message: a thread of its client left, or messages may have been lost.
    Look,
    /// Its time is over.
    TimedOut,
    Interrupted,
    /// The client was shut down.
    Closed,
}

/// All sources from this one on count as one.
const LAST_SOURCE: u32 = 63;

/// The place where one waiting thread sleeps.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    state: Mutex<Parked>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Parked {
    /// The permit: [`Wake::Permit`] or [`Wake::Look`].
    permit: Option<Wake>,
    /// From which sources there was word since the last permit, a bit each.
    heard: u64,
    /// The sources of which several make a permit. Word from any other one does.
    quorums: SmallVec<[Quorum; 1]>,
    interrupted: bool,
    closed: bool,
}

/// Sources of which so many make a permit together.
#[derive(Debug)]
struct Quorum {
    sources: u64,
    needed: u32,
}

impl Parker {
    /// Sleeps until there is a permit, an interrupt or the end, at most until `deadline`. Takes the permit.
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

    /// From now on word from `needed` of the `count` sources from `first` on makes a permit. Where there are more sources
    /// than can be told apart, word from any of them does.
    pub(crate) fn need(&self, first: u32, count: u32, needed: u32) {
        if first + count > LAST_SOURCE {
            return;
        }
        let sources = ((1 << count) - 1) << first;
        let mut state = self.state.lock();
        state.quorums.retain(|quorum| quorum.sources != sources);
        state.quorums.push(Quorum { sources, needed });
    }

    /// Notes word from a source, which makes this permit. Returns whether it was news.
    fn hear(&self, source: u32, permit: Wake) -> bool {
        let mut state = self.state.lock();
        let bit = 1 << source.min(LAST_SOURCE);
        if state.permit.is_some() || state.heard & bit != 0 {
            return false;
        }
        state.heard |= bit;
        let mut quorums = state.quorums.iter();
        let is_enough = quorums
            .find(|quorum| quorum.sources & bit != 0)
            .is_none_or(|quorum| (state.heard & quorum.sources).count_ones() >= quorum.needed);
        if is_enough {
            state.heard = 0;
            state.permit = Some(permit);
            self.wake(state);
        }
        true
    }

    /// Has the waiter look without a message.
    pub(crate) fn give_permit(&self) {
        self.pass(Wake::Look);
    }

    /// Returns whether this waiter had none yet.
    fn pass(&self, permit: Wake) -> bool {
        let mut state = self.state.lock();
        let given = state.permit.is_none();
        state.permit.get_or_insert(permit);
        self.wake(state);
        given
    }

    /// Wakes the sleeper when the mutex is free: it would wait for that, and have to be woken once more.
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

/// All channels of one store that somebody in this process waits on.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    queues: HashMap<Arc<str>, VecDeque<Listener>>,
    /// Everybody who may be asleep, to be told of the end.
    parked: Vec<Weak<Parker>>,
    closed: bool,
}

#[derive(Debug)]
struct Listener {
    parker: Arc<Parker>,
    /// Which of the sources that the parker listens to this queue is.
    source: u32,
}

impl Inner {
    /// Has a parker be closed with the client.
    fn note_parker(&mut self, parker: &Arc<Parker>) {
        if self.closed {
            return parker.close();
        }
        // Amortised: the list is swept when it has doubled, so it stays within twice the living.
        if self.parked.len() == self.parked.capacity() {
            self.parked.retain(|parked| parked.strong_count() > 0);
        }
        self.parked.push(Arc::downgrade(parker));
    }
}

impl Notifier {
    /// Makes a place to sleep that ends with the client.
    pub(crate) fn parker(&self) -> Arc<Parker> {
        let parker = Arc::new(Parker::default());
        let mut inner = self.inner.lock();
        inner.note_parker(&parker);
        parker
    }

    /// Puts `parker` at the end of the queue of `channel` until the ticket is dropped, as one of the sources that the parker
    /// listens to.
    pub(crate) fn join(
        self: &Arc<Self>,
        source: u32,
        channel: &Arc<str>,
        parker: &Arc<Parker>,
    ) -> Registration {
        let mut inner = self.inner.lock();
        // One that listens to several sources is the parker of another client, and sleeps no longer than this one lives.
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

    /// Hands a permit each to the first `most` waiters of `channel` that have none: word, if they listen to several
    /// sources. Word for all of them nobody lets by. Returns for how many it was news.
    pub(crate) fn release(&self, channel: &str, most: usize) -> usize {
        self.hand_out(channel, most, Wake::Permit)
    }

    /// Has all waiters of `channel` look, as messages may have been lost.
    pub(crate) fn have_look(&self, channel: &str) {
        self.hand_out(channel, usize::MAX, Wake::Look);
    }

    fn hand_out(&self, channel: &str, most: usize, permit: Wake) -> usize {
        let inner = self.inner.lock();
        let waiters = inner.queues.get(channel).into_iter().flatten();
        let woken = waiters.filter(|waiter| waiter.parker.hear(waiter.source, permit));
        woken.take(most).count()
    }

    /// How many wait on `channel` for it and for others at once: they stand in no queue for it.
    pub(crate) fn waiters_for_several(&self, channel: &str) -> usize {
        let inner = self.inner.lock();
        let waiters = inner.queues.get(channel).into_iter().flatten();
        waiters.filter(|waiter| waiter.source > 0).count()
    }

    /// Wakes everybody who sleeps.
    #[cfg(feature = "in-memory")]
    pub(crate) fn wake_all(&self) {
        let parked = &self.inner.lock().parked;
        for parker in parked.iter().filter_map(|parked| parked.upgrade()) {
            parker.give_permit();
        }
    }

    /// Ends every wait, now and later.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        for parked in inner.parked.drain(..).filter_map(|parked| parked.upgrade()) {
            parked.close();
        }
    }
}

/// A place in the queue of a channel.
#[derive(Debug)]
pub(crate) struct Registration {
    notifier: Arc<Notifier>,
    channel: Arc<str>,
    parker: Arc<Parker>,
    /// A permit was taken and no attempt was answered since: it must not be lost if this waiter leaves.
    owes: Option<Wake>,
}

impl Registration {
    /// Sleeps as [`Parker::park`] does.
    pub(crate) fn park(&mut self, deadline: Option<Instant>) -> Wake {
        let wake = self.parker.park(deadline);
        if matches!(wake, Wake::Permit | Wake::Look) {
            self.owes = Some(wake);
        }
        wake
    }

    /// Notes that the store has answered an attempt, so the permit that led to it is spent.
    pub(crate) fn spend(&mut self) {
        self.owes = None;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut inner = self.notifier.inner.lock();
        if let Some(queue) = inner.queues.get_mut(&self.channel) {
            queue.retain(|waiter| !Arc::ptr_eq(&waiter.parker, &self.parker));
            // Taken under the same lock that givers hold: nobody can hand us another one behind this line.
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

// Its threads are not those of shuttle.
#[cfg(all(test, not(redlatch_shuttle)))]
#[path = "notify/tests.rs"]
mod tests;
