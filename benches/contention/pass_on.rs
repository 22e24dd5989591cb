//! The time until all threads of a process that wait for one name have acquired once.

use std::thread;
use std::time::Duration;

use crate::harness::report::{Report, Table};
use crate::harness::{Part, now, say};
use crate::support::RedisServer;
use crate::worker_process::members;
use crate::{Contender, Plan};

/// The holder unlocks after this time; all threads wait by then.
const HOLD: Duration = Duration::from_secs(1);

const SIZES: [usize; 2] = [100, 500];

pub(crate) fn measure(plan: &Plan, server: &RedisServer, report: &mut Report) {
    let mut table = Table::new(
        &format!(
            "W7: threads of one process that wait for one name, held for 1 s ({} turns)",
            plan.turns
        ),
        &["", "waiters", "all through after ms", "(range)", "/ bare"],
    );
    for size in SIZES {
        let who = plan.who.iter().filter(|who| !who.is_peer());
        let mut all_series: Vec<(Contender, Vec<f64>)> =
            who.map(|who| (*who, Vec::new())).collect();
        for _ in 0..plan.turns {
            for (who, times) in &mut all_series {
                let args = [who.name(), &server.url(), &size.to_string()];
                let mut part = Part::start("pass", &args);
                times.push(part.receive()[0] as f64 / 1e6);
            }
        }
        let bare = all_series.iter().find(|(who, _)| *who == Contender::Bare);
        let bare = bare.map(|(_, times)| times.clone()).unwrap_or_default();
        for (who, times) in &mut all_series {
            let mut ratios: Vec<f64> = times
                .iter()
                .zip(&bare)
                .map(|(ours, bare)| ours / bare)
                .collect();
            times.sort_by(f64::total_cmp);
            let ratio = match &mut ratios[..] {
                [] => String::new(),
                ratios => format!("{:.2}", crate::harness::median(ratios)),
            };
            table.row(vec![
                who.name().to_owned(),
                size.to_string(),
                format!("{:.1}", times[times.len() / 2]),
                format!("{:.1} to {:.1}", times[0], times[times.len() - 1]),
                ratio,
            ]);
            if *who == Contender::Redlatch && size == 500 && !ratios.is_empty() {
                report.values("w7_500_ms_vs_bare", ratios);
            }
        }
    }
    report.table(table);
}

/// Prints the time from the unlock until the last waiter had the lock. Arguments: contender, server, number of
/// waiters.
pub(crate) fn run(args: &[String]) {
    let [who, url, size] = args else {
        panic!("three arguments")
    };
    let size: usize = size.parse().expect("a number");
    let mut members = members(who, url, &format!("w7:{who}"), size + 1);
    let (holder, waiters) = members.split_first_mut().expect("a holder");
    holder.enter();
    let (unlocked, last) = thread::scope(|scope| {
        let threads: Vec<_> = waiters
            .iter_mut()
            .map(|waiter| {
                scope.spawn(|| {
                    waiter.enter();
                    let had = now();
                    waiter.leave();
                    had
                })
            })
            .collect();
        thread::sleep(HOLD);
        let unlocked = now();
        holder.leave();
        let times = threads.into_iter().map(|thread| thread.join());
        let last = times.map(|had| had.expect("a thread")).max();
        (unlocked, last.expect("somebody waits"))
    });
    say(&[last - unlocked]);
}
