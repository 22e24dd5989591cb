//! The clock of one node of five jumps.

use std::thread;
use std::time::{Duration, Instant};

use super::{SLACK, all_free, all_have, builder, redlock};
use crate::support::{ClockShim, RedisServer, eventually, ms};

const HOUR: i64 = 60 * 60 * 1000;

/// Four servers with the true time, and one in the middle with the clock of `shim`.
fn servers(shim: &ClockShim) -> Vec<RedisServer> {
    let server = |index| match index {
        2 => RedisServer::with_clock(shim),
        _ => RedisServer::start(),
    };
    (0..5).map(server).collect()
}

/// While the clock of one node jumps, a held lock is not granted and its holder keeps it.
fn a_clock_jumps(steps: &[i64]) {
    let shim = ClockShim::build();
    let servers = servers(&shim);
    let lease = ms(1500);
    let holder = builder(&servers).watchdog_timeout(lease).build().unwrap();
    let other = redlock(&servers);
    let guard = holder.lock("a").guard().unwrap();
    all_have(&servers, "a");
    for step in steps {
        shim.set(*step);
        let start = Instant::now();
        while start.elapsed() < lease {
            assert!(!other.lock("a").try_lock().unwrap(), "{step}");
            assert!(guard.is_valid(), "{step}: after {:?}", start.elapsed());
            thread::sleep(ms(20));
        }
        // Renewals with correct deadlines have reached it again, too.
        eventually(SLACK, "the node with the clock has it", || {
            servers[2].int(&["EXISTS", "a"]) == 1
        });
    }
    // Its vote counts again: two other nodes may fail.
    servers[0].kill();
    servers[4].kill();
    guard.unlock().unwrap();
    assert!(other.lock("a").try_lock_for(SLACK).unwrap());
    other.lock("a").unlock().unwrap();
    all_free(&servers[1..4], "a");
}

#[test]
fn the_clock_of_one_node_jumps_forwards() {
    a_clock_jumps(&[HOUR]);
}

#[test]
fn the_clock_of_one_node_jumps_backwards() {
    a_clock_jumps(&[-HOUR]);
}

#[test]
fn locks_are_granted_while_the_clock_of_one_node_jumps() {
    let shim = ClockShim::build();
    let servers = servers(&shim);
    let redlock = redlock(&servers);
    let lock = redlock.lock("a").with_lease_time(Duration::from_secs(30));
    for round in 0..24 {
        shim.set([0, HOUR, -HOUR, 300, -300][round % 5]);
        let guard = lock.guard().unwrap();
        assert!(guard.is_valid());
        guard.unlock().unwrap();
    }
    shim.set(0);
    all_free(&servers, "a");
}
