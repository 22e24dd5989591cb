//! The line of waiters inside a process, and the hand-over from one to the next.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Interrupt, LossCause};

use crate::invariants::{sha, somebody_waits};
#[cfg(target_os = "linux")]
use crate::support::ClockShim;
use crate::support::{End, Fault, Proxy, RedisServer, eventually, ms};

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
    // The process that hears a message first asks first, so the shares differ; nobody is starved.
    assert!(*least * 10 > *most, "{counts:?}");
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
            assert!(
                error.is_retryable() || error.is_ambiguous(),
                "not refused, but {error}"
            );
        }
        assert!(
            start.elapsed() < Duration::from_secs(2) + SLACK,
            "{:?}",
            start.elapsed()
        );
        server.thaw();
    });
}

/// Hands `lock`, which the calling thread holds, to the first of `waiters` threads in line, which keeps it without ever
/// unlocking it; then `part`s it from the lock. Returns how long after that the second has had it.
fn parted(lock: &redlatch::Lock, fixed: Option<Duration>, part: impl FnOnce()) -> Duration {
    lock.lock().unwrap();
    let (sender, got) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let (keep, kept) = crossbeam_channel::bounded::<()>(0);
        for number in 0..2 {
            let (sender, kept) = (sender.clone(), kept.clone());
            scope.spawn(move || {
                let lock = match fixed {
                    Some(lease) if number == 0 => lock.with_lease_time(lease),
                    _ => lock.clone(),
                };
                lock.lock().unwrap();
                sender.send(Instant::now()).unwrap();
                // Until the other end is dropped.
                let _ = kept.recv();
                let _ = lock.unlock();
            });
            thread::sleep(ms(60));
        }
        lock.unlock().unwrap();
        let handed = got.recv_timeout(SLACK).unwrap();
        thread::sleep(ms(60));
        part();
        let parted = match fixed {
            Some(lease) => handed + lease,
            None => Instant::now(),
        };
        let second = got.recv_timeout(SLACK * 2);
        drop(keep);
        second.unwrap().saturating_duration_since(parted)
    })
}

#[test]
fn a_lock_that_is_forced_open_goes_to_the_next_in_line_at_once() {
    let server = RedisServer::start();
    for client in [Client::in_memory(), Client::open(&server.url()).unwrap()] {
        let lock = client.lock("orders");
        let took = parted(&lock, None, || assert!(lock.force_unlock().unwrap()));
        assert!(took < ms(500), "{took:?}");
    }
}

#[test]
fn a_lease_that_ends_in_the_line_goes_to_the_next_at_once() {
    let server = RedisServer::start();
    for client in [Client::in_memory(), Client::open(&server.url()).unwrap()] {
        let took = parted(&client.lock("orders"), Some(ms(300)), || {});
        assert!(took < ms(400), "{took:?}");
    }
}

#[test]
fn a_lock_that_vanished_is_found_by_the_next_in_line_in_a_second() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let took = parted(&client.lock("orders"), None, || {
        server.cmd(&["FLUSHALL"]);
    });
    assert!(took < ms(1600), "{took:?}");
}

#[test]
fn a_hold_that_turns_out_lost_goes_to_the_next_in_line_at_once() {
    let server = RedisServer::start();
    let client = Client::builder()
        .watchdog_timeout(ms(600))
        .open(&server.url())
        .unwrap();
    let took = parted(&client.lock("orders"), None, || {
        server.cmd(&["FLUSHALL"]);
    });
    // The renewal that finds it gone comes after a third of the lease.
    assert!(took < ms(700), "{took:?}");
}

/// Unlocks while the server is silent, so that the waiter in line is chosen and nobody knows what comes of it; `meanwhile`
/// something ends its wait, which has to be heard before the server answers.
fn leaves_a_hand_over(
    wait: impl Fn(&redlatch::Lock) -> Result<bool, Error> + Sync,
    meanwhile: impl Fn(&Client) + Sync,
) {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let left = wait(&lock);
            (left, Instant::now())
        });
        thread::sleep(ms(150));
        server.freeze();
        scope.spawn(|| {
            thread::sleep(ms(100));
            meanwhile(&client);
        });
        let thaw = scope.spawn(|| {
            thread::sleep(ms(1500));
            let now = Instant::now();
            server.thaw();
            now
        });
        lock.unlock().unwrap();
        let (left, at) = waiter.join().unwrap();
        assert!(!matches!(left, Ok(true)), "nothing was handed to it");
        let thawed = thaw.join().unwrap();
        assert!(at < thawed, "it left {:?} after the answer", at - thawed);
    });
    // What was granted to the one who had left is nobody's.
    let other = Client::open(&server.url()).unwrap().lock("orders");
    assert!(other.try_lock_for(SLACK).unwrap());
    other.unlock().unwrap();
    eventually(SLACK, "nothing is left", || server.int(&["DBSIZE"]) == 0);
}

#[test]
fn a_deadline_in_the_middle_of_a_hand_over_is_kept() {
    leaves_a_hand_over(|lock| lock.try_lock_for(ms(400)), |_| {});
}

#[test]
fn an_interrupt_in_the_middle_of_a_hand_over_is_heard() {
    let interrupt = Interrupt::new();
    leaves_a_hand_over(
        |lock| lock.lock_interruptibly(&interrupt).map(|()| true),
        |_| interrupt.raise(),
    );
}

