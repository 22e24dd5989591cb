//! One fair lock of both sides, with one queue.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::Client;

use crate::fixture::{BothSides, LONG, RunLock, SLACK, elsewhere, report, timed};
use crate::jvm::{JavaLock, Jvm, Redisson};
use crate::support::{eventually, ms};

const QUEUE: &str = "redisson_lock_queue:{tickets}";

fn java(redisson: &Redisson, name: &str) -> JavaLock {
    redisson.thread().lock("fair", name)
}

fn waiting(sides: &BothSides) -> usize {
    usize::try_from(sides.server.int(&["LLEN", QUEUE])).unwrap()
}

#[track_caller]
fn until_waiting(sides: &BothSides, count: usize) {
    eventually(SLACK * 4, "they wait", || waiting(sides) == count);
}

/// Another client of ours, representing another process.
fn another(sides: &BothSides) -> Client {
    let builder = Client::builder().watchdog_timeout(LONG);
    sides.another(builder, &sides.server.url())
}

#[track_caller]
fn nothing_is_left(sides: &BothSides) {
    eventually(ms(9000), "nothing is left", || {
        sides.server.int(&["DBSIZE"]) == 0
    });
}

#[test]
#[ignore = "needs Java: make interop"]
fn both_sides_are_served_in_order_of_arrival() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let other = another(&sides);
    let ours = [&sides.rust, &other].map(|client| client.fair_lock("tickets"));
    for round in 0..4 {
        let order = Mutex::new(Vec::new());
        let held = java(&sides.java, "tickets");
        match round % 2 {
            0 => held.lock(),
            _ => ours[0].lock().unwrap(),
        }
        thread::scope(|scope| {
            for number in 0..12 {
                let (sides, ours, order) = (&sides, &ours, &order);
                let had = move || {
                    order.lock().unwrap().push(number);
                    thread::sleep(ms(5));
                };
                scope.spawn(move || {
                    if (number + round / 2) % 2 == 0 {
                        return ours[number / 2 % 2].run(|_| had()).unwrap();
                    }
                    let lock = java(&sides.java, "tickets");
                    lock.lock();
                    had();
                    lock.unlock();
                });
                until_waiting(sides, number + 1);
            }
            match round % 2 {
                0 => held.unlock(),
                _ => ours[0].unlock().unwrap(),
            }
        });
        let order = order.into_inner().unwrap();
        assert_eq!(order, (0..12).collect::<Vec<_>>(), "round {round}");
        nothing_is_left(&sides);
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn waiters_that_give_up_leave_no_queue_entry() {
    let sides = BothSides::with(RunLock::together(), LONG);
    let ours = sides.rust.fair_lock("tickets");
    let held = another(&sides).fair_lock("tickets");
    for gives_up in 0..4 {
        held.lock().unwrap();
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in 0..4 {
                let (sides, ours, order) = (&sides, &ours, &order);
                let wait = if number == gives_up {
                    ms(1500)
                } else {
                    ms(30_000)
                };
                scope.spawn(move || {
                    if number % 2 == 0 {
                        if ours.try_lock_for(wait).unwrap() {
                            order.lock().unwrap().push(number);
                            ours.unlock().unwrap();
                        }
                        return;
                    }
                    let lock = java(&sides.java, "tickets");
                    if lock.try_lock(wait) {
                        order.lock().unwrap().push(number);
                        lock.unlock();
                    }
                });
                until_waiting(sides, number + 1);
            }
            until_waiting(&sides, 3);
            held.unlock().unwrap();
        });
        let rest: Vec<_> = (0..4).filter(|it| *it != gives_up).collect();
        assert_eq!(order.into_inner().unwrap(), rest);
        nothing_is_left(&sides);
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn killed_redisson_waiters_cost_seconds() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let ours = sides.rust.fair_lock("tickets");
    let held = another(&sides).fair_lock("tickets");
    for count in [1, 4] {
        held.lock().unwrap();
        let jvm = Jvm::start();
        let doomed = Redisson::open(&jvm, &sides.server.url(), LONG);
        let pending: Vec<_> = (0..count)
            .map(|_| java(&doomed, "tickets").start("lock", &[]))
            .collect();
        until_waiting(&sides, count);
        jvm.kill();
        drop(pending);
        let theirs = java(&sides.java, "tickets");
        let waits = theirs.start("lock", &[]);
        until_waiting(&sides, count + 1);
        let (took, ()) = thread::scope(|scope| {
            let behind = scope.spawn(|| ours.run(|_| ()).unwrap());
            until_waiting(&sides, count + 2);
            timed(|| {
                held.unlock().unwrap();
                waits.value();
                theirs.unlock();
                behind.join().unwrap();
            })
        });
        report(&format!("{count} killed: {took:?}"));
        assert!(took < ms(5000) + SLACK, "{took:?}");
        nothing_is_left(&sides);
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn both_sides_never_overlap_and_both_make_progress() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let other = another(&sides);
    let (inside, ends) = (AtomicI64::new(0), Instant::now() + Duration::from_secs(6));
    let turns_of = |take: &dyn Fn(), free: &dyn Fn()| {
        let mut turns = 0;
        while Instant::now() < ends {
            take();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            thread::sleep(ms(20));
            inside.fetch_sub(1, Ordering::SeqCst);
            free();
            turns += 1;
        }
        turns
    };
    let found: Vec<i32> = thread::scope(|scope| {
        let turns_of = &turns_of;
        let ours = [&sides.rust, &sides.rust, &other, &other].map(|client| {
            let lock = client.fair_lock("tickets");
            scope.spawn(move || turns_of(&|| lock.lock().unwrap(), &|| lock.unlock().unwrap()))
        });
        let theirs = [(); 3].map(|()| {
            let lock = java(&sides.java, "tickets");
            scope.spawn(move || turns_of(&|| lock.lock(), &|| lock.unlock()))
        });
        let all = ours.into_iter().chain(theirs);
        all.map(|it| it.join().unwrap()).collect()
    });
    report(&format!(
        "turns of 4 threads of ours and 3 of theirs: {found:?}"
    ));
    let (least, most) = (found.iter().min().unwrap(), found.iter().max().unwrap());
    assert!(least + 4 >= *most, "{found:?}");
    nothing_is_left(&sides);
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_waiter_removed_by_redisson_returns_to_the_front() {
    let sides = BothSides::with(RunLock::together(), LONG);
    let ours = sides.rust.fair_lock("tickets");
    let held = another(&sides).fair_lock("tickets");
    held.lock().unwrap();
    let had = AtomicU32::new(0);
    thread::scope(|scope| {
        let first = scope.spawn(|| ours.run(|_| had.fetch_add(1, Ordering::SeqCst)).unwrap());
        until_waiting(&sides, 1);
        // Simulates a Redisson clock that runs ahead: our entry has timed out when Redisson checks it.
        let field: Vec<String> =
            redis::from_redis_value(sides.server.cmd(&["LRANGE", QUEUE, "0", "0"])).unwrap();
        sides
            .server
            .cmd(&["ZADD", "redisson_lock_timeout:{tickets}", "1000", &field[0]]);
        let theirs = java(&sides.java, "tickets");
        let waits = theirs.start("lock", &[]);
        eventually(ms(3000) + SLACK, "ours is back", || {
            let line: Vec<String> =
                redis::from_redis_value(sides.server.cmd(&["LRANGE", QUEUE, "0", "-1"])).unwrap();
            line.len() == 2 && line[0] == field[0]
        });
        held.unlock().unwrap();
        waits.value();
        assert_eq!(first.join().unwrap(), 0);
        assert_eq!(had.load(Ordering::SeqCst), 1, "before theirs");
        theirs.unlock();
    });
    assert!(elsewhere(|| ours.try_lock().unwrap()));
    assert!(ours.force_unlock().unwrap());
    nothing_is_left(&sides);
}
