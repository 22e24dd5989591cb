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
