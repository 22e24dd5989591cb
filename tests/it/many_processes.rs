//! A crowd at one lock: many processes with many threads each, short holds, short leases, and faults meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::Client;

use crate::support::child::arg;
use crate::support::contender::{Contenders, contend};
use crate::support::{RedisServer, is_long, ms};

pub(crate) const ROLE: &str = "one of many";

const PROCESSES: usize = 8;
const THREADS: usize = 8;
const LEASE: Duration = ms(300);

/// In a contender: takes the lock for some milliseconds at a time.
pub(crate) fn take_it() {
    let client = Client::builder().watchdog_timeout(LEASE);
    let client = client.open(&arg("URL")).unwrap();
    let lock = match &*arg("KIND") {
        "fenced" => client.fenced_lock("crowd"),
        "fair" => client.fair_lock("crowd"),
        _ => client.lock("crowd"),
    };
    contend(
        vec![lock; THREADS],
        None,
        || {},
        |(), _| {
            thread::sleep(Duration::from_micros(fastrand::u64(0..5000)));
        },
    );
}

#[test]
fn a_crowd_under_faults_never_overlaps_and_loses_no_waiter() {
    is_a_crowd_at_one_lock("plain");
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_crowd_at_a_fenced_lock_never_overlaps_and_loses_no_waiter() {
    is_a_crowd_at_one_lock("fenced");
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_crowd_at_a_fair_lock_never_overlaps_and_loses_no_waiter() {
    is_a_crowd_at_one_lock("fair");
}

fn is_a_crowd_at_one_lock(kind: &str) {
    let time = Duration::from_secs(if is_long() { 120 } else { 8 });
    let server = RedisServer::start();
    let mut crowd = Contenders::none();
    for _ in 0..PROCESSES {
        crowd.start(ROLE, &[("URL", &server.url()), ("KIND", kind)]);
    }
    let start = Instant::now();
    for fault in (0..4).cycle() {
        thread::sleep(ms(500));
        match fault {
            0 => drop(server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"])),
            1 => drop(server.cmd(&["SCRIPT", "FLUSH"])),
            2 => drop(server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])),
            _ => {
                server.freeze();
                thread::sleep(LEASE);
                server.thaw();
            }
        }
        if start.elapsed() > time {
            break;
        }
    }
    // And now the faults are over, everybody gets it again.
    thread::sleep(Duration::from_secs(5));
    let (counts, history) = crowd.end();
    assert!(counts.least >= 2, "a thread had it that rarely: {counts:?}");
    // 64 threads wait for one another, and through the faults; a lost waiter would wait to the end.
    assert!(
        counts.longest < 10_000 || is_long(),
        "a thread waited for {} ms",
        counts.longest
    );
    let summary = history.unwrap_or_else(|overlap| panic!("{overlap}"));
    assert!(summary.holds > 200, "{summary:?}");
    assert_eq!(summary.owners, PROCESSES * THREADS, "{summary:?}");
}
