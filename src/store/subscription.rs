use std::time::Duration;

use crate::ground::notify::Registration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Live,
    /// The server has not confirmed the subscription yet. The confirmation will wake the waiter.
    Pending,
    /// No messages arrive, so the waiter polls.
    Polling,
}

impl Delivery {
    /// The delivery to a waiter that needs messages from `needed` of the `parts`.
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

/// The entry of a waiter in the queue of a channel, with the objects that deliver messages to the entry.
pub(crate) struct Subscription {
    /// Declared, so dropped, before `keep`: the waiter leaves the channel's queue before `keep` ends the delivery.
    pub(crate) registration: Registration,
    pub(crate) delivery: Delivery,
    /// The number of message sources of this subscription, see `ground/notify.rs`.
    pub(crate) sources: u32,
    /// The longest random pause between a message and the next attempt. It prevents simultaneous attempts.
    pub(crate) jitter: Duration,
    pub(crate) keep: Option<Box<dyn Send>>,
}

impl Subscription {
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
