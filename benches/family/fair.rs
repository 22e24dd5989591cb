//! The order in which threads of several clients acquire a fair lock.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;

use crate::Plan;
use crate::harness::bare;
use crate::harness::report::Report;

/// Of each client.
const THREADS: usize = 2;

const ROUNDS: usize = 20;

/// More time than a thread needs to queue.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn order(plan: &Plan, report: &mut Report) {
    let clients = plan.clients();
    let mut connection = bare::connect(&plan.server.url());
    let (mut in_order, mut all) = (0, 0);
    for round in 0..ROUNDS {
        let name = format!("order:{round}");
        let guard = clients[0].fair_lock(&name).guard().expect("it is free");
        let had = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for place in 0..THREADS * clients.len() {
                let lock = clients[(place + round) % clients.len()].fair_lock(&name);
                let had = &had;
                scope.spawn(move || {
                    let guard = lock.guard().expect("the lock comes");
                    had.lock().expect("the list").push(place);
                    guard.unlock().expect("it is held");
                });
                until_queued(&mut connection, &name, place + 1);
            }
            guard.unlock().expect("it is held");
        });
        let had = had.into_inner().expect("the list");
        all += had.len();
        let places = had.iter().enumerate();
        in_order += places.filter(|(at, place)| at == *place).count();
    }
    report.value("fair_order", in_order as f64 / all as f64);
}

/// Waits until the queue of a fair lock has this many entries.
pub(crate) fn until_queued(connection: &mut Connection, name: &str, waiters: usize) {
    let queue = format!("redisson_lock_queue:{{{name}}}");
    let start = Instant::now();
    loop {
        let length: usize = redis::cmd("LLEN")
            .arg(&queue)
            .query(connection)
            .expect("the length of the queue");
        if length == waiters {
            return;
        }
        assert!(start.elapsed() < LIMIT, "{length} of {waiters} wait");
        thread::sleep(Duration::from_millis(1));
    }
}
