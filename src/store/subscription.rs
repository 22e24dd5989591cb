//! The subscription of a waiter to unlock messages.

use std::time::Duration;

use crate::ground::notify::Registration;

/// Whether unlock messages reach a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Live,
    /// The subscription is not confirmed yet; the waiter is woken when it is.
    Pending,
    /// No messages arrive; the waiter polls.
    Polling,
}

impl Delivery {
    /// The delivery to a waiter that needs a message from each of `needed` parts.
    pub(crate) fn joint(parts: &[Subscription], needed: usize) -> Delivery {
        let count = |what| parts.iter().filter(|part| part.delivery == what).count();
        if count(Delivery::Live) >= needed {
            Delivery::Live
        } else if count(Delivery::Polling) > parts.len() - needed {
            Delivery::Polling
        } else {
            Delivery::Pending
        }
    }
}

/// The entry of a waiter in the client's queue, and the parts that deliver messages to it.
pub(crate) struct Subscription {
    /// Declared before `keep`, and so dropped before it: the entry must leave its queue before its sources end.
    pub(crate) registration: Registration,
    pub(crate) delivery: Delivery,
    /// How many of the parker's sources this subscription uses.
    pub(crate) sources: u32,
    /// The longest random pause between a message and the next attempt, so that waiters do not attempt all at once.
    pub(crate) jitter: Duration,
    pub(crate) keep: Option<Box<dyn Send>>,
}

impl Subscription {
    /// An entry with one source and no jitter.
    pub(crate) fn of(registration: Registration, delivery: Delivery) -> Subscription {
        Subscription {
            registration,
            delivery,
            sources: 1,
            jitter: Duration::ZERO,
            keep: None,
        }
    }
}
