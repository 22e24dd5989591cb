//! A single server. Its host name may resolve to another server later.

use std::time::Instant;

use crate::stores::redis::transport::{Address, CallError, Connection, Connector, KnownMaster};

pub(crate) struct Single {
    address: Address,
    /// The master's host and port never change. So a suspected failover only closes the open connections.
    known_master: KnownMaster,
}

impl Single {
    pub(crate) fn new(address: Address) -> Single {
        Single {
            known_master: KnownMaster::new(address.node.clone()),
            address,
        }
    }
}

impl Connector for Single {
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        let generation = self.known_master.generation();
        let mut connection = Connection::connect(&self.address, deadline)?;
        connection.generation = generation;
        Ok(connection)
    }

    fn master(&self) -> &KnownMaster {
        &self.known_master
    }
}
