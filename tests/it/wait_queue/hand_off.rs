//! The hand-off of a hold to the next in the queue: one request, and what may happen to it.

use super::*;
use crate::observed::noted;

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
        until_queued(&lock, 1);
        let fixed = scope.spawn(|| {
            let guard = lock.with_lease_time(ms(300)).guard().unwrap();
            let loss = guard.lost().recv_timeout(ms(300) + SLACK).unwrap();
            assert_eq!(loss.cause, LossCause::LeaseEnded);
            assert!(guard.unlock().unwrap_err().is_lost());
        });
        until_queued(&lock, 2);
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
        // Not for ever, so that the test ends if nobody waits.
        let waiter = scope.spawn(|| {
            assert!(lock.try_lock_for(SLACK * 4).unwrap());
            lock.unlock()
        });
        until_queued(&lock, 1);
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
            until_queued(&lock, 1);
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
        until_queued(&lock, 1);
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

/// Unlocks while the server is silent, so that the waiter in line is chosen and nobody knows what comes of it; `meanwhile`
/// something ends its wait, which has to be heard before the server answers.
fn leaves_a_hand_over(
    wait: impl Fn(&Lock) -> Result<bool, Error> + Sync,
    meanwhile: impl Fn(&Client) + Sync,
) {
    let server = RedisServer::start();
    let (builder, notes) = noted();
    let client = builder.open(&server.url()).unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let left = wait(&lock);
            (left, Instant::now())
        });
        until_at_rest(slice::from_ref(&server), &lock, 1);
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
    let counts = [" acquired ", "orders unlocked", "orders lost"].map(|what| notes.count(what));
    assert_eq!(
        (counts[0], counts[1] + counts[2]),
        (1, 1),
        "{:#?}",
        notes.said()
    );
    assert!(client.activity().holds.is_empty());
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
        until_queued(&lock, 1);
        let patient = scope.spawn(|| {
            lock.lock().unwrap();
            let now = Instant::now();
            lock.unlock().unwrap();
            now
        });
        until_at_rest(slice::from_ref(&server), &lock, 2);
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
        until_at_rest(&servers, &lock, 1);
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

#[cfg(target_os = "linux")]
#[test]
fn a_hand_over_that_was_refused_after_one_without_an_answer_is_asked_for_again() {
    let shim = ClockShim::build();
    let server = RedisServer::with_clock(&shim);
    teach_one(&server, TRANSFER);
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
            assert!(lock.try_lock_for(ms(8000)).unwrap());
            lock.unlock().unwrap();
        });
        somebody_waits(&server, "orders");
        scope.spawn(|| {
            eventually(ms(3000), "the second copy", || second.hits() == 1);
            shim.set(10_000);
            second.release();
        });
        // The third copy finds what the first one did.
        lock.unlock().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn a_hand_off_that_comes_too_late_leaves_nobody_asleep() {
    let server = RedisServer::start();
    teach_one(&server, TRANSFER);
    let proxy = Proxy::to(server.addr());
    let client = Client::open(&proxy.url()).unwrap();
    let lock = client.lock("orders");
    let sha = sha(TRANSFER);
    for _ in 0..25 {
        let guard = lock.guard().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let short = lock.with_lease_time(ms(60));
                short.lock().unwrap();
                let got = Instant::now();
                // Its lease may be over by now.
                let _ = short.unlock();
                got
            });
            until_queued(&lock, 1);
            // It is over when it is granted.
            proxy.next(1, Some(sha.as_bytes()), Fault::DelayReply(ms(90)));
            guard.unlock().unwrap();
            let free = Instant::now();
            let waited = waiter.join().unwrap().saturating_duration_since(free);
            // It looks again by itself after a second, on a busy machine, too.
            assert!(waited < ms(950), "{waited:?} asleep on a free lock");
        });
    }
}
