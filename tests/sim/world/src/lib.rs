//! A world that runs on one seed: threads that take turns, a clock that advances when no thread can run, processes, a
//! network.
//!
//! There is one world per process of the operating system, see [`scheduler::begin`].

#![allow(
    missing_docs,
    clippy::expect_used,
    reason = "it is used by the simulation alone, which cannot go on when the world is broken"
)]

pub mod events;
pub mod network;
pub mod scheduler;

use std::sync::OnceLock;

static PLANTED: OnceLock<String> = OnceLock::new();

/// Plants a bug of the library in this process.
pub fn plant(bug: &str) {
    PLANTED.get_or_init(|| bug.to_owned());
}

pub fn is_planted(bug: &str) -> bool {
    PLANTED.get().is_some_and(|planted| planted == bug)
}
