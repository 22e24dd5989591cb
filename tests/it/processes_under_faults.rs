//! A shop that sells from one stock while its lock server is frozen, killed, emptied of scripts and cut off.
//!
//! Several processes with several threads each sell units under the lock: they read the stock, work for a while, and
//! write it back. The stock is on a server without faults. Without the lock this sells units twice.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and one that goes on may say how far"
)]

use std::thread;
use std::time::{Duration, Instant};

use redlatch::Client;

use crate::support::child::arg;
use crate::support::shop::{Shop, sell_under, sell_without_a_lock};
use crate::support::{RedisServer, eventually, ms};

const PROCESSES: usize = 3;
const THREADS: usize = 3;

/// In a contender: sells from the stock.
pub(crate) fn sell() {
    if arg("UNLOCKED") == "yes" {
        return sell_without_a_lock(THREADS);
    }
    let lease = ms(arg("LEASE").parse().unwrap());
    let client = Client::builder()
        .watchdog_timeout(lease)
        .command_timeout(ms(1000))
        .open(&arg("LOCKS"))
        .unwrap();
    let mut lock = client.lock("stock");
    if arg("FIXED") == "yes" {
        lock = lock.with_lease_time(lease);
    }
    sell_under(vec![lock; THREADS]);
}

/// The shop, and the lock server that gets the faults.
struct Job {
    locks: RedisServer,
    shop: Shop,
    has_lock: bool,
}

impl Job {
    fn start(has_lock: bool) -> Job {
        let mut job = Job {
            // It loses no acknowledged write.
            locks: RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]),
            shop: Shop::open(),
            has_lock,
        };
        for _ in 0..PROCESSES {
            job.hire();
        }
        job
    }

    fn hire(&mut self) {
        let kinds = [("1000", "no"), ("3000", "no"), ("1500", "yes")];
        let (lease, is_fixed) = kinds[self.shop.sellers.started % 3];
        let env = [
            ("LOCKS", &*self.locks.url()),
            ("LEASE", lease),
            ("FIXED", is_fixed),
            ("UNLOCKED", if self.has_lock { "no" } else { "yes" }),
        ];
        self.shop.hire(&env);
    }

    /// Ends all processes and checks their sales. `was_killed`: some were killed during a sale.
    fn close(self, was_killed: bool) {
        let day = self.shop.close();
        println!("{day:?}");
        assert_eq!(day.twice, 0, "units were sold twice");
        if was_killed {
            assert!(day.sold <= day.gone, "{day:?}");
        } else {
            assert_eq!(day.sold, day.gone, "units sold, and gone from the stock");
        }
        let summary = day.history.unwrap_or_else(|overlap| panic!("{overlap}"));
        // Enough for a meaningful result, also on a busy machine.
        assert!(summary.holds >= 20, "{summary:?}");
        assert!(summary.owners >= PROCESSES * THREADS, "{summary:?}");
        eventually(ms(3000 + 2500), "nothing is left", || {
            self.locks.int(&["DBSIZE"]) == 0
        });
    }

    fn freeze(&self, time: Duration) {
        self.locks.freeze();
        thread::sleep(time);
        self.locks.thaw();
    }

    fn kill_clients(&self, kind: &str, time: Duration) {
        let start = Instant::now();
        let mut killed = 0;
        while start.elapsed() < time {
            killed += self.locks.int(&["CLIENT", "KILL", "TYPE", kind]);
            thread::sleep(ms(20));
        }
        assert!(
            killed > 0 || time < ms(500),
            "there was somebody to cut off"
        );
    }

    fn flush_scripts(&self) {
        for _ in 0..10 {
            self.locks.cmd(&["SCRIPT", "FLUSH"]);
            thread::sleep(ms(30));
        }
    }

    fn crash(&self, down: Duration) {
        self.locks.kill();
        thread::sleep(down);
        self.locks.restart();
    }
}

#[test]
fn a_shop_under_faults_sells_nothing_twice() {
    let job = Job::start(true);
    thread::sleep(ms(700));
    job.freeze(ms(2000));
    thread::sleep(ms(500));
    job.kill_clients("pubsub", ms(1500));
    job.flush_scripts();
    job.crash(ms(300));
    thread::sleep(ms(700));
    // It is killed with requests that it has received but not read.
    job.locks.freeze();
    thread::sleep(ms(500));
    job.crash(ms(20));
    job.kill_clients("normal", ms(500));
    thread::sleep(ms(300));
    // Longer than every lease: all holds have ended, and other clients can acquire first.
    job.freeze(ms(2000));
    job.shop.everybody_sells(Duration::from_secs(20));
    job.close(false);
}

#[test]
fn a_shop_without_the_lock_sells_units_twice() {
    let mut job = Job::start(false);
    eventually(Duration::from_secs(20), "a unit is sold twice", || {
        job.shop.sold_twice() > 0
    });
    job.shop.close_without_a_lock();
    let (sold, sales) = (job.shop.sold(), job.shop.sales().iter().sum::<u64>());
    assert!(sales > sold, "{sales} sales of {sold} units");
}

/// `REDLATCH_SEED` repeats the faults of a run.
#[test]
#[ignore = "takes four minutes: make nightly"]
fn a_shop_under_drawn_faults_sells_nothing_twice() {
    let seed = std::env::var("REDLATCH_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("REDLATCH_SEED={seed}");
    let mut draw = fastrand::Rng::with_seed(seed);
    let mut job = Job::start(true);
    let mut was_killed = false;
    let start = Instant::now();
    let mut round = 0;
    while start.elapsed() < Duration::from_secs(240) {
        round += 1;
        let long = ms(draw.u64(20..2500));
        let fault = draw.u32(..9);
        println!("{:?}: fault {fault}, {long:?}", start.elapsed());
        match fault {
            0 | 1 => job.freeze(long),
            2 => job.kill_clients("pubsub", long),
            3 => job.kill_clients("normal", long.min(ms(800))),
            4 => job.flush_scripts(),
            5 => job.crash(long),
            6 => {
                job.locks.freeze();
                thread::sleep(long);
                job.crash(ms(20));
            }
            7 => {
                let pause = long.as_millis().to_string();
                job.locks.cmd(&["CLIENT", "PAUSE", &pause, "ALL"]);
                thread::sleep(long);
            }
            _ => {
                // Killed without a chance to release; another process replaces it.
                was_killed = true;
                job.shop.fire();
                job.hire();
            }
        }
        thread::sleep(ms(draw.u64(..1000)));
        if round % 8 == 0 {
            job.shop.everybody_sells(Duration::from_secs(30));
        }
    }
    job.shop.everybody_sells(Duration::from_secs(30));
    job.close(was_killed);
}
