//! How one waiting thread sleeps and is woken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::wait_loop::WaitLimit;
use crate::ground::claim::{LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::notify::{Parker, Wake};
use crate::store::{Delivery, Store, StoreEntry, Subscription};

pub(super) struct Sleeper<'a> {
    store: &'a dyn Store,
    lock: &'a LockId,
    polls: bool,
    limit: WaitLimit<'a>,
    parker: Option<Arc<Parker>>,
    subscription: Option<Subscription>,
    /// The subscription receives the messages for this queue entry in the store.
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

    pub(super) fn messages(&self) -> Option<(Delivery, Duration)> {
        if self.polls {
            return Some((Delivery::Polling, Duration::ZERO));
        }
        let subscription = self.subscription.as_ref()?;
        Some((subscription.delivery, subscription.jitter))
    }

    pub(super) fn set_subscription(
        &mut self,
        subscription: Subscription,
        entry: Option<StoreEntry<'_>>,
    ) {
        self.subscription = Some(subscription);
        self.place = entry.map(StoreEntry::visitor).cloned();
    }

    /// Unsubscribes if the subscription is for another queue entry, because each entry has its own channel.
    pub(super) fn unsubscribe_unless_at(&mut self, entry: Option<StoreEntry<'_>>) {
        if self.place.as_ref() != entry.map(StoreEntry::visitor) {
            self.unsubscribe();
            self.place = None;
        }
    }

    /// If this waiter got a message, but no usable reply since, the next listener gets the message.
    pub(super) fn unsubscribe(&mut self) {
        if let Some(subscription) = self.subscription.take() {
            // The waiter leaves the channel's queue first, because dropping `keep` may end the delivery of messages.
            drop(subscription.registration);
            drop(subscription.keep);
        }
    }

    pub(super) fn consume_message(&mut self) {
        if let Some(subscription) = &mut self.subscription {
            subscription.registration.spend();
        }
    }

    pub(super) fn sleep(&mut self, deadline: Instant) -> Result<Wake> {
        let wake = match &mut self.subscription {
            Some(it) => it.registration.park(Some(deadline)),
            None => self.parker().park(Some(deadline)),
        };
        self.woken(wake)
    }

    pub(super) fn sleep_past_messages(&mut self, deadline: Instant) -> Result<Wake> {
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
