//! Stubs that are the masters of one cluster.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use redis::Value;

use super::{Request, Says, StubServer, bulk, settings};
use crate::stores::redis::topology::Topology;
use crate::stores::redis::topology::cluster::Cluster;
use crate::stores::redis::{Redis, keys};

/// How many slots there are.
const SLOTS: usize = 16384;

/// A request, with its time and the server that got it.
pub(crate) type Logged = (Instant, usize, Request);

/// Masters that have equal parts of the slots, and tell that to all who ask. Their messages are not sharded.
pub(crate) struct StubCluster {
    pub(crate) servers: Vec<StubServer>,
    slots: Value,
    log: Arc<Mutex<Vec<Logged>>>,
}

impl StubCluster {
    /// So many servers, of which each does what `answers` says; on `None` as [`StubServer::start`] tells.
    pub(crate) fn start(
        count: usize,
        answers: impl Fn(usize, &Request) -> Option<Says> + Send + Sync + 'static,
    ) -> StubCluster {
        let servers: Vec<_> = (0..count).map(|_| StubServer::start(|_| None)).collect();
        let part = SLOTS / count;
        let slots = servers.iter().enumerate().map(|(index, server)| {
            let address = server.address();
            let (host, port) = address.rsplit_once(':').unwrap();
            let node = vec![bulk(host), Value::Int(port.parse().unwrap())];
            let ends = [index * part, (index + 1) * part - 1];
            let [first, last] = ends.map(|slot| Value::Int(slot.try_into().unwrap()));
            Value::Array(vec![first, last, Value::Array(node)])
        });
        let cluster = StubCluster {
            slots: Value::Array(slots.collect()),
            servers,
            log: Arc::default(),
        };
        let answers = Arc::new(answers);
        for index in 0..count {
            let answers = Arc::clone(&answers);
            cluster.answer(index, move |request| answers(index, request));
        }
        cluster
    }

    /// Has one server do what `answers` says from now on.
    pub(crate) fn answer(
        &self,
        server: usize,
        mut answers: impl FnMut(&Request) -> Option<Says> + Send + 'static,
    ) {
        let (log, slots) = (Arc::clone(&self.log), self.slots.clone());
        self.servers[server].answer(move |request| {
            let logged = (Instant::now(), server, request.clone());
            log.lock().unwrap().push(logged);
            let is_map = request.is("CLUSTER SLOTS");
            let map = || is_map.then(|| Says::Reply(slots.clone()));
            answers(request).or_else(map)
        });
    }

    /// All requests so far, in their order.
    pub(crate) fn log(&self) -> Vec<Logged> {
        self.log.lock().unwrap().clone()
    }

    /// The servers that got such requests, in the order of these.
    pub(crate) fn got(&self, is_it: impl Fn(&Request) -> bool) -> Vec<usize> {
        let log = self.log();
        let those = log.iter().filter(|(.., request)| is_it(request));
        those.map(|(_, server, _)| *server).collect()
    }

    /// A name whose slot is at this server; another one for each `nth`.
    pub(crate) fn name(&self, server: usize, nth: usize) -> String {
        let part = SLOTS / self.servers.len();
        let names = (0..).map(|it| format!("lock-{it}"));
        let mut there = names.filter(|name| usize::from(keys::slot(name)) / part == server);
        there.nth(nth).unwrap()
    }

    /// The store of a client to it.
    pub(crate) fn store(&self) -> Arc<Redis> {
        let urls: Vec<_> = self.servers.iter().map(StubServer::url).collect();
        Arc::new(Redis::cluster(&urls, &settings()).unwrap())
    }
}

/// The cluster behind a store.
pub(crate) fn cluster_of(store: &Redis) -> &Cluster {
    match &store.topology {
        Topology::Cluster(cluster) => cluster,
        Topology::One(_) => panic!("it is one server"),
    }
}
