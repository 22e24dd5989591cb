//! The specification of the scripts by which redlatch locks, and a simulated Redis server that runs them.
//!
//! [`scripts`] has each Lua script once more as a function in Rust; the tests of the library compare both on a real
//! server. [`Server`] is a state machine without a clock and without threads: the time is an argument of each request.

mod commands;
mod keyspace;
mod plant;
pub mod reply;
pub mod request;
pub mod scripts;
mod server;

pub use commands::{Answer, Redis, Refused, Subscriptions, Surroundings};
pub use keyspace::{Change, Entry, Key, Keyspace, Value, time_in};
pub use plant::plant;
pub use reply::Reply;
pub use server::{
    Address, Changes, Config, Delivery, Persistence, Server, SlotRange, Snapshot, slot, warm_up,
};
