//! One server at one address, whose name may lead to another server later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::stores::redis::topology::known_master::Hooks;
use crate::stores::redis::transport::{Address, CallError, Connection, Connector, Hook};

pub(crate) struct Single {
    address: Address,
    generation: AtomicU64,
    on_change: Hooks,
}

impl Single {
    pub(crate) fn new(address: Address) -> Single {
        Single {
            address,
            generation: AtomicU64::new(0),
            on_change: Hooks::default(),
        }
    }
}

impl Connector for Single {
    /// Resolves the name anew.
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        let generation = self.generation();
        let mut connection = Connection::connect(&self.address, deadline)?;
        connection.generation = generation;
        Ok(connection)
    }

    fn node(&self) -> Arc<str> {
        Arc::clone(&self.address.node)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Gives up the connections of this generation: they lead to a server that is no master any more.
    fn suspect(&self, generation: u64) {
        let (now, next) = (Ordering::AcqRel, generation.wrapping_add(1));
        let raised = self
            .generation
            .compare_exchange(generation, next, now, Ordering::Acquire);
        if raised.is_ok() {
            self.on_change.call();
        }
    }

    fn on_change(&self, hook: Hook) {
        self.on_change.add(hook);
    }
}
