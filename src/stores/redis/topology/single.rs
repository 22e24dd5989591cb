//! One server at one address, whose name may lead to another server later.

use std::time::Instant;

use crate::stores::redis::transport::{Address, CallError, Connection, Connector, KnownMaster};

pub(crate) struct Single {
    address: Address,
    /// It is never found by another name, so that a doubt only gives up the connections of its generation.
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
    /// Resolves the name anew.
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
