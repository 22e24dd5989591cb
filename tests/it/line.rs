//! The line of waiters inside a process, and the hand-over from one to the next.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Interrupt, LossCause};

use crate::kit::{End, Fault, Proxy, RedisServer, eventually, ms};

const SLACK: Duration = ms(2500);

/// Lets `threads` run `work` once each, lined up one behind the other for a lock that is held until all stand there.
fn line_up<'a>(
    scope: &'a thread::Scope<'a, '_>,
    threads: usize,
    work: impl Fn(usize) + Send + Copy + 'a,
) {
    for number in 0..threads {
        scope.spawn(move || work(number));
        thread::sleep(ms(40));
    }
}

#[test]
fn who_comes_first_is_served_first() {
    let server = RedisServer::start();
    for client in [Client::in_memory(), Client::open(&server.url()).unwrap()] {
        let lock = client.lock("orders");
        let order = Mutex::new(Vec::new());
        lock.lock().unwrap();
        thread::scope(|scope| {
            line_up(scope, 6, |number| {
                client.lock("orders").lock().unwrap();
                order.lock().unwrap().push(number);
                client.lock("orders").unlock().unwrap();
            });
            lock.unlock().unwrap();
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
        assert!(!lock.is_locked().unwrap());
    }
}

#[test]
fn a_hand_over_is_one_request() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let (threads, rounds) = (8, 100);
    let barrier = Barrier::new(threads);
    client.lock("orders").run(|_| ()).unwrap();
    let before = server.eval_count();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let lock = client.lock("orders");
                barrier.wait();
                for _ in 0..rounds {
                    lock.lock().unwrap();
                    lock.unlock().unwrap();
                }
            });
        }
    });
    let requests = server.eval_count() - before;
    // Besides: the first one, the last one, and a lock set free now and then for who might wait elsewhere unseen.
    assert!(
        requests <= 800 + 160,
        "{requests} requests for 800 acquisitions"
    );
    assert!(requests >= 800, "{requests}");
}

#[test]
fn a_hold_that_was_handed_over_is_like_any_other() {
    let server = RedisServer::start();
    let lease = ms(900);
    let client = Client::builder()
        .watchdog_timeout(lease)
        .open(&server.url())
        .unwrap();
    let lock = client.lock("orders");
    let other = Client::open(&server.url()).unwrap().lock("orders");
    lock.lock().unwrap();
    lock.lock().unwrap();
    thread::scope(|scope| {
        let heir = scope.spawn(|| {
            let guard = lock.guard().unwrap();
            let (_, fields) = fields_of(&server, "orders");
            assert_eq!(fields, [(guard.visitor().to_string(), "1".to_owned())]);
            assert_eq!(lock.hold_count().unwrap(), 1);
            lock.lock().unwrap();
            assert_eq!(lock.hold_count().unwrap(), 2);
            lock.unlock().unwrap();
            thread::sleep(lease * 2);
            assert!(guard.is_valid(), "it is renewed");
            assert!(!other.try_lock().unwrap());
            guard.unlock().unwrap();
        });
        // A fixed lease stays its own, whoever it was handed by.
        thread::sleep(ms(100));
        let fixed = scope.spawn(|| {
            let guard = lock.with_lease_time(ms(300)).guard().unwrap();
            let loss = guard.lost().recv_timeout(ms(300) + SLACK).unwrap();
            assert_eq!(loss.cause, LossCause::LeaseEnded);
            assert!(guard.unlock().unwrap_err().is_lost());
        });
        thread::sleep(ms(100));
        lock.unlock().unwrap();
        assert_eq!(
            lock.hold_count().unwrap(),
            1,
            "the last unlock hands it over"
        );
        lock.unlock().unwrap();
        assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
        heir.join().unwrap();
        fixed.join().unwrap();
    });
    assert!(other.try_lock_for(SLACK).unwrap());
    other.unlock().unwrap();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

fn fields_of(server: &RedisServer, name: &str) -> (i64, Vec<(String, String)>) {
    let all: Vec<String> = redis::cmd("HGETALL")
        .arg(name)
        .query(&mut server.admin())
        .unwrap();
    let pairs = all.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    (server.int(&["PTTL", name]), pairs.collect())
}

#[test]
fn a_lost_hold_is_not_handed_over() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().and_then(|()| lock.unlock()));
        thread::sleep(ms(150));
        server.cmd(&["DEL", "orders"]);
        let error = lock.unlock().unwrap_err();
        assert!(error.is_lost(), "{error}");
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn a_hand_over_whose_reply_is_lost_has_happened() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let client = Client::builder()
        .command_timeout(ms(600))
        .open(&proxy.url())
        .unwrap();
    let lock = client.lock("orders");
    for end in [End::Reset, End::Silent] {
        lock.lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = lock.guard().unwrap();
                assert!(guard.is_valid());
                guard.unlock()
            });
            thread::sleep(ms(150));
            let visitor = fields_of(&server, "orders").1[0].0.clone();
            let rule = proxy.next(1, Some(visitor.as_bytes()), Fault::SwallowReply(end));
            lock.unlock().unwrap();
            assert_eq!(rule.hits(), 1);
            waiter.join().unwrap().unwrap();
        });
        assert_eq!(server.int(&["DBSIZE"]), 0);
    }
}

