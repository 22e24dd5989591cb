//! Distant nodes: a request takes less than the node timeout, but connecting takes much longer.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Redlock, RedlockBuilder};

use super::{SLACK, all_free, builder_at, no_quorum, proxies, servers};
use crate::support::{Fault, Proxy, RedisServer, ms};

/// The latency of one reply. A new connection costs at least six of them for the handshake.
const WAY: Duration = ms(120);

/// Enough for a request, too short to connect.
const NODE_TIMEOUT: Duration = ms(500);

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

    /// A quorum with open connections, and the lease of its locks.
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
        assert!(start.elapsed() < SLACK * 2, "{:?}", start.elapsed());
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
    // A concurrent waiter blocks no node.
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
fn calls_end_in_time_with_a_dead_majority() {
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
        // Less than the time limit of a connection attempt.
        assert!(start.elapsed() < wait + ms(900), "{:?}", start.elapsed());
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
