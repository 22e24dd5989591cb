//! The library as `build.rs` makes it for the simulation.

// Its unit tests, which clippy would compile here, need the original files.
#![cfg(not(test))]

include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));

pub use engine::owner::thread_holds;

// So that rustfmt finds them.
#[cfg(false)]
mod swapped;
