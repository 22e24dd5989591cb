//! Uncontended pairs of acquire and release, for each kind.

use crate::Plan;
use crate::cost::p50_us;
use crate::harness::report::{Report, Table};
use crate::harness::{Counter, median};
use crate::members::member;
use crate::redisson::Other;

pub(crate) const KINDS: [&str; 8] = [
    "plain",
    "fenced",
    "spin",
    "fair",
    "read",
    "write",
    "semaphore",
    "permits",
];

/// Of each semaphore.
pub(crate) const PERMITS: u32 = 8;

/// The results of one side.
#[derive(Default)]
struct Side {
    us: Vec<f64>,
    requests: Vec<f64>,
    server_us: Vec<f64>,
}

pub(crate) fn measure(plan: &Plan, other: Option<&Other>, report: &mut Report) {
    let (client, slice) = (plan.client(), plan.slice / 2);
    let mut table = Table::new(
        "A pair of taking and giving back, p50 (R: Redisson)",
        &[
            "",
            "µs",
            "R µs",
            "/ R",
            "requests",
            "R",
            "server µs",
            "R server µs",
        ],
    );
    for kind in KINDS {
        let (name, theirs) = (format!("ours:{kind}"), format!("theirs:{kind}"));
        let mut one = member(&client, kind, &name);
        prepare(plan, kind, &name);
        prepare(plan, kind, &theirs);
        let mut pair = || {
            one.enter(false);
            one.leave(false);
        };
        p50_us(slice / 4, &mut pair);
        let mut sides = [Side::default(), Side::default()];
        let mut ratios = Vec::new();
        for repeat in 0..plan.turns {
            for side in [repeat % 2, 1 - repeat % 2] {
                let mut turn = || match (side, other) {
                    (0, _) => {
                        let mut pairs = 0.0;
                        let us = p50_us(slice, &mut || {
                            pair();
                            pairs += 1.0;
                        });
                        Some((us, pairs))
                    }
                    (_, Some(other)) => {
                        let [ns, pairs] = other.pairs(kind, &theirs, slice);
                        Some((ns / 1000.0, pairs))
                    }
                    _ => None,
                };
                sides[side].take(plan, &mut turn);
            }
            let [ours, redisson] = &sides;
            if let (Some(ours), Some(theirs)) = (ours.us.last(), redisson.us.last()) {
                ratios.push(ours / theirs);
            }
        }
        let [ours, redisson] = &mut sides;
        let cells = [&ours.us, &redisson.us, &ratios, &ours.requests];
        let cells = cells.into_iter().zip([1, 1, 2, 2]);
        let more = [&redisson.requests, &ours.server_us, &redisson.server_us];
        let more = more.into_iter().zip([2, 1, 1]);
        let cells = cells
            .chain(more)
            .map(|(values, digits)| middle(values, digits));
        table.row([vec![kind.to_owned()], cells.collect()].concat());
    }
    report.table(table);
}

impl Side {
    /// Records the duration of a turn, and its cost at the server.
    fn take(&mut self, plan: &Plan, turn: &mut impl FnMut() -> Option<(f64, f64)>) {
        let mut counter = Counter::of(&plan.server);
        let before = counter.counts();
        let Some((us, pairs)) = turn() else {
            return;
        };
        let since = counter.since(before);
        self.us.push(us);
        self.server_us.push(since.script_us as f64 / pairs);
        self.requests.push(since.reads as f64 / pairs);
    }
}

fn middle(values: &[f64], digits: usize) -> String {
    if values.is_empty() {
        return "–".to_owned();
    }
    format!("{:.digits$}", median(&mut values.to_vec()))
}

pub(crate) fn prepare(plan: &Plan, kind: &str, name: &str) {
    let client = plan.client();
    let set = match kind {
        "semaphore" => client.semaphore(name).try_set(PERMITS),
        "permits" => client.permit_semaphore(name).try_set(PERMITS),
        _ => return,
    };
    assert!(set.expect("an answer"), "{name} is new");
}
