//! A simulated Redis server for the simulation: [`Server`] adds clusters, sentinels, replication and persistence to
//! [`redlatch_server::Server`]. [`scripts`] has the texts of the scripts, and [`plant()`] plants bugs in them.

mod plant;
pub mod reply;
pub mod scripts;
mod server;

pub use plant::{PLANTS, Plant, plant, plant_in};
pub use redlatch_server::{
    Change, Delivery, Engine, Entry, Execution, Key, Keyspace, Reply, Score, Script, Subscriptions,
    Surroundings, Unread, Value, next, slot,
};
pub use server::{Address, Changes, Config, Persistence, Server, SlotRange, Snapshot, warm_up};

/// Returns the fewest steps that still fail: it leaves out halves, quarters and so on, then single steps.
pub fn shrunk<T: Clone>(mut steps: Vec<T>, fails: &mut dyn FnMut(&[T]) -> bool) -> Vec<T> {
    let mut size = steps.len().div_ceil(2);
    loop {
        let (mut at, mut is_less) = (0, false);
        while at < steps.len() {
            let end = (at + size).min(steps.len());
            let fewer = [&steps[..at], &steps[end..]].concat();
            match fails(&fewer) {
                true => (steps, is_less) = (fewer, true),
                false => at = end,
            }
        }
        match (size, is_less) {
            (0 | 1, false) => return steps,
            (1, true) => {}
            _ => size = size.div_ceil(2),
        }
    }
}
