//! Clients of servers in this process, for the tests of other modules.
#![allow(clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use super::World;
use crate::stores::redis::node::RedisNode;
use crate::stores::redis::{Redis, Settings};

/// A client of this server with the default settings.
pub(crate) fn store_of(world: &Arc<World>) -> Arc<Redis> {
    let settings = Settings::default();
    Arc::new(Redis::in_memory(world, &settings))
}

/// A server of its own as the node of a quorum.
pub(crate) fn node() -> Arc<RedisNode> {
    let node = store_of(&Arc::default()).as_node();
    Arc::new(node.unwrap_or_else(|error| panic!("{error}")))
}
