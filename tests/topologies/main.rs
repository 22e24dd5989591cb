//! Sentinel, Cluster, replicas and TLS on real servers: `make topologies` runs this.
//!
//! Every test that needs more than one server is ignored, so that `cargo test` builds and lists it but stays fast.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what cannot go on fails the test"
)]

#[macro_use]
mod backends;

mod announced;
mod child_roles;
mod cluster;
#[path = "../it/laws/mod.rs"]
mod laws;
mod network;
mod replicas;
mod sentinel;
mod serial;
mod shop;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls;

use std::io::Write;

/// Prints a result to the terminal, past the output capture of the test harness.
fn report(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "\n{text}");
}
