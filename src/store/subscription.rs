//! A place in a queue of waiters.

use std::time::Duration;

use crate::ground::notify::Registration;

/// Whether a visitor in a queue of waiters is told when another try is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// From now on.
    Live,
    /// Soon, and it is woken when that begins.
    Pending,
    /// Never; it has to ask now and then.
    Polling,
}

impl Delivery {
    /// How messages come of which `needed` parts have to send theirs.
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

/// A place in a queue of waiters, and whatever has to be kept so that wake-ups arrive there.
pub(crate) struct Subscription {
    /// Stands before `keep`, as the place in the queue has to go before what feeds it.
    pub(crate) registration: Registration,
    pub(crate) delivery: Delivery,
    /// How many sources of the sleeper's it takes.
    pub(crate) sources: u32,
    /// How long it waits at most, by chance, between being woken and asking, so that not all ask at once.
    pub(crate) jitter: Duration,
    pub(crate) keep: Option<Box<dyn Send>>,
}

impl Subscription {
    /// A place that takes one source, and is told at once.
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
