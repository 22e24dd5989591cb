//! The real libraries of other languages against this one: Redisson in a JVM, in several generations, on one server,
//! behind sentinels and in a cluster, and the token locks of Python and Go. `make interop` builds what they need and
//! runs this.
//!
//! Every test that needs another language is ignored, so that `cargo test` builds and names them but needs none.

#[path = "../topologies/bed/mod.rs"]
mod bed;
mod both_ways;
mod children;
mod driver;
mod foreign;
mod hostile;
mod jvm;
#[path = "../it/kit/mod.rs"]
mod kit;
mod place;
mod token;
mod topologies;
