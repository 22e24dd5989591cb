//! The time from a release until a waiter in another process acquires, in round trips of a PING.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::Client;

use crate::Plan;
use crate::harness::bare;
use crate::harness::{Part, median, now, orders, say};
use crate::report::Report;
use crate::support::RedisServer;

const HOLD: Duration = Duration::from_millis(50);

/// The holder reports its unlock only after this time, so that the report does not disturb the measurement.
const OUT_OF_THE_WAY: Duration = Duration::from_millis(5);

const NAME: &str = "handed-on";

/// The rounds are split into this many runs, to show the range of their medians.
const RUNS: usize = 5;

pub(crate) fn measure(plan: &Plan, server: &RedisServer, report: &mut Report) {
    let mut holder = Part::start("holder", &[&server.url()]);
    let mut waiter = Part::start("waiter", &[&server.url()]);
    let mut connection = bare::connect(&server.url());
    let (mut handed_on, mut pings) = (Vec::new(), Vec::new());
    let warm_up = 3;
    for round in 0..warm_up + plan.rounds {
        holder.send("hold");
        holder.receive();
        waiter.send("wait");
        let unlocked = holder.receive()[0];
        let [asked, had] = waiter.receive()[..] else {
            panic!("the waiter says two times")
        };
        assert!(
            asked < unlocked && unlocked < had,
            "the waiter has waited for the holder"
        );

        thread::sleep(HOLD);
        let start = Instant::now();
        redis::cmd("PING").exec(&mut connection).expect("PONG");
        let ping = start.elapsed();
        if round >= warm_up {
            handed_on.push((had - unlocked) as f64 / 1000.0);
            pings.push(ping.as_nanos() as f64 / 1000.0);
        }
    }
    let runs = |times: &[f64]| -> Vec<f64> {
        let runs = times.chunks(times.len().div_ceil(RUNS));
        runs.map(|run| median(&mut run.to_vec())).collect()
    };
    let ratios = runs(&handed_on).into_iter().zip(runs(&pings));
    let ratios: Vec<f64> = ratios.map(|(time, ping)| time / ping).collect();
    report.range("handoff_cold_rtts", &ratios);
    let (handed_on, ping) = (median(&mut handed_on), median(&mut pings));
    report.value("handoff_cold_rtts", handed_on / ping);
    report.row(
        "hand-off to another process after 50 ms, p50 (bare: a PING after 50 ms)",
        format!("{handed_on:.0} µs"),
        format!("{ping:.0} µs"),
        format!("{:.2}", handed_on / ping),
    );
}

/// Acquires the lock, holds it for a while, and prints when it began to release it.
pub(crate) fn holder(args: &[String]) {
    let client = Client::open(&args[0]).expect("a client");
    let lock = client.lock(NAME);
    for _ in orders() {
        lock.lock().expect("the lock is free");
        say(&[]);
        thread::sleep(HOLD);
        let unlocked = now();
        lock.unlock().expect("the lock is held");
        thread::sleep(OUT_OF_THE_WAY);
        say(&[unlocked]);
    }
}

/// Waits for the lock, and prints when it began to wait and when it acquired.
pub(crate) fn waiter(args: &[String]) {
    let client = Client::open(&args[0]).expect("a client");
    let lock = client.lock(NAME);
    for _ in orders() {
        let asked = now();
        lock.lock().expect("the lock comes");
        let had = now();
        lock.unlock().expect("the lock is held");
        say(&[asked, had]);
    }
}
