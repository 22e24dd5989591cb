//! What the members of the lock family cost: beside Redisson, and against the least that would do the same, in one run.
//!
//! `cargo bench --bench family` starts a Redis server of its own (loopback, no persistence) and a JVM with Redisson 4.7.0,
//! measures for about two and a half minutes, and prints tables and, as its last line, one JSON object. Without a JDK and
//! Maven it says so, leaves Redisson out, and has `null` for what would have needed it.
//!
//! # How it is measured
//!
//! **Redisson** runs in the JVM of the interoperability tests, whose loops measure there: no figure has the way to that
//! process in it. Its clients have its defaults, the JVM its own; before anything is measured, each of its loops runs for a
//! while, so that it is compiled.
//!
//! **Placement.** Server and clients share one core where one pair after the other is measured, for additional work shows
//! most there; else the server has one core and all clients, the JVM too, the other one. *4 clients* are four clients with
//! nothing in common but the process, and so to the server, and to each other, four processes.
//!
//! **Turns.** All take turns, the order changing every time, and a ratio is the median of the ratios of one turn each.
//! The ranges are of those.
//!
//! **Exclusion.** Each thread counts itself in and out. More than there may be inside at once fails the benchmark.
//!
//! | key | what is measured |
//! |---|---|
//! | `fenced_vs_plain` | lock and unlock of a fenced lock: the median time, as a multiple of that of a plain lock |
//! | `guarded_vs_multi` | `Guard::write` of three commands (`INCRBY`, `HSET`, `GET`): its median time, as a multiple of that of the same commands between `MULTI` and `EXEC` over the `redis` crate |
//! | `fair_vs_redisson` | fair lock, 2 threads of each of 4 clients, nothing inside: acquisitions per second, as a multiple of Redisson's |
//! | `fair_order` | the same threads queue while the lock is held, each once that before it stands in the queue of the server: those that then have it in this order, of all |
//! | `fair_requests_per_acq` | requests per acquisition in the turns of `fair_vs_redisson` |
//! | `fair_idle_requests_per_waiter_s` | 500 threads of 4 clients wait for a fair lock: requests per second and waiter |
//! | `fair_handover_vs_redisson` | from the unlock until each of these has had it once: the time, as a multiple of Redisson's |
//! | `rw_vs_redisson` | read-write lock, 4 threads of each of 4 clients, 1 ms inside, each 20th time of a thread to write: acquisitions per second, as a multiple of Redisson's |
//! | `rw_longest_writer_wait_ms`, `…_redisson` | the longest wait of a writer in a turn of it, median of the turns |
//! | `read_only_vs_redisson` | 16 threads of each of 4 clients that only read, 1 ms inside: acquisitions per second, as a multiple of Redisson's |
//! | `semaphore_vs_redisson` | semaphore of 8 permits, 8 threads of each of 4 clients, 1 ms inside: acquisitions per second, as a multiple of Redisson's |
//! | `semaphore_lost` | permits of redlatch's that are missing after these turns |
//! | `condition_handoff_vs_lock` | from just before `signal` and `unlock` to the return of `wait` in another client, which holds the lock then: the median, as a multiple of that from just before `unlock` to the return of `lock` in another client; both after 20 ms of sleep |
//!
//! Requests are what the server reads from sockets, whatever for. The first table has a pair of taking and giving back of
//! each kind: its median time, its requests, and how long the server worked on its scripts.
//!
//! There is no key for a plain lock before and after a change: that takes two versions of the library in one program. What
//! guards it is `pair_vs_bare` of `cargo bench --bench overhead`, whose other side does not change.
//!
//! Environment: `REDLATCH_BENCH_ONLY` (some of `pairs,cost,fair,crowd,rw,read,semaphore,condition`),
//! `REDLATCH_BENCH_REPEATS` (9 turns of a pair), `REDLATCH_BENCH_SLICE_MS` (400), `REDLATCH_BENCH_TURNS` (5 of many threads),
//! `REDLATCH_BENCH_TURN_MS` (1200), `REDLATCH_BENCH_WARM_UP_MS` (2000, of each loop of Redisson), `REDLATCH_BENCH_ROUNDS` (60
//! hand-offs), `REDLATCH_BENCH_CROWD` (500 waiters), `REDLATCH_BENCH_REDISSON` (4.7.0; empty to leave it out),
//! `REDIS_SERVER` (redis-server).

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    reason = "the table goes to stdout, and a benchmark that cannot go on has nobody to tell but its caller"
)]

