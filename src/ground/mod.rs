//! The ground that every floor stands on: claims, clocks, errors, and how threads sleep and are woken.

pub(crate) mod backoff;
pub(crate) mod claim;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod interrupt;
pub(crate) mod loss;
pub(crate) mod notify;
pub(crate) mod poll;
pub(crate) mod random;
pub(crate) mod sync;
pub(crate) mod time;
