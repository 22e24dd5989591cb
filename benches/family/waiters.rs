//! Hundreds of waiters of one fair lock.

use std::thread;
use std::time::{Duration, Instant};

use crate::fair::until_queued;
use crate::harness::report::{Report, Table};
use crate::harness::{Counter, bare};
use crate::redisson::{Other, new_thread};
use crate::{CLIENTS, Plan};

/// The number of repetitions.
const REPEATS: usize = 3;

/// Long enough for the last thread to fall asleep.
const SETTLE: Duration = Duration::from_millis(1500);

/// The average time between two polls of a redlatch waiter.
const WATCH: Duration = Duration::from_millis(3150);

/// What the waiters cost.
struct Seen {
    /// Requests per second and waiter, while they sleep.
    asleep: f64,
    /// From the unlock until all have acquired, divided by their number.
    hand_over_us: f64,
}

pub(crate) fn measure(plan: &Plan, other: Option<&Other>, report: &mut Report) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for repeat in 0..REPEATS {
        ours.push(redlatch(plan, &format!("crowd:{repeat}")));
        theirs.extend(other.map(|other| redisson(plan, other, &format!("crowd:theirs:{repeat}"))));
    }
    let title = format!(
        "{} threads of 4 clients wait for a fair lock, and then each has it once",
        plan.waiters
    );
    let head = [
        "",
        "requests per second and waiter, asleep",
        "µs from one to the next",
    ];
    let mut table = Table::new(&title, &head);
    for (name, seen) in [("redlatch", &ours), ("Redisson", &theirs)] {
        for seen in seen {
            table.row(vec![
                name.to_owned(),
                format!("{:.3}", seen.asleep),
                format!("{:.0}", seen.hand_over_us),
            ]);
        }
    }
    report.table(table);
    let asleep = ours.iter().map(|seen| seen.asleep).collect();
    report.values("fair_idle_requests_per_waiter_s", asleep);
    if !theirs.is_empty() {
        let both = ours.iter().zip(&theirs);
        let ratios = both.map(|(ours, theirs)| ours.hand_over_us / theirs.hand_over_us);
        report.values("fair_handover_vs_redisson", ratios.collect());
    }
}

fn redlatch(plan: &Plan, name: &str) -> Seen {
    let clients = plan.clients();
    let guard = clients[0].fair_lock(name).guard().expect("it is free");
    thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.waiters)
            .map(|at| {
                let lock = clients[at % CLIENTS].fair_lock(name);
                scope.spawn(move || {
                    lock.lock().expect("the lock comes");
                    lock.unlock().expect("it is held");
                })
            })
            .collect();
        let asleep = asleep(plan, name);
        let start = Instant::now();
        guard.unlock().expect("it is held");
        for thread in threads {
            thread.join().expect("a thread");
        }
        Seen {
            asleep,
            hand_over_us: each_us(plan, start),
        }
    })
}

fn redisson(plan: &Plan, other: &Other, name: &str) -> Seen {
    let holder = new_thread();
    other.fair(&holder, 0, name, "lock").value();
    let waiters: Vec<_> = (0..plan.waiters)
        .map(|at| {
            let thread = new_thread();
            ["lock", "unlock"].map(|operation| other.fair(&thread, at, name, operation))
        })
        .collect();
    let asleep = asleep(plan, name);
    let start = Instant::now();
    other.fair(&holder, 0, name, "unlock").value();
    for answer in waiters.into_iter().flatten() {
        answer.value();
    }
    Seen {
        asleep,
        hand_over_us: each_us(plan, start),
    }
}

fn asleep(plan: &Plan, name: &str) -> f64 {
    until_queued(&mut bare::connect(&plan.server.url()), name, plan.waiters);
    thread::sleep(SETTLE);
    let mut counter = Counter::of(&plan.server);
    let (before, start) = (counter.counts(), Instant::now());
    thread::sleep(WATCH);
    let requests = counter.since(before).reads as f64;
    requests / start.elapsed().as_secs_f64() / plan.waiters as f64
}

fn each_us(plan: &Plan, start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6 / plan.waiters as f64
}