mod condition;
mod cost;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/interop/driver.rs"]
mod driver;
mod fair;
#[path = "../harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/interop/jvm.rs"]
mod jvm;
mod members;
mod pairs;
mod redisson;
mod rush;
#[path = "../../tests/support/mod.rs"]
mod support;
mod together;
mod waiters;

use std::time::Duration;

use harness::report::Report;
use harness::{Cores, version};
use redisson::Other;
use redlatch::Client;
use support::RedisServer;

const KEYS: [&str; 14] = [
    "fenced_vs_plain",
    "guarded_vs_multi",
    "fair_vs_redisson",
    "fair_order",
    "fair_requests_per_acq",
    "fair_idle_requests_per_waiter_s",
    "fair_handover_vs_redisson",
    "rw_vs_redisson",
    "rw_longest_writer_wait_ms",
    "rw_longest_writer_wait_ms_redisson",
    "read_only_vs_redisson",
    "semaphore_vs_redisson",
    "semaphore_lost",
    "condition_handoff_vs_lock",
];

/// The number of clients where many threads compete.
const CLIENTS: usize = 4;

/// How much is measured, and where.
struct Plan {
    only: Option<String>,
    repeats: usize,
    slice: Duration,
    turns: usize,
    turn: Duration,
    warm_up: Duration,
    rounds: usize,
    waiters: usize,
    server: RedisServer,
    cores: Cores,
}

impl Plan {
    fn from_env() -> Plan {
        let time = |variable, default| Duration::from_millis(number(variable, default) as u64);
        Plan {
            only: std::env::var("REDLATCH_BENCH_ONLY").ok(),
            repeats: number("REDLATCH_BENCH_REPEATS", 9),
            slice: time("REDLATCH_BENCH_SLICE_MS", 400),
            turns: number("REDLATCH_BENCH_TURNS", 5),
            turn: time("REDLATCH_BENCH_TURN_MS", 1200),
            warm_up: time("REDLATCH_BENCH_WARM_UP_MS", 2000),
            rounds: number("REDLATCH_BENCH_ROUNDS", 60),
            waiters: number("REDLATCH_BENCH_CROWD", 500),
            server: RedisServer::start(),
            cores: Cores::choose(),
        }
    }

    fn wants(&self, part: &str) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|only| only.split(',').any(|one| one == part))
    }

    fn client(&self) -> Client {
        Client::open(&self.server.url()).expect("a client")
    }

    fn clients(&self) -> Vec<Client> {
        (0..CLIENTS).map(|_| self.client()).collect()
    }
}

fn number(variable: &str, default: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => match text.parse() {
            Ok(number) if number > 0 => number,
            _ => panic!("{variable} is not a number above 0: {text}"),
        },
        Err(_) => default,
    }
}

fn main() {
    let plan = Plan::from_env();
    println!("redis-server {}, {}", version(&plan.server), plan.cores);
    // Before the JVM starts, which inherits the core of its parent.
    plan.cores.split(&plan.server);
    let other = Other::start(&plan);
    let mut report = Report::of(&KEYS);
    plan.cores.join(&plan.server);
    if plan.wants("cost") {
        cost::fenced(&plan, &mut report);
        cost::guarded(&plan, &mut report);
    }
    if plan.wants("pairs") {
        pairs::measure(&plan, other.as_ref(), &mut report);
    }
    plan.cores.split(&plan.server);
    if plan.wants("fair") {
        fair::order(&plan, &mut report);
        together::fair(&plan, other.as_ref(), &mut report);
    }
    if plan.wants("crowd") {
        waiters::measure(&plan, other.as_ref(), &mut report);
    }
    if plan.wants("rw") {
        together::mixed(&plan, other.as_ref(), &mut report);
    }
    if plan.wants("read") {
        together::read(&plan, other.as_ref(), &mut report);
    }
    if plan.wants("semaphore") {
        together::semaphore(&plan, other.as_ref(), &mut report);
    }
    if plan.wants("condition") {
        condition::measure(&plan, &mut report);
    }
    report.print();
}
