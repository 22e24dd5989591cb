//! The hand-off of a hold to the next in the queue: one request, and its unknown outcome.

use super::*;

#[test]
fn a_hand_off_is_one_request() {
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
    // Besides these: the first and the last one, and the releases for waiters of other processes.
    assert!(
        requests <= 800 + 160,
        "{requests} requests for 800 acquisitions"
    );
    assert!(requests >= 800, "{requests}");
}

#[test]
fn a_handed_off_hold_is_like_any_other() {
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
        // A fixed lease is kept across a hand-off.
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
fn a_lost_hold_is_not_handed_off() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    thread::scope(|scope| {
        // With a bound, so that the test ends without waiters.
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
fn a_hand_off_of_unknown_outcome_ends_both_holds() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let client = Client::builder()
        .command_timeout(ms(1500))
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
        // Both attempts are executed, without a reply.
        let fault = Fault::SwallowReply(End::Silent);
        let rule = proxy.next(2, Some(visitor.as_bytes()), fault);
        let start = Instant::now();
        let error = lock.unlock().unwrap_err();
        assert!(error.is_ambiguous(), "{error}");
        assert!(start.elapsed() < ms(1500) + SLACK);
        assert_eq!(rule.hits(), 2);
        assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
        waiter.join().unwrap().unwrap();
    });
    eventually(SLACK, "nothing is left", || server.int(&["DBSIZE"]) == 0);
}

#[test]
fn a_hand_off_skips_a_waiter_that_left() {
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