#[test]
fn a_hand_over_of_unknown_outcome_ends_both_holds_and_the_waiter_goes_on() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let client = Client::builder()
        .command_timeout(ms(400))
        .open(&proxy.url())
        .unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    let visitor = fields_of(&server, "orders").1[0].0.clone();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.guard().unwrap();
            assert!(guard.is_valid());
            assert_eq!(lock.hold_count().unwrap(), 1);
            guard.unlock()
        });
        thread::sleep(ms(150));
        // Both tries are executed, and neither is answered.
        let fault = Fault::SwallowReply(End::Silent);
        let rule = proxy.next(2, Some(visitor.as_bytes()), fault);
        let start = Instant::now();
        let error = lock.unlock().unwrap_err();
        assert!(error.is_ambiguous(), "{error}");
        assert!(start.elapsed() < ms(400) + SLACK);
        assert_eq!(rule.hits(), 2);
        assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
        waiter.join().unwrap().unwrap();
    });
    eventually(SLACK, "nothing is left", || server.int(&["DBSIZE"]) == 0);
}

#[test]
fn an_interrupt_at_the_hand_over_gives_the_lock_or_leaves_nothing() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders");
    let mut held = 0;
    for round in 0..300 {
        let interrupt = Interrupt::new();
        lock.lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| match lock.lock_interruptibly(&interrupt) {
                Ok(()) => {
                    assert!(lock.is_valid());
                    lock.unlock().unwrap();
                    1
                }
                Err(error) => {
                    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
                    0
                }
            });
            thread::sleep(Duration::from_micros(300));
            scope.spawn(|| {
                thread::sleep(Duration::from_micros(round % 30 * 10));
                interrupt.raise();
            });
            lock.unlock().unwrap();
            held += waiter.join().unwrap();
        });
        assert!(!lock.is_locked().unwrap(), "round {round}");
    }
    assert!(held > 0, "some were fast enough");
}

#[test]
fn other_processes_are_not_starved() {
    let server = RedisServer::start();
    let stop = Instant::now() + Duration::from_secs(3);
    let counts: Vec<AtomicU32> = (0..4).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        // Each client stands for a process.
        for count in &counts {
            let client = Client::open(&server.url()).unwrap();
            for _ in 0..3 {
                let lock = client.lock("orders");
                scope.spawn(move || {
                    while Instant::now() < stop {
                        lock.lock().unwrap();
                        count.fetch_add(1, Ordering::Relaxed);
                        lock.unlock().unwrap();
                    }
                });
            }
        }
    });
    let counts: Vec<u32> = counts
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least * 4 > *most, "{counts:?}");
}

#[test]
fn five_hundred_waiters_make_no_storm() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    let order = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..500 {
            scope.spawn(|| {
                lock.lock().unwrap();
                order.fetch_add(1, Ordering::Relaxed);
                lock.unlock().unwrap();
            });
        }
        // They come, and then ask no more than one of them would.
        thread::sleep(ms(500));
        let before = server.eval_count();
        thread::sleep(Duration::from_secs(2));
        let asked = server.eval_count() - before;
        assert!(asked <= 10, "{asked} requests of 500 waiters in 2 s");
        let before = server.eval_count();
        lock.unlock().unwrap();
        eventually(Duration::from_secs(60), "all get through", || {
            order.load(Ordering::Relaxed) == 500
        });
        let requests = server.eval_count() - before;
        assert!(requests < 700, "{requests} requests for 500 acquisitions");
    });
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn an_outage_is_told_to_everybody_in_line() {
    let server = RedisServer::start();
    let client = Client::builder()
        .command_timeout(ms(300))
        .outage_timeout(Duration::from_secs(2))
        .open(&server.url())
        .unwrap();
    let holder = Client::open(&server.url()).unwrap();
    holder.lock("orders").lock().unwrap();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..30)
            .map(|number| {
                let lock = client.lock("orders");
                scope.spawn(move || {
                    if number % 2 == 0 {
                        lock.lock()
                    } else {
                        lock.try_lock_for(ms(1500)).map(|_| ())
                    }
                })
            })
            .collect();
        thread::sleep(ms(300));
        server.freeze();
        let start = Instant::now();
        for waiter in waiting {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(error.is_retryable(), "not refused, but {error}");
        }
        assert!(
            start.elapsed() < Duration::from_secs(2) + SLACK,
            "{:?}",
            start.elapsed()
        );
        server.thaw();
    });
}
