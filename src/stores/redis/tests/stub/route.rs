//! The way to a stub, which notes the doubts about it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::StubServer;
use crate::stores::redis::transport::{Address, CallError, Connection, Connector, TlsConfig};

pub(crate) struct Route {
    address: Address,
    suspected: Mutex<Vec<u64>>,
}

impl Route {
    pub(crate) fn to(server: &StubServer) -> Arc<Route> {
        let timeout = Duration::from_secs(3);
        let address = Address::parse(&server.url(), timeout, &TlsConfig::default()).unwrap();
        Arc::new(Route {
            address,
            suspected: Mutex::default(),
        })
    }

    /// The generations that were said to take no writes.
    pub(crate) fn suspected(&self) -> Vec<u64> {
        self.suspected.lock().unwrap().clone()
    }
}

impl Connector for Route {
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        Connection::connect(&self.address, deadline)
    }

    fn node(&self) -> Arc<str> {
        Arc::clone(&self.address.node)
    }

    fn generation(&self) -> u64 {
        0
    }

    fn suspect(&self, generation: u64) {
        self.suspected.lock().unwrap().push(generation);
    }
}
