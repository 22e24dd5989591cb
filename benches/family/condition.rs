//! The wake-up time of a waiter for a condition, compared with a waiter for the lock.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::Lock;

use crate::Plan;
use crate::harness::median;
use crate::harness::report::{Report, Table};

/// Long enough for all threads to sleep.
const ASLEEP: Duration = Duration::from_millis(20);

const WARM_UP: usize = 3;

/// The rounds are split into this many runs, to show the range of their medians.
const RUNS: usize = 5;

/// The object of the wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Lock,
    Condition,
}

pub(crate) fn measure(plan: &Plan, report: &mut Report) {
    let (here, there) = (plan.client(), plan.client());
    let (orders, todo) = mpsc::channel();
    let (done, answers) = mpsc::channel();
    let waiting = there.lock("condition");
    let (mut locks, mut conditions) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        scope.spawn(move || wait(&waiting, &todo, &done));
        let lock = here.lock("condition");
        for round in 0..WARM_UP + plan.rounds {
            let times = [For::Condition, For::Lock]
                .map(|what| hand_on(&lock, what, &orders, &answers).as_secs_f64() * 1e6);
            if round >= WARM_UP {
                conditions.push(times[0]);
                locks.push(times[1]);
            }
        }
        drop(orders);
    });
    let runs = |times: &[f64]| -> Vec<f64> {
        let runs = times.chunks(times.len().div_ceil(RUNS));
        runs.map(|run| median(&mut run.to_vec())).collect()
    };
    let ratios = runs(&conditions).into_iter().zip(runs(&locks));
    report.values(
        "condition_handoff_vs_lock",
        ratios.map(|(condition, lock)| condition / lock).collect(),
    );
    let mut table = Table::new("Hand-off to another client, p50", &["", "µs"]);
    for (what, mut times) in [("condition", conditions), ("lock", locks)] {
        table.row(vec![what.to_owned(), format!("{:.0}", median(&mut times))]);
    }
    report.table(table);
}

/// Returns the time from just before the wake-up until the waiter has the lock.
fn hand_on(lock: &Lock, what: For, orders: &Sender<For>, answers: &Receiver<Instant>) -> Duration {
    if what == For::Lock {
        lock.lock().expect("the lock is free");
    }
    orders.send(what).expect("the other thread listens");
    answers.recv().expect("it is about to wait");
    if what == For::Condition {
        // The other thread waits for the condition as soon as this thread acquires.
        lock.lock().expect("the lock comes");
    }
    thread::sleep(ASLEEP);
    let start = Instant::now();
    if what == For::Condition {
        let is_one_told = lock.condition("changed").signal();
        assert!(is_one_told.expect("it is held"), "nobody waits");
    }
    lock.unlock().expect("it is held");
    answers
        .recv()
        .expect("it has the lock")
        .duration_since(start)
}

/// Reports when it starts to wait, and when it has the lock again.
fn wait(lock: &Lock, orders: &Receiver<For>, answers: &Sender<Instant>) {
    let say = || answers.send(Instant::now()).expect("the other listens");
    for what in orders {
        match what {
            For::Lock => {
                say();
                lock.lock().expect("the lock comes");
            }
            For::Condition => {
                lock.lock().expect("the lock is free");
                say();
                let changed = lock.condition("changed");
                changed.wait().expect("it is told");
            }
        }
        say();
        lock.unlock().expect("it is held");
    }
}
