//! Redisson itself, in a JVM, against this library: `make interop` builds the JVM's side and runs this for several
//! generations of Redisson.
//!
//! Every test that needs Java is ignored, so that `cargo test` builds and names them but needs no Java.

mod both_ways;
mod children;
mod hostile;
mod jvm;
#[path = "../it/kit/mod.rs"]
mod kit;
mod place;
