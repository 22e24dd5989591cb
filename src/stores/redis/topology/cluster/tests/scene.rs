//! A cluster of servers that answer as told.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::stores::redis::tests::stub::{self, Request, Says, StubServer, bulk};

pub(super) const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

pub(super) fn pong() -> Value {
    Value::SimpleString("PONG".into())
}

/// Waits until it is so.
pub(super) fn until(mut is_so: impl FnMut() -> bool) {
    let patience = soon();
    while !is_so() {
        assert!(Instant::now() < patience, "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The first slot, the last one, and which server has them.
pub(super) type Slots = (u16, u16, usize);

/// Servers that all tell the same map, and a client that knows some of them.
pub(super) struct Scene {
    pub(super) servers: Vec<StubServer>,
    map: Arc<Mutex<Value>>,
    pub(super) cluster: Arc<Cluster>,
    /// How often another server was found to be a master.
    taken_over: Arc<AtomicUsize>,
}

impl Scene {
    /// So many servers, of which the client knows the first ones.
    pub(super) fn of(count: usize, seeds: usize, slots: &[Slots]) -> Scene {
        Scene::with(count, seeds, slots, |_| {})
    }

    pub(super) fn with(
        count: usize,
        seeds: usize,
        slots: &[Slots],
        set: impl FnOnce(&mut Settings),
    ) -> Scene {
        let servers: Vec<_> = (0..count).map(|_| StubServer::start(|_| None)).collect();
        let mut settings = stub::settings();
        settings.connect_timeout = Duration::from_secs(20);
        set(&mut settings);
        let timeout = settings.connect_timeout;
        let address = |it: &StubServer| Address::parse(&it.url(), timeout, &Default::default());
        let seeds: Vec<_> = servers[..seeds]
            .iter()
            .map(|it| address(it).unwrap())
            .collect();
        let cluster = Cluster::new(seeds[0].clone(), seeds, &settings, &Arc::default());
        let taken_over: Arc<AtomicUsize> = Arc::default();
        let counter = Arc::clone(&taken_over);
        cluster.on_takeover(Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        let map = Arc::new(Mutex::new(Value::Nil));
        let scene = Scene {
            servers,
            map,
            cluster,
            taken_over,
        };
        scene.tell(slots);
        for at in 0..count {
            scene.on(at, |_| None);
        }
        scene
    }

    /// Two servers with half of the slots each, whose map the client has.
    pub(super) fn halves() -> Scene {
        let scene = Scene::of(2, 2, &[(0, 8191, 0), (8192, 16383, 1)]);
        scene.cluster.refresh(soon()).unwrap();
        scene
    }

    /// All servers tell this map from now on.
    pub(super) fn tell(&self, slots: &[Slots]) {
        self.tell_with_replicas(slots, &[]);
    }

    /// The same with these servers as replicas of the first master.
    pub(super) fn tell_with_replicas(&self, slots: &[Slots], replicas: &[usize]) {
        let node = |at: &usize| {
            let address = self.servers[*at].address();
            let (host, port) = address.rsplit_once(':').unwrap();
            let port = Value::Int(port.parse().unwrap());
            Value::Array(vec![bulk(host), port, bulk("id")])
        };
        let mut ranges: Vec<Vec<Value>> = slots
            .iter()
            .map(|(first, last, at)| {
                let bounds = [first, last].map(|slot| Value::Int(i64::from(*slot)));
                [&bounds[..], &[node(at)]].concat()
            })
            .collect();
        if let Some(first) = ranges.first_mut() {
            first.extend(replicas.iter().map(node));
        }
        let ranges = ranges.into_iter().map(Value::Array).collect();
        *self.map.lock().unwrap() = Value::Array(ranges);
    }

    /// This server does what `rather` says, and otherwise as all.
    pub(super) fn on(
        &self,
        at: usize,
        mut rather: impl FnMut(&Request) -> Option<Says> + Send + 'static,
    ) {
        let map = Arc::clone(&self.map);
        self.servers[at].answer(move |request| {
            let told = || Says::reply(map.lock().unwrap().clone());
            rather(request).or_else(|| request.is("CLUSTER SLOTS").then(told))
        });
    }

    pub(super) fn name(&self, at: usize) -> String {
        self.servers[at].address()
    }

    /// The server at which something is, if it is one of these.
    pub(super) fn index(&self, shard: Option<Arc<Shard>>) -> Option<usize> {
        let shard = shard?;
        self.servers
            .iter()
            .position(|it| *it.address() == *shard.address.node)
    }

    pub(super) fn shard(&self, at: usize) -> Arc<Shard> {
        Arc::clone(&self.cluster.map.lock().shards[&*self.name(at)])
    }

    pub(super) fn taken_over(&self) -> usize {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// How often a server was asked for the map.
    pub(super) fn maps_told(&self, at: usize) -> usize {
        self.count(at, "CLUSTER SLOTS")
    }

    pub(super) fn count(&self, at: usize, words: &str) -> usize {
        let asked = self.servers[at].asked();
        asked.iter().filter(|it| it.is(words)).count()
    }

    /// Has the client ask for no other map for some time.
    pub(super) fn hold(&self) {
        self.cluster.map.lock().asked_at = Some(Instant::now() + Duration::from_secs(60));
    }

    /// Has the client forget that it has just asked for the map.
    pub(super) fn later(&self) {
        self.cluster.map.lock().asked_at = None;
    }

    /// Asks for the map anew.
    pub(super) fn refresh(&self) -> Result<(), CallError> {
        self.later();
        self.cluster.refresh(soon())
    }
}

/// A redirection to a server.
pub(super) fn redirect(word: &str, lock: &str, to: &str) -> Option<Says> {
    Some(Says::error(&format!("{word} {} {to}", keys::slot(lock))))
}