#[test]
fn a_shutdown_in_the_middle_of_a_hand_over_is_heard() {
    leaves_a_hand_over(|lock| lock.lock().map(|()| true), Client::shutdown);
}

#[test]
fn a_heir_that_left_leaves_the_lock_to_the_next_in_line() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    thread::scope(|scope| {
        let hasty = scope.spawn(|| lock.try_lock_for(ms(400)));
        thread::sleep(ms(100));
        let patient = scope.spawn(|| {
            lock.lock().unwrap();
            let now = Instant::now();
            lock.unlock().unwrap();
            now
        });
        thread::sleep(ms(100));
        server.freeze();
        scope.spawn(|| {
            thread::sleep(ms(1200));
            server.thaw();
        });
        lock.unlock().unwrap();
        let unlocked = Instant::now();
        assert!(!matches!(hasty.join().unwrap(), Ok(true)));
        let took = patient.join().unwrap().saturating_duration_since(unlocked);
        assert!(took < ms(700), "{took:?}");
    });
    eventually(SLACK, "nothing is left", || server.int(&["DBSIZE"]) == 0);
}

#[test]
fn nobody_is_woken_for_a_hand_over_that_cannot_be() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let proxies: Vec<_> = servers.iter().map(|one| Proxy::to(one.addr())).collect();
    let redlock = redlatch::Redlock::builder()
        .nodes(proxies.iter().map(|one| Client::open(&one.url()).unwrap()))
        .trust_new_nodes()
        .node_timeout(ms(1000))
        .build()
        .unwrap();
    let lock = redlock.lock("orders");
    let guard = lock.guard().unwrap();
    let asked = || servers.iter().map(RedisServer::eval_count).sum::<u64>();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().and_then(|()| lock.unlock()));
        // Past the look that follows the subscription, and not near the next one.
        thread::sleep(ms(300));
        let before = asked();
        for proxy in &proxies {
            let visitor = guard.visitor().as_str().as_bytes();
            proxy.next(1, Some(visitor), Fault::DelayRequest(ms(200)));
        }
        let looked = scope.spawn(|| {
            thread::sleep(ms(100));
            asked()
        });
        guard.unlock().unwrap();
        assert_eq!(looked.join().unwrap(), before, "nothing was free yet");
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_crowd_at_its_deadline_is_refused_although_it_cannot_ask_at_once() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    proxy.next(usize::MAX, None, Fault::DelayReply(ms(20)));
    let client = Client::open(&proxy.url()).unwrap();
    let holder = Client::open(&server.url()).unwrap().lock("orders");
    holder.lock().unwrap();
    let (start, refused) = (Barrier::new(600), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..600 {
            scope.spawn(|| {
                start.wait();
                match client.lock("orders").try_lock_for(ms(700)) {
                    Ok(false) => refused.fetch_add(1, Ordering::Relaxed),
                    other => panic!("{other:?}"),
                }
            });
        }
    });
    assert_eq!(refused.into_inner(), 600);
    holder.unlock().unwrap();
}

#[test]
fn an_exhausted_pool_is_an_error_of_its_own() {
    let server = RedisServer::start();
    let client = Client::builder().pool_size(1).open(&server.url()).unwrap();
    client.lock("warm").run(|_| ()).unwrap();
    server.freeze();
    thread::scope(|scope| {
        scope.spawn(|| client.lock("a").try_lock());
        thread::sleep(ms(100));
        for refused in [
            client.lock("b").try_lock_for(Duration::ZERO),
            client.lock("c").try_lock_for(ms(100)),
        ] {
            let error = refused.unwrap_err();
            assert!(
                matches!(error, Error::Exhausted { connections: 1, .. }),
                "{error}"
            );
            assert!(error.is_retryable() && !error.is_ambiguous());
            assert!(error.to_string().contains("pool_size"), "{error}");
        }
        server.thaw();
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_hand_over_that_was_refused_after_one_without_an_answer_is_in_doubt() {
    const TRANSFER: &str = include_str!("../../src/stores/redis/scripts/transfer.lua");
    let shim = ClockShim::build();
    let server = RedisServer::with_clock(&shim);
    assert_eq!(
        server.text(&["SCRIPT", "LOAD", TRANSFER]),
        Some(sha(TRANSFER))
    );
    let proxy = Proxy::to(server.addr());
    let client = Client::builder()
        .command_timeout(ms(6000))
        .open(&proxy.url())
        .unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    let sha = sha(TRANSFER);
    proxy.next(1, Some(sha.as_bytes()), Fault::SwallowReply(End::Reset));
    let second = proxy.next(1, Some(sha.as_bytes()), Fault::Hold);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            // The lease that the first copy gave it has 20 s left.
            assert!(lock.try_lock_for(ms(8000)).unwrap());
            lock.unlock().unwrap();
        });
        somebody_waits(&server, "orders");
        scope.spawn(|| {
            eventually(ms(3000), "the second copy", || second.hits() == 1);
            shim.set(10_000);
            second.release();
        });
        let error = lock.unlock().unwrap_err();
        assert!(error.is_ambiguous(), "{error}");
        waiter.join().unwrap();
    });
}
