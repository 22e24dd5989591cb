//! All integration tests, as one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "what cannot go on fails the test, and some tell what they measured"
)]

#[macro_use]
mod backends;

mod acl;
mod api;
mod child_roles;
mod condition;
mod credentials;
mod documents;
mod errors;
mod examples;
mod fair;
mod faults;
mod fenced;
mod guarded;
mod holds;
mod invariants;
mod kinds;
mod latch;
mod laws;
mod multi_lock;
#[cfg(feature = "mysql")]
mod mysql;
mod observed;
mod owned;
mod processes_under_faults;
mod read_write;
mod redlock;
mod semaphore;
mod spin;
#[path = "../support/mod.rs"]
mod support;
mod support_tests;
mod survey;
#[cfg(feature = "test-util")]
mod testing;
mod tidy;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod wait_queue;
