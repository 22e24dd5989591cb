//! All integration tests, as one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "what cannot go on fails the test, and some tell what they measured"
)]

#[macro_use]
mod place;

mod acl;
mod api;
mod borrowed_servers;
mod chaos;
mod children;
mod crowd;
mod documents;
mod errors;
mod examples;
mod faults_process;
mod faults_server;
mod faults_transport;
mod faults_waiting;
mod holds;
mod kit;
mod laws;
mod line;
mod multi_lock;
#[cfg(feature = "mysql")]
mod mysql;
mod oracles;
mod redlock;
#[cfg(feature = "test-util")]
mod testing;
mod tidy;
#[cfg(feature = "tls")]
mod tls;
mod token;
