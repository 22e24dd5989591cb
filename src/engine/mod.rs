//! Acquires, renews and releases locks, over any implementation of `Store`.

mod background_release;
pub(crate) mod client_inner;
pub(crate) mod counters;
pub(crate) mod hold;
pub(crate) mod loss_notice;
pub(crate) mod owner;
pub(crate) mod raw_lock;
#[cfg(test)]
mod tests;
mod timer;
pub(crate) mod wait_loop;
pub(crate) mod wait_queue;
pub(crate) mod watchdog;
