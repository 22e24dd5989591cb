//! The sleep of one waiting thread, and how it is woken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::wait_loop::WaitLimit;
use crate::ground::claim::{LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::notify::{Parker, Wake};
use crate::store::{Delivery, Store, StoreEntry, Subscription};

/// The place where one waiting thread sleeps, made when it is first needed.
pub(super) struct Sleeper<'a> {
    store: &'a dyn Store,
    lock: &'a LockId,
    /// It listens to no messages.
    polls: bool,
    limit: WaitLimit<'a>,
    parker: Option<Arc<Parker>>,
    subscription: Option<Subscription>,
    /// The visitor that it listens for, where it has a place of its own.
    place: Option<VisitorId>,
}

impl<'a> Sleeper<'a> {
    pub(super) fn new(
        store: &'a dyn Store,
        lock: &'a LockId,
        polls: bool,
        limit: WaitLimit<'a>,
    ) -> Sleeper<'a> {
        Sleeper {
            store,
            lock,
            polls,
            limit,
            parker: None,
            subscription: None,
            place: None,
        }
    }

    pub(super) fn parker(&mut self) -> &Arc<Parker> {
        self.parker.get_or_insert_with(|| {
            let parker = self.store.facts().notifier.parker();
            if let Some(interrupt) = self.limit.interrupt {
                interrupt.attach(&parker);
            }
            parker
        })
    }

    /// Whether and how messages arrive, and up to how long to wait after one; `None` as long as it does not listen.
    pub(super) fn messages(&self) -> Option<(Delivery, Duration)> {
        if self.polls {
            return Some((Delivery::Polling, Duration::ZERO));
        }
        let subscription = self.subscription.as_ref()?;
        Some((subscription.delivery, subscription.jitter))
    }

    /// Joins those who listen, for the visitor that has this place.
    pub(super) fn listen(&mut self, subscription: Subscription, entry: Option<StoreEntry<'_>>) {
        self.subscription = Some(subscription);
        self.place = entry.map(StoreEntry::visitor).cloned();
    }

    /// Leaves those who listen if the place is that of another visitor by now, whose messages go elsewhere.
    pub(super) fn stands_at(&mut self, entry: Option<StoreEntry<'_>>) {
        if self.place.as_ref() != entry.map(StoreEntry::visitor) {
            self.stop_listening();
            self.place = None;
        }
    }

    /// Leaves those who listen: the next of them gets the message that led to no question yet.
    pub(super) fn stop_listening(&mut self) {
        if let Some(subscription) = self.subscription.take() {
            // The place in the queue goes before the subscription that feeds it.
            drop(subscription.registration);
            drop(subscription.keep);
        }
    }

    /// Notes that the store has answered, so the message that led to the question is used up.
    pub(super) fn spend(&mut self) {
        if let Some(subscription) = &mut self.subscription {
            subscription.registration.spend();
        }
    }

    /// Sleeps until it is woken, or until `deadline`. An interrupt and the client's end are errors.
    pub(super) fn sleep(&mut self, deadline: Instant) -> Result<Wake> {
        let wake = match &mut self.subscription {
            Some(subscription) => {
                let registration = &mut subscription.registration;
                registration.park(Some(deadline))
            }
            None => self.parker().park(Some(deadline)),
        };
        self.woken(wake)
    }

    /// Sleeps until `deadline`, or until something wakes it, and leaves the messages that came. An interrupt and the client's
    /// end are errors.
    pub(super) fn rests_on(&mut self, deadline: Instant) -> Result<Wake> {
        let wake = self.parker().park(Some(deadline));
        self.woken(wake)
    }

    fn woken(&self, wake: Wake) -> Result<Wake> {
        let lock = || Arc::clone(&self.lock.name);
        match wake {
            Wake::Interrupted => Err(Error::Interrupted { lock: lock() }),
            Wake::Closed => Err(Error::Closed { lock: lock() }),
            wake => Ok(wake),
        }
    }
}
