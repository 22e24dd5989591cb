//! The time from a release until a waiter in another process acquires.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::bare;
use crate::harness::median;
use crate::harness::report::{Report, Table};
use crate::protocol::Order;
use crate::support::RedisServer;
use crate::throughput::Workers;
use crate::{Contender, Plan};

const HOLD: Duration = Duration::from_millis(50);

/// Peers that sleep between attempts are slow; a few rounds suffice for them.
const PEERS_SHARE: usize = 2;

const WARM_UP: usize = 3;

/// The rounds are split into this many runs, to show the range of their medians.
const RUNS: usize = 5;

pub(crate) fn measure(plan: &Plan, server: &RedisServer, report: &mut Report) {
    let mut connection = bare::connect(&server.url());
    let mut all_workers: Vec<(Workers, Vec<f64>, usize)> = plan
        .who
        .iter()
        .map(|who| {
            let workers = Workers::start(plan, *who, server, "w4", 2, 1);
            (workers, Vec::new(), 0)
        })
        .collect();
    let mut pings = Vec::new();
    for round in 0..WARM_UP + plan.rounds {
        for (workers, times, early) in &mut all_workers {
            if workers.who.is_peer() && round >= WARM_UP + plan.rounds / PEERS_SHARE {
                continue;
            }
            let (unlocked, had) = hand_on(workers);
            if had < unlocked {
                *early += 1;
            } else if round >= WARM_UP {
                times.push((had - unlocked) as f64 / 1000.0);
            }
            thread::sleep(HOLD);
            let start = Instant::now();
            redis::cmd("PING").exec(&mut connection).expect("PONG");
            let ping = start.elapsed();
            if round >= WARM_UP {
                pings.push(ping.as_nanos() as f64 / 1000.0);
            }
        }
    }

    let ping = median(&mut pings);
    let title = format!(
        "W4: hand-off to another process after holding for {} ms (PING after that long: p50 {ping:.0} µs)",
        HOLD.as_millis()
    );
    let mut table = Table::new(
        &title,
        &[
            "",
            "p50 µs",
            "p90 µs",
            "p50 / PING",
            "rounds",
            "two holders",
        ],
    );
    for (workers, times, early) in &mut all_workers {
        if times.is_empty() {
            continue;
        }
        let runs = times.chunks(times.len().div_ceil(RUNS));
        let medians: Vec<f64> = runs.map(|run| median(&mut run.to_vec())).collect();
        let middle = median(times);
        table.row(vec![
            workers.who.name().to_owned(),
            format!("{middle:.0}"),
            format!("{:.0}", times[times.len() * 9 / 10]),
            format!("{:.2}", middle / ping),
            times.len().to_string(),
            early.to_string(),
        ]);
        let in_pings = medians.iter().map(|it| it / ping).collect();
        let in_ms = medians.iter().map(|it| it / 1000.0).collect();
        if workers.who == Contender::Redlatch {
            report.value("w4_cold_rtts", middle / ping);
            report.range("w4_cold_rtts", in_pings);
            report.range("w4: median, ms", in_ms);
            report.two_holders(*early);
        } else {
            let who = workers.who.name();
            report.range(&format!("w4 of {who}: cold round trips"), in_pings);
            report.range(&format!("w4 of {who}: median, ms"), in_ms);
        }
    }
    report.table(table);
}

/// When the holder began to release, and when the waiter acquired.
fn hand_on(workers: &mut Workers) -> (u64, u64) {
    let [holder, waiter] = &mut workers.parts[..] else {
        panic!("two processes")
    };
    holder.send(&Order::Hold(HOLD).to_string());
    holder.receive();
    waiter.send(&Order::Wait.to_string());
    let unlocked = holder.receive()[0];
    let [asked, had] = waiter.receive()[..] else {
        panic!("the waiter says two times")
    };
    assert!(asked < unlocked, "the waiter has waited for the holder");
    (unlocked, had)
}
