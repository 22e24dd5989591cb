//! Lost, forged and late messages: F59 to F63.

use super::*;

#[test]
fn a_subscriber_disconnected_as_too_slow_reconnects() {
    let server = RedisServer::start();
    server.cmd(&[
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "pubsub 200kb 200kb 0",
    ]);
    let holder = lock_of(&server.url());
    holder.lock().unwrap();
    let mut child = Child::spawn("waiter", &[("URL", &server.url())]);
    child.expect_line("waiting", MINUTE);
    eventually(SLACK * 2, "the child listens", || listeners(&server) == 1);
    child.freeze();
    let large = "x".repeat(100_000);
    // The kernel's buffers take some megabytes first.
    eventually(MINUTE, "the server gives the subscriber up", || {
        server.cmd(&["PUBLISH", CHANNEL, &large]);
        listeners(&server) == 0
    });
    child.thaw();
    eventually(SLACK * 2, "the child listens again", || {
        listeners(&server) == 1
    });
    assert_eq!(child.lines(), Vec::<String>::new());
    assert!(holder.is_valid());
    holder.unlock().unwrap();
    child.expect_line("got", POLL + SLACK);
    assert!(child.wait(MINUTE).success());
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

/// Unlocks while the waiter's SUBSCRIBE is in flight, and returns how long after its arrival the waiter acquired.
fn unlock_in_the_gap(server: &RedisServer, fault: Fault) -> Duration {
    let proxy = Proxy::to(server.addr());
    let holder = lock_of(&server.url());
    let waiter = lock_of(&proxy.url());
    holder.lock().unwrap();
    // Its connection is open and its script is loaded.
    assert!(!waiter.try_lock().unwrap());
    let rule = proxy.next(1, Some(b"SUBSCRIBE"), fault);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pass(&waiter));
        eventually(SLACK, "the SUBSCRIBE is under way", || rule.hits() == 1);
        thread::sleep(ms(20));
        holder.unlock().unwrap();
        rule.release();
        let arrived = Instant::now();
        waiting.join().unwrap().saturating_duration_since(arrived)
    })
}

#[test]
fn an_unlock_before_the_subscription_is_noticed() {
    let server = RedisServer::start();
    for fault in [Fault::Hold, Fault::DelayReply(ms(100))] {
        let times: Vec<_> = (0..7).map(|_| unlock_in_the_gap(&server, fault)).collect();
        assert!(times.iter().all(|time| *time < POLL + SLACK), "{times:?}");
        assert!(median(times.clone()) < WOKEN, "{fault:?}: {times:?}");
    }
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn a_lost_message_costs_one_poll() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let (holder, waiter) = (lock_of(&server.url()), lock_of(&proxy.url()));
    let rule = proxy.next(usize::MAX, None, Fault::DropPush);
    for _ in 0..2 {
        holder.lock().unwrap();
        let waited = thread::scope(|scope| {
            let waiting = scope.spawn(|| pass(&waiter));
            eventually(SLACK, "the waiter listens", || listeners(&server) == 1);
            thread::sleep(ms(100));
            let freed = Instant::now();
            holder.unlock().unwrap();
            waiting.join().unwrap() - freed
        });
        assert!(waited < POLL + SLACK, "{waited:?}");
    }
    assert!(rule.hits() >= 2, "messages were lost");
    // A wait uses its last instant for a last query.
    holder.lock().unwrap();
    let got = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let got = waiter.try_lock_for(ms(400)).unwrap();
            waiter.unlock().unwrap();
            got
        });
        thread::sleep(ms(150));
        holder.unlock().unwrap();
        waiting.join().unwrap()
    });
    assert!(got);
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn forged_messages_cause_a_bounded_number_of_attempts() {
    const WAITERS: u32 = 1;
    let server = RedisServer::start();
    let holder = lock_of(&server.url());
    let client = Client::open(&server.url()).unwrap();
    let waiter = client.lock("orders").with_lease_time(MINUTE);
    holder.lock().unwrap();
    let done = AtomicBool::new(false);
    let held = AtomicBool::new(true);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..WAITERS)
            .map(|_| {
                scope.spawn(|| {
                    waiter.lock().unwrap();
                    assert!(!held.swap(true, Ordering::SeqCst), "two at once");
                    held.store(false, Ordering::SeqCst);
                    waiter.unlock().unwrap();
                })
            })
            .collect();
        eventually(SLACK, "the waiters listen", || listeners(&server) == 1);
        let before = server.eval_count();
        let start = Instant::now();
        scope.spawn(|| {
            let mut connection = server.admin();
            // Few at a time, so that the server has time for all attempts of the waiter.
            let mut flood = redis::pipe();
            for message in [
                "0",
                "1",
                "",
                "unlock",
                "-1",
                "99999999999999999999",
                "\0\u{ff}",
            ] {
                flood.cmd("PUBLISH").arg(CHANNEL).arg(message).ignore();
            }
            while !done.load(Ordering::SeqCst) {
                flood.query::<()>(&mut connection).unwrap();
                thread::sleep(Duration::from_micros(50));
            }
        });
        thread::sleep(ms(2000));
        let evals = server.eval_count() - before;
        let spans = u64::try_from(start.elapsed().as_millis()).unwrap() / 100 + 2;
        done.store(true, Ordering::SeqCst);
        let all_wait = waiting.iter().all(|waiter| !waiter.is_finished());
        let was_valid = holder.is_valid();
        held.store(false, Ordering::SeqCst);
        holder.unlock().unwrap();
        let freed = Instant::now();
        for waiter in waiting {
            waiter.join().unwrap();
        }
        // No dead connection is left that could delay it.
        assert!(freed.elapsed() < POLL + SLACK);
        assert!(all_wait && was_valid);
        let most = u64::from(WAITERS) * 101 * spans;
        assert!(evals <= most, "{evals} tries in {spans} spans");
        assert!(evals > 20, "they do try: {evals}");
    });
    assert_eq!(server.int(&["DBSIZE"]), 0);
}
