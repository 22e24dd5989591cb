use std::sync::Arc;

use super::World;
use crate::stores::redis::{Redis, Settings};

pub(crate) fn store_of(world: &Arc<World>) -> Arc<Redis> {
    let settings = Settings::default();
    Arc::new(Redis::in_memory(world, &settings))
}
