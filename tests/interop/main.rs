//! The libraries of other languages against this one: Redisson in a JVM, in several generations, on one server, behind
//! sentinels and in a cluster, and the token locks of Python and Go. `make interop` builds what they need and runs
//! this.
//!
//! Every test that needs another language is ignored, so that `cargo test` builds and lists it but needs none.

mod child_roles;
mod counters;
mod driver;
mod exclusion;
mod fair;
mod fixture;
mod interop_faults;
mod jvm;
mod kinds;
mod other_languages;
mod owned;
mod read_write;
#[path = "../support/mod.rs"]
mod support;
mod survey;
mod token;
mod topologies;
