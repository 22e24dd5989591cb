//! Many threads of several clients that compete for the same.

use std::time::Duration;

use crate::Plan;
use crate::harness::report::{Report, Table};
use crate::harness::{Counter, median};
use crate::members::member;
use crate::pairs::{PERMITS, prepare};
use crate::redisson::Other;
use crate::rush::{Rushed, WRITER, rush};

/// The object of the contest, and its capacity.
struct Contest {
    title: &'static str,
    /// Its name in `Way.java`.
    kind: &'static str,
    /// Another kind of redlatch to show beside it.
    beside: Option<&'static str>,
    /// Of each client.
    threads: usize,
    inside: Duration,
    /// The weight of a writing thread, and the capacity.
    writer: usize,
    limit: usize,
}

/// The turns of one side, and the requests per acquisition in each.
#[derive(Default)]
struct Turns {
    rushes: Vec<Rushed>,
    requests: Vec<f64>,
}

const INSIDE: Duration = Duration::from_millis(1);

pub(crate) fn fair(plan: &Plan, other: Option<&Other>, report: &mut Report) {
    let contest = Contest {
        title: "Fair lock, 2 threads of each of 4 clients, nothing inside",
        kind: "fair",
        beside: None,
        threads: 2,
        inside: Duration::ZERO,
        writer: 1,
        limit: 1,
    };
    let [ours, theirs] = contest.held(plan, other, report);
    report.values("fair_requests_per_acq", ours.requests.clone());
    compare(report, "fair_vs_redisson", &ours, &theirs);
}

pub(crate) fn mixed(plan: &Plan, other: Option<&Other>, report: &mut Report) {
    let contest = Contest {
        title: "Read-write lock, 4 threads of each of 4 clients, 1 ms inside, 1 of 20 to write",
        kind: "mixed",
        beside: Some("mixed, readers preferred"),
        threads: 4,
        inside: INSIDE,
        writer: WRITER,
        limit: WRITER,
    };
    let [ours, theirs] = contest.held(plan, other, report);
    compare(report, "rw_vs_redisson", &ours, &theirs);
    let waits = |turns: &Turns| -> Vec<f64> {
        let rushes = turns.rushes.iter();
        rushes.map(|rushed| rushed.longest_wait_ms(true)).collect()
    };
    report.values("rw_longest_writer_wait_ms", waits(&ours));
    if other.is_some() {
        report.values("rw_longest_writer_wait_ms_redisson", waits(&theirs));
    }
}

pub(crate) fn read(plan: &Plan, other: Option<&Other>, report: &mut Report) {
    let contest = Contest {
        title: "Read-write lock, 16 threads of each of 4 clients that only read, 1 ms inside",
        kind: "read",
        beside: None,
        threads: 16,
        inside: INSIDE,
        writer: 1,
        limit: usize::MAX,
    };
    let [ours, theirs] = contest.held(plan, other, report);
    compare(report, "read_only_vs_redisson", &ours, &theirs);
}

pub(crate) fn semaphore(plan: &Plan, other: Option<&Other>, report: &mut Report) {
    let contest = Contest {
        title: "Semaphore of 8 permits, 8 threads of each of 4 clients, 1 ms inside",
        kind: "semaphore",
        beside: None,
        threads: 8,
        inside: INSIDE,
        writer: 1,
        limit: PERMITS as usize,
    };
    let [ours, theirs] = contest.held(plan, other, report);
    compare(report, "semaphore_vs_redisson", &ours, &theirs);
    let left = plan.client().semaphore("together:semaphore").available();
    let lost = i64::from(PERMITS) - left.expect("an answer");
    report.value("semaphore_lost", lost as f64);
}

impl Contest {
    /// Alternates the sides. Returns the results of redlatch and of Redisson.
    fn held(&self, plan: &Plan, other: Option<&Other>, report: &mut Report) -> [Turns; 2] {
        let clients = plan.clients();
        let name = format!("together:{}", self.kind);
        let theirs = format!("together:theirs:{}", self.kind);
        for name in [&name, &theirs] {
            prepare(plan, self.kind, name);
        }
        let ours = |kind: &str| {
            let threads = clients
                .iter()
                .flat_map(|client| (0..self.threads).map(|_| member(client, kind, &name)));
            let rushed = rush(threads.collect(), plan.turn, self.inside, self.writer);
            assert!(rushed.most_inside <= self.limit, "{kind}: {rushed:?}");
            rushed
        };
        let mut sides = [Turns::default(), Turns::default(), Turns::default()];
        let last = sides.len() - 1;
        for turn in 0..plan.turns {
            for at in 0..sides.len() {
                let side = if turn % 2 == 0 { at } else { last - at };
                let mut counter = Counter::of(&plan.server);
                let before = counter.counts();
                let rushed = match (side, other, self.beside) {
                    (0, _, _) => ours(self.kind),
                    (1, Some(other), _) => {
                        other.rush(self.kind, &theirs, self.threads, plan.turn, self.inside)
                    }
                    (2, _, Some(beside)) => ours(beside),
                    _ => continue,
                };
                let requests = counter.since(before).reads as f64;
                sides[side].requests.push(requests / rushed.acquisitions());
                sides[side].rushes.push(rushed);
            }
        }
        report.table(self.table(&sides));
        let [ours, theirs, _] = sides;
        [ours, theirs]
    }

    fn table(&self, sides: &[Turns; 3]) -> Table {
        let head = [
            "",
            "per second",
            "requests each",
            "fairness",
            "longest wait, ms",
            "… of a writer",
        ];
        let mut table = Table::new(self.title, &head);
        let names = ["redlatch", "Redisson", self.beside.unwrap_or_default()];
        for (name, turns) in names.into_iter().zip(sides) {
            if turns.rushes.is_empty() {
                continue;
            }
            let middle = |of: &dyn Fn(&Rushed) -> f64| {
                median(&mut turns.rushes.iter().map(of).collect::<Vec<_>>())
            };
            table.row(vec![
                name.to_owned(),
                format!("{:.0}", middle(&Rushed::per_second)),
                format!("{:.2}", median(&mut turns.requests.clone())),
                format!("{:.2}", middle(&Rushed::fairness)),
                format!("{:.1}", middle(&|it| it.longest_wait_ms(false))),
                format!("{:.1}", middle(&|it| it.longest_wait_ms(true))),
            ]);
        }
        table
    }
}

/// Records the ratio of acquisitions per second, redlatch to Redisson.
fn compare(report: &mut Report, key: &'static str, ours: &Turns, theirs: &Turns) {
    let turns = ours.rushes.iter().zip(&theirs.rushes);
    let ratios: Vec<f64> = turns
        .map(|(ours, theirs)| ours.per_second() / theirs.per_second())
        .collect();
    if !ratios.is_empty() {
        report.values(key, ratios);
    }
}
