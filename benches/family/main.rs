//! What the members of the lock family cost, against the least that would do the same, in the same run.
//!
//! `cargo bench --bench family` starts a Redis server of its own (loopback, no persistence) and prints a table and, as its
//! last line, one JSON object. Server and client are pinned to one core. The two sides take turns, 9 times 0.4 s each, the
//! order changing every time; a ratio is the median of the ratios of one turn each, and the range is of those.
//!
//! | key | what is measured |
//! |---|---|
//! | `fenced_vs_plain` | lock and unlock of a fenced lock: the median time, as a multiple of that of a plain lock |
//! | `guarded_vs_multi` | `Guard::write` of three commands (`INCRBY`, `HSET`, `GET`): its median time, as a multiple of that of the same commands between `MULTI` and `EXEC` over the `redis` crate |
//!
//! Environment: `REDLATCH_BENCH_REPEATS` (9), `REDLATCH_BENCH_SLICE_MS` (400), `REDIS_SERVER` (redis-server).

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    reason = "the table goes to stdout, and a benchmark that cannot go on has nobody to tell but its caller"
)]

mod fenced;
mod guarded;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use harness::{Cores, median, version};
use support::RedisServer;

/// The outcome of one comparison.
struct Compared {
    key: &'static str,
    /// Median microseconds of ours and of the other side.
    ours: f64,
    other: f64,
    ratios: Vec<f64>,
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().expect("a number above 0"),
        Err(_) => default,
    }
}

fn main() {
    let cores = Cores::choose();
    let server = RedisServer::start();
    println!("redis-server {}, {cores}", version(&server));
    cores.join(&server);
    let measured = [fenced::measure(&server), guarded::measure(&server)];
    println!("| | redlatch | other | redlatch / other | lowest to highest |");
    println!("|---|---:|---:|---:|---|");
    let mut json = Vec::new();
    for mut one in measured {
        let middle = median(&mut one.ratios);
        // They are in order by now.
        let (lowest, highest) = (one.ratios[0], one.ratios[one.ratios.len() - 1]);
        println!(
            "| {} | {:.1} µs | {:.1} µs | {middle:.3} | {lowest:.3} to {highest:.3} |",
            one.key, one.ours, one.other
        );
        json.push(format!("\"{}\":{:.3}", one.key, middle));
    }
    println!("\n{{{}}}", json.join(","));
}

/// Lets both sides take turns.
fn by_turns(key: &'static str, mut ours: impl FnMut(), mut other: impl FnMut()) -> Compared {
    let slice = Duration::from_millis(number("REDLATCH_BENCH_SLICE_MS", 400));
    let repeats = number("REDLATCH_BENCH_REPEATS", 9);
    p50_us(slice / 4, &mut ours);
    p50_us(slice / 4, &mut other);
    let (mut all_ours, mut all_other, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for repeat in 0..repeats {
        let (one, two);
        if repeat % 2 == 0 {
            one = p50_us(slice, &mut ours);
            two = p50_us(slice, &mut other);
        } else {
            two = p50_us(slice, &mut other);
            one = p50_us(slice, &mut ours);
        }
        all_ours.push(one);
        all_other.push(two);
        ratios.push(one / two);
    }
    Compared {
        key,
        ours: median(&mut all_ours),
        other: median(&mut all_other),
        ratios,
    }
}

/// Median microseconds of one call.
fn p50_us(slice: Duration, call: &mut impl FnMut()) -> f64 {
    let mut times = Vec::with_capacity(1 << 16);
    let end = Instant::now() + slice;
    let mut start = Instant::now();
    while start < end {
        call();
        let done = Instant::now();
        times.push(u32::try_from((done - start).as_nanos()).unwrap_or(u32::MAX));
        start = done;
    }
    f64::from(median(&mut times)) / 1000.0
}
