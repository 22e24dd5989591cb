//! Sets of servers as in production, and their failures.

pub mod certificates;
pub mod cluster;
pub mod fake_cluster_node;
pub mod fake_sentinel;
pub mod fake_server;
pub mod node;
pub mod replicas;
pub mod sentinels;

use std::thread;
use std::time::Duration;

pub use certificates::Certificates;
pub use cluster::{Cluster, Migration};
pub use fake_cluster_node::FakeClusterNode;
pub use fake_sentinel::FakeSentinel;
pub use node::{Access, Node};
pub use replicas::Replicas;
pub use sentinels::{Sentinel, Sentinels};

/// The time limit for an agreement of servers; most of it is slack for a busy machine.
pub const AGREEMENT: Duration = Duration::from_secs(300);

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
