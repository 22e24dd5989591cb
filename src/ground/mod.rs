//! Types that all other modules use, such as ids, clocks, errors, and primitives with which threads sleep and wake.

pub(crate) mod background;
pub(crate) mod backoff;
pub(crate) mod claim;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod guarded_work;
pub(crate) mod host;
pub(crate) mod interrupt;
pub(crate) mod loss;
pub(crate) mod notify;
pub(crate) mod numbers;
pub(crate) mod observer;
pub(crate) mod permit_id;
pub(crate) mod poll;
pub(crate) mod process;
pub(crate) mod process_name;
pub(crate) mod random;
pub(crate) mod reply;
pub(crate) mod sync;
pub(crate) mod time;
