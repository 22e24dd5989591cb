//! The test bed: sets of servers as production has them, and the ways they fail.
//!
//! Like the kit below it, nothing here knows the crate under test.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "a bed offers more than one run of the tests uses"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bed that does not work is a failed test"
)]

pub mod certificates;
pub mod cluster;
pub mod guide;
pub mod liar;
pub mod node;
pub mod puppet;
pub mod replicas;
pub mod sentinels;

use std::thread;
use std::time::Duration;

pub use certificates::Certificates;
pub use cluster::{Cluster, Migration};
pub use guide::Guide;
pub use liar::Liar;
pub use node::{Access, Node};
pub use replicas::Replicas;
pub use sentinels::{Sentinel, Sentinels};

/// How long a set of servers may take to agree on something; most of it is for a busy machine.
pub const AGREEMENT: Duration = Duration::from_secs(60);

/// Makes `count` things at the same time.
fn at_once<T: Send>(count: usize, make: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let make = &make;
        let making: Vec<_> = (0..count)
            .map(|index| scope.spawn(move || make(index)))
            .collect();
        making
            .into_iter()
            .map(|one| one.join().expect("it can be made"))
            .collect()
    })
}
