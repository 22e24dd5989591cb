//! What the lock costs over the scripts alone, against the bare `redis` crate in the same run.
//!
//! `cargo bench --bench overhead` starts a Redis server of its own (loopback, no persistence), measures for about two
//! minutes, and prints a table and, as its last line, one JSON object.
//!
//! **Bare** is the least that a lock on Redis can do: the two scripts of a Redisson lock, acquire and unlock with its
//! PUBLISH but without the unlock latch, called by EVALSHA over the `redis` crate, one connection per thread with
//! TCP_NODELAY. It does not wait, renew, time out, reconnect or notice a loss. **redlatch** is the default build with
//! its watchdog on, `lock()` and `unlock()` on one client.
//!
//! **Placement.** "one core": server and client are pinned to the same core, where a round trip costs no wake-up of
//! another core, so what is added shows most. Everything else: the server on one core, all clients on another one.
//!
//! **Repeats.** Machines are noisy and get faster and slower as they please, so no time is compared with one of
//! another run. Bare and redlatch take turns, 9 times 0.4 s each (18 times with 8 threads), the order changing every
//! time; a ratio is the median of the ratios of one turn each, and the range is of those. The first pairs, with connecting and loading scripts, are
//! not counted. Other work on the two cores still shows: with 8 threads above all, where it decides whether the server
//! or the clients are the bottleneck.
//!
//! | key | what is measured |
//! |---|---|
//! | `requests_per_pair` | requests that the server reads per `lock()` + `unlock()` of a free lock, over 1,000 pairs on a warm connection |
//! | `pair_vs_bare` | one thread, one core: median time of a pair, as a multiple of bare's |
//! | `allocations_per_pair` | calls of the allocator by a process that does a thousand pairs more than another one, per pair; valgrind counts them |
//! | `syscalls_per_pair` | the same of system calls, of all threads; strace counts them |
//! | `parallel_vs_bare` | 8 threads with a name each, one client: pairs per second, as a multiple of bare's with 8 connections |
//! | `handoff_cold_rtts` | two processes: from just before the holder calls `unlock()` after holding for 50 ms, to the return of the waiter's `lock()`; median, in medians of a PING after 50 ms of idleness, which take turns with it |
//! | `watchdog_lost` | of 10,000 holds with a lease of 3 s, held by one process for 10 s: those that are not valid there or not present at the server afterwards |
//! | `watchdog_cpu_s` | CPU time of that process in those 10 s |
//! | `bytes_per_hold` | growth of its resident memory by taking the holds, per hold, lock and guard included |
//! | `many_lost`, `many_cpu_s`, `many_bytes_per_hold` | the same of 100,000 holds with a lease of 30 s, held for 35 s; the memory in the end |
//! | `idle_requests_per_s` | requests of a client that holds nothing any more, in 10 s; PINGs of the subscriber, which a client has once it had to wait, left out |
//!
//! Environment: `REDLATCH_BENCH_ONLY` (some of `one,counted,split,parallel,handoff,held,many`), `REDLATCH_BENCH_REPEATS` (9),
//! `REDLATCH_BENCH_SLICE_MS` (400), `REDLATCH_BENCH_ROUNDS` (50 hand-offs), `REDLATCH_BENCH_HOLDS` (10000, and ten times as
//! many), `REDLATCH_BENCH_HOLD_S` (10, and 3.5 times as long), `REDIS_SERVER` (redis-server).

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    reason = "the table goes to stdout, and a benchmark that cannot go on has nobody to tell but its caller"
)]

mod counted;
mod handoff_vs_ping;
#[path = "../harness/mod.rs"]
mod harness;
mod held;
mod pairs;
mod report;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use harness::{Cores, Part, version};
use report::Report;
use support::RedisServer;

/// How much is measured.
struct Plan {
    only: Option<String>,
    repeats: usize,
    slice: Duration,
    rounds: usize,
    holds: usize,
    hold: Duration,
}

impl Plan {
    fn from_env() -> Plan {
        Plan {
            only: std::env::var("REDLATCH_BENCH_ONLY").ok(),
            repeats: number("REDLATCH_BENCH_REPEATS", 9),
            slice: Duration::from_millis(number("REDLATCH_BENCH_SLICE_MS", 400) as u64),
            rounds: number("REDLATCH_BENCH_ROUNDS", 50),
            holds: number("REDLATCH_BENCH_HOLDS", 10_000),
            hold: Duration::from_secs(number("REDLATCH_BENCH_HOLD_S", 10) as u64),
        }
    }

    fn wants(&self, part: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.split(',').any(|one| one == part))
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
    if let Some((part, args)) = Part::of_this_process() {
        return match &*part {
            "holder" => handoff_vs_ping::holder(&args),
            "waiter" => handoff_vs_ping::waiter(&args),
            "renewing_holder" => held::renewing_holder(&args),
            "pairs" => counted::run(&args),
            "idler" => held::idler(&args),
            other => panic!("no such part: {other}"),
        };
    }
    let plan = Plan::from_env();
    let cores = Cores::choose();
    let server = RedisServer::start();
    let mut report = Report::default();
    println!("redis-server {}, {cores}", version(&server));
    if plan.wants("one") {
        pairs::one_core(&plan, &cores, &server, &mut report);
    }
    cores.split(&server);
    if plan.wants("counted") {
        counted::measure(&server, &mut report);
    }
    if plan.wants("split") {
        pairs::split(&plan, &server, &mut report);
    }
    if plan.wants("parallel") {
        pairs::parallel(&plan, &server, &mut report);
    }
    if plan.wants("handoff") {
        handoff_vs_ping::measure(&plan, &server, &mut report);
    }
    if plan.wants("held") {
        held::measure(&plan, &cores, &server, &mut report);
    }
    if plan.wants("many") {
        let server = RedisServer::start();
        cores.split(&server);
        held::many(&plan, &cores, &server, &mut report);
    }
    drop(server);
    report.print();
}
