//! The way to a stub, which leads to another server when a test says so.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{StubServer, settings};
use crate::stores::redis::Redis;
use crate::stores::redis::transport::{Address, CallError, Connection, Connector, Hook, TlsConfig};

type Meanwhile = Box<dyn FnMut(&Route) + Send>;

/// A connector that does as a test says.
pub(crate) struct Route {
    address: Address,
    generation: AtomicU64,
    can_fail_over: AtomicBool,
    fails: AtomicBool,
    is_closed: AtomicBool,
    hooks: Mutex<Vec<Hook>>,
    suspected: Mutex<Vec<u64>>,
    /// When it was asked for a connection, and until when.
    tries: Mutex<Vec<(Instant, Instant)>>,
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl Route {
    pub(crate) fn to(server: &StubServer) -> Arc<Route> {
        let timeout = Duration::from_secs(3);
        let address = Address::parse(&server.url(), timeout, &TlsConfig::default()).unwrap();
        Arc::new(Route {
            address,
            generation: AtomicU64::new(0),
            can_fail_over: AtomicBool::new(false),
            fails: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            hooks: Mutex::default(),
            suspected: Mutex::default(),
            tries: Mutex::default(),
            meanwhile: Mutex::default(),
        })
    }

    /// The store of a client that takes this way.
    pub(crate) fn store(self: &Arc<Route>) -> Arc<Redis> {
        Arc::new(Redis::on(Arc::clone(self) as _, 0, &settings()))
    }

    /// From now on another server may take over.
    pub(crate) fn fail_over(&self) {
        self.can_fail_over.store(true, Ordering::Relaxed);
    }

    /// Whether it finds no server.
    pub(crate) fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Leads to another server, and says so.
    pub(crate) fn change(&self) {
        self.change_unheard();
        for hook in &*self.hooks.lock().unwrap() {
            hook();
        }
    }

    /// Leads to another server, and tells nobody.
    pub(crate) fn change_unheard(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Does this each time when a connection was made, before it is given out.
    pub(crate) fn meanwhile(&self, act: impl FnMut(&Route) + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(act));
    }

    /// The generations that were said to take no writes.
    pub(crate) fn suspected(&self) -> Vec<u64> {
        self.suspected.lock().unwrap().clone()
    }

    /// When it was asked for a connection, and until when.
    pub(crate) fn tries(&self) -> Vec<(Instant, Instant)> {
        self.tries.lock().unwrap().clone()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

impl Connector for Route {
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        let now = Instant::now();
        self.tries.lock().unwrap().push((now, deadline));
        if self.fails.load(Ordering::Relaxed) {
            return Err(CallError::NotSent("there is no server".into()));
        }
        let generation = self.generation();
        let mut connection = Connection::connect(&self.address, deadline)?;
        connection.generation = generation;
        if let Some(act) = &mut *self.meanwhile.lock().unwrap() {
            act(self);
        }
        Ok(connection)
    }

    fn node(&self) -> Arc<str> {
        Arc::clone(&self.address.node)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn can_fail_over(&self) -> bool {
        self.can_fail_over.load(Ordering::Relaxed)
    }

    fn suspect(&self, generation: u64) {
        self.suspected.lock().unwrap().push(generation);
    }

    fn on_change(&self, hook: Hook) {
        self.hooks.lock().unwrap().push(hook);
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}
