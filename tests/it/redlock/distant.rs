//! Nodes at a distance: a request is answered within the time of a node, but to connect takes much longer.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Lock, Redlock, RedlockBuilder};

use super::{SLACK, all_free, builder_at, elsewhere, kept, no_quorum, proxies, servers};
use crate::support::{Fault, Proxy, RedisServer, eventually, ms};

/// What one reply takes. A new connection costs at least six of them, for who it is and who we are.
const WAY: Duration = ms(60);

/// Enough for a request, too little to connect.
const NODE_TIMEOUT: Duration = ms(250);

struct Distant {
    servers: Vec<RedisServer>,
    proxies: Vec<Proxy>,
}

impl Distant {
    fn start() -> Distant {
        let servers = servers(3);
        let proxies = proxies(&servers);
        for proxy in &proxies {
            proxy.next(usize::MAX, None, Fault::DelayReply(WAY));
        }
        Distant { servers, proxies }
    }

    fn builder(&self) -> RedlockBuilder {
        builder_at(self.proxies.iter().map(Proxy::url)).node_timeout(NODE_TIMEOUT)
    }

    /// A quorum that has been used, and the lease of its locks.
    fn redlock(&self, lease: Duration) -> Redlock {
        let redlock = self.builder().watchdog_timeout(lease).build().unwrap();
        let lock = redlock.lock("warm up");
        for _ in 0..2 {
            assert!(lock.try_lock_for(SLACK * 2).unwrap());
            lock.unlock().unwrap();
        }
        redlock
    }

    fn cut(&self) {
        for proxy in &self.proxies {
            proxy.cut();
        }
    }
}

#[test]
fn a_wait_gets_the_lock_after_all_connections_were_cut() {
    let nodes = Distant::start();
    let redlock = nodes.redlock(SLACK * 4);
    for _ in 0..3 {
        nodes.cut();
        let lock = redlock.lock("a");
        let start = Instant::now();
        assert!(lock.try_lock_for(SLACK * 4).unwrap());
        assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
        assert!(lock.is_valid());
        lock.unlock().unwrap();
    }
    all_free(&nodes.servers, "a");
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_hold_survives_the_end_of_all_connections() {
    let nodes = Distant::start();
    let lease = ms(4500);
    let redlock = nodes.redlock(lease);
    let guard = redlock.lock("a").guard().unwrap();
    thread::sleep(lease / 3 + SLACK / 4);
    nodes.cut();
    // Who waits meanwhile keeps no node away.
    let other = nodes.redlock(lease).lock("a");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.try_lock_for(lease * 2).unwrap());
        let start = Instant::now();
        while start.elapsed() < lease * 2 - ms(500) {
            assert!(guard.is_valid(), "after {:?}", start.elapsed());
            thread::sleep(ms(20));
        }
        assert!(!waiting.join().unwrap());
    });
    guard.unlock().unwrap();
    all_free(&nodes.servers, "a");
}

#[test]
fn an_unlock_waits_for_the_connections_that_it_needs() {
    let nodes = Distant::start();
    let redlock = nodes.redlock(SLACK * 20);
    let lock = redlock.lock("a");
    lock.lock().unwrap();
    lock.lock().unwrap();
    nodes.cut();
    lock.unlock().unwrap();
    assert!(lock.is_valid());
    nodes.cut();
    lock.unlock().unwrap();
    all_free(&nodes.servers, "a");
    nodes.cut();
    assert!(!lock.is_locked().unwrap());
    nodes.cut();
    assert!(!lock.force_unlock().unwrap());
}

#[test]
fn a_call_waits_for_no_silent_node_once_a_majority_is_connected() {
    let servers = servers(3);
    let (distant, silent) = (Proxy::to(servers[1].addr()), Proxy::to(servers[2].addr()));
    let patient = |url: String| {
        let builder = Client::builder().command_timeout(SLACK * 2);
        builder.connect_timeout(SLACK * 2).open(&url).unwrap()
    };
    let nodes = [servers[0].url(), distant.url(), silent.url()].map(patient);
    let redlock = Redlock::builder()
        .nodes(nodes)
        .trust_new_nodes()
        .build()
        .unwrap();
    let lock = redlock.lock("a");
    type Call = fn(&Lock) -> Result<(), Error>;
    let calls: [(&str, Call); 2] = [
        ("lock", |lock| lock.lock()),
        ("unlock", |lock| lock.unlock()),
    ];
    for (name, call) in calls {
        // Both have to be connected anew, and one of them can be.
        let rule = distant.next(usize::MAX, None, Fault::DelayReply(ms(30)));
        silent.black_hole();
        distant.cut();
        silent.cut();
        let start = Instant::now();
        call(&lock).unwrap();
        let took = start.elapsed();
        assert!(took < SLACK, "{name} took {took:?}");
        rule.lift();
        silent.heal();
        eventually(SLACK * 2, "all are there again", || {
            let other = redlock.lock("other");
            other.try_lock().unwrap();
            let has = elsewhere(|| kept(&servers, "other"));
            other.unlock().unwrap();
            has == 3
        });
    }
    all_free(&servers, "a");
}

/// Threads of this process that connect.
fn connecting() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = tasks.filter_map(|task| name(task.unwrap()).ok());
    names
        .filter(|name| name.trim() == "redlatch-connec")
        .count()
}

#[test]
fn a_dead_majority_costs_no_call_more_than_its_time() {
    let nodes = Distant::start();
    let redlock = nodes.redlock(SLACK * 4);
    for proxy in &nodes.proxies {
        proxy.black_hole();
    }
    nodes.cut();
    let lock = redlock.lock("a");
    let mut most = 0;
    for wait in [0, 100, 300, 700] {
        let wait = ms(wait);
        let start = Instant::now();
        no_quorum(&lock.try_lock_for(wait).unwrap_err());
        assert!(start.elapsed() < wait + ms(600), "{:?}", start.elapsed());
        most = most.max(connecting());
    }
    // Other tests may run in this process, each with a few.
    assert!(most <= 24, "{most} threads connect");
    for proxy in &nodes.proxies {
        proxy.heal();
    }
    assert!(lock.try_lock_for(SLACK * 2).unwrap());
    lock.unlock().unwrap();
}

#[test]
fn a_dead_minority_slows_no_call_but_the_first() {
    let nodes = Distant::start();
    let redlock = nodes.redlock(SLACK * 4);
    nodes.proxies[0].black_hole();
    nodes.proxies[0].cut();
    let lock = redlock.lock("a");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    let start = Instant::now();
    let mut slow = 0;
    while start.elapsed() < ms(5000) {
        let round = Instant::now();
        lock.lock().unwrap();
        lock.unlock().unwrap();
        slow += u32::from(round.elapsed() > NODE_TIMEOUT);
    }
    assert!(slow <= 1, "{slow} were slow");
    nodes.proxies[0].heal();
    eventually(SLACK * 2, "all are asked again", || {
        lock.lock().unwrap();
        let has = elsewhere(|| kept(&nodes.servers[..1], "a"));
        lock.unlock().unwrap();
        has == 1
    });
}
