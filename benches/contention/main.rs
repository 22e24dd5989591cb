//! What a lock does when many want it, against the bare `redis` crate and two other lock crates in the same run.
//!
//! `cargo bench --bench contention` starts a Redis server of its own (loopback, no persistence), measures for about
//! four minutes, and prints tables and, as its last line, one JSON object.
//!
//! # The contenders
//!
//! | | what it is | how it waits |
//! |---|---|---|
//! | **redlatch** | the default build with its watchdog on, one client per process | |
//! | **bare** | the two scripts of a Redisson lock by EVALSHA over the `redis` crate, one connection per thread, nothing else | tries again at once: a hot poller, not a design |
//! | **rslock** 0.10.0 | `acquire` and `release`, one manager per process | its default: 3 tries a random 0 to 200 ms apart, for ever; it has no default lease, 30 s is used |
//! | **redis-lock** 0.5.1 | `lock_across`, one connection per process as in its documentation | its default: tries 100 ms apart for 10 s, then fails; its default lease of 10 ms loses a hold of 50 ms, so for the hand-off, and only there, it is set to 30 s |
//!
//! The threads of rslock and redis-lock, which are async only, are tasks on a Tokio runtime with its defaults. They live
//! in a package of their own, `benches/peers`, which this program builds at run time: its 150 dependencies, such as Tokio
//! and a second `redis` crate, should not slow down builds of redlatch, and may need a newer Rust. If the build fails,
//! these contenders are skipped with a warning.
//!
//! # How it is measured
//!
//! **Placement.** The server is pinned to one core, all clients to another one.
//!
//! **Turns.** Machines are noisy and get faster and slower as they please, so no rate is compared with one of another
//! run. All take turns, 3 s each, five times, and before and after each turn one bare
//! thread locks and unlocks alone for half a second. The pairs per second of that, the mean of before and after, are what a rate is divided by: the
//! hot pollers' own rate follows the load of the machine too closely. All numbers are medians of the turns; a table of their
//! own has the ranges.
//!
//! **Fairness** is the count of the thread with the fewest acquisitions, divided by that of the one with the most.
//! Acquisitions per second alone reward a lock that lets one thread take it again and again while the others sleep.
//!
//! **Requests** are what the server reads from sockets, whatever for (PING, SUBSCRIBE, …). rslock and redis-lock share a
//! connection, so one read may bring several of their requests; theirs are counted as SET, EVAL and EVALSHA.
//!
//! **Exclusion.** Every thread notes, on the clock that all processes share, when it had the lock and when it began to
//! give it back. Notes of two threads that overlap are two holders at once. With an empty critical section that says
//! little, so each is also run for a second with 1 ms of sleep in it. redlatch fails the benchmark by it.
//!
//! | key | what is measured |
//! |---|---|
//! | `w3_fairness` | 8 threads of one process, one name, empty critical section: fewest / most acquisitions of a thread |
//! | `w3_requests_per_acq` | requests per acquisition there |
//! | `w3_vs_bare_pairs` | acquisitions per second there, by the pairs per second of one bare thread alone |
//! | `w4_cold_rtts` | two processes: from just before the holder calls `unlock()` after holding for 50 ms, to the return of the waiter's `lock()`; median, in medians of a PING after 50 ms of idleness, which take turns with it |
//! | `w5_fairness`, `w5_requests_per_acq`, `w5_vs_bare_pairs` | 4 processes with 2 threads each, one name |
//! | `w5_staircase` | there: fewest / most acquisitions of a process |
//! | `w7_500_ms_vs_bare` | 500 threads of one process wait for one name, which is held for 1 s: from its unlock until the last one has had it, by the same of bare |
//! | `w8_vs_bare` | 16 threads of one process on 1,000 names by Zipf, 1 ms inside: acquisitions per second, by those of bare |
//!
//! The last table is about 500 threads of one process that wait for one name, which then goes through all of them.
//!
//! Environment: `REDLATCH_BENCH_ONLY` (some of `w3,w4,w5,w7,w8,crowd`), `REDLATCH_BENCH_WHO` (some of
//! `redlatch,bare,rslock,redis-lock`), `REDLATCH_BENCH_TURNS` (5), `REDLATCH_BENCH_TURN_MS` (3000),
//! `REDLATCH_BENCH_ROUNDS` (50 hand-offs; half as many of rslock and redis-lock), `REDLATCH_BENCH_CROWD` (500),
//! `REDIS_SERVER` (redis-server).

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    reason = "the table goes to stdout, and a benchmark that cannot go on has nobody to tell but its caller"
)]

mod handoff;
#[path = "../harness/mod.rs"]
mod harness;
mod many_names;
mod many_waiters;
mod pass_on;
mod protocol;
#[path = "../../tests/support/mod.rs"]
mod support;
mod throughput;
mod worker_process;

use std::path::PathBuf;
use std::time::Duration;

use harness::report::Report;
use harness::{Cores, Part, peers, version};
use support::RedisServer;

const KEYS: [&str; 10] = [
    "w3_fairness",
    "w3_requests_per_acq",
    "w3_vs_bare_pairs",
    "w4_cold_rtts",
    "w5_fairness",
    "w5_requests_per_acq",
    "w5_vs_bare_pairs",
    "w5_staircase",
    "w7_500_ms_vs_bare",
    "w8_vs_bare",
];

/// How much is measured.
struct Plan {
    only: Option<String>,
    who: Vec<Contender>,
    turns: usize,
    turn: Duration,
    rounds: usize,
    waiters: usize,
    /// The program with rslock and redis-lock.
    peers: Option<PathBuf>,
}

impl Plan {
    fn from_env() -> Plan {
        let who = std::env::var("REDLATCH_BENCH_WHO").ok();
        let mut plan = Plan {
            only: std::env::var("REDLATCH_BENCH_ONLY").ok(),
            who: Contender::ALL
                .into_iter()
                .filter(|one| listed(who.as_deref(), one.name()))
                .collect(),
            turns: number("REDLATCH_BENCH_TURNS", 5),
            turn: Duration::from_millis(number("REDLATCH_BENCH_TURN_MS", 3000) as u64),
            rounds: number("REDLATCH_BENCH_ROUNDS", 50),
            waiters: number("REDLATCH_BENCH_CROWD", 500),
            peers: None,
        };
        if plan.who.iter().any(|who| who.is_peer()) {
            plan.peers = peers::build();
            if plan.peers.is_none() {
                plan.who.retain(|who| !who.is_peer());
            }
        }
        plan
    }

    fn wants(&self, part: &str) -> bool {
        listed(self.only.as_deref(), part)
    }
}

fn listed(list: Option<&str>, name: &str) -> bool {
    list.is_none_or(|list| list.split(',').any(|one| one == name))
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

/// A lock that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contender {
    Redlatch,
    Bare,
    Rslock,
    RedisLock,
}

impl Contender {
    const ALL: [Contender; 4] = [
        Contender::Redlatch,
        Contender::Bare,
        Contender::Rslock,
        Contender::RedisLock,
    ];

    fn name(self) -> &'static str {
        match self {
            Contender::Redlatch => "redlatch",
            Contender::Bare => "bare",
            Contender::Rslock => "rslock",
            Contender::RedisLock => "redis-lock",
        }
    }

    /// Whether it is in the package of the peers.
    fn is_peer(self) -> bool {
        matches!(self, Contender::Rslock | Contender::RedisLock)
    }
}

fn main() {
    if let Some((part, args)) = Part::of_this_process() {
        return match &*part {
            "workers" => worker_process::run(&args),
            "peers" => peers::become_workers(&args),
            "crowd" => many_waiters::run(&args),
            "pass" => pass_on::run(&args),
            "names" => many_names::run(&args),
            other => panic!("no such part: {other}"),
        };
    }
    let plan = Plan::from_env();
    let cores = Cores::choose();
    let server = RedisServer::start();
    cores.split(&server);
    let mut report = Report::of(&KEYS);
    println!("redis-server {}, {cores}", version(&server));
    if plan.wants("w3") {
        throughput::one_process(&plan, &server, &mut report);
    }
    if plan.wants("w4") {
        handoff::measure(&plan, &server, &mut report);
    }
    if plan.wants("w5") {
        throughput::four_processes(&plan, &server, &mut report);
    }
    if plan.wants("w7") {
        pass_on::measure(&plan, &server, &mut report);
    }
    if plan.wants("w8") {
        many_names::measure(&plan, &server, &mut report);
    }
    if plan.wants("crowd") && plan.who.contains(&Contender::Redlatch) {
        many_waiters::measure(&plan, &server, &mut report);
    }
    drop(server);
    report.print();
}
