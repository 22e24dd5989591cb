//! Grants at the end of a wait, and locks without a TTL: F64, F66 and F67.

use super::*;

#[test]
fn a_lock_that_never_ends_is_reported_and_its_end_is_noticed() {
    let server = RedisServer::start();
    let client = Client::builder()
        .outage_timeout(ms(1500))
        .open(&server.url())
        .unwrap();
    let lock = client.lock("orders");
    server.cmd(&["HSET", "orders", "somebody:1", "1"]);
    let before = server.eval_count();
    let start = Instant::now();
    let errors = [
        lock.try_lock().map(drop).unwrap_err(),
        lock.try_lock_for(ms(1300)).map(drop).unwrap_err(),
        lock.lock().unwrap_err(),
        lock.remaining_lease().map(drop).unwrap_err(),
    ];
    let took = start.elapsed();
    for error in errors {
        assert!(matches!(error, Error::NoTtl { .. }), "{error}");
    }
    assert!(took >= ms(1300 + 1500), "they wait all the same: {took:?}");
    assert!(took < ms(1300 + 1500) + POLL + SLACK, "{took:?}");
    let evals = server.eval_count() - before;
    assert!(evals < 30, "{evals} tries in {took:?} are no sleep");
    // No message reports the end of such a key.
    let waited = thread::scope(|scope| {
        let waiting = scope.spawn(|| pass(&lock));
        thread::sleep(ms(300));
        let freed = Instant::now();
        server.cmd(&["DEL", "orders"]);
        waiting.join().unwrap() - freed
    });
    assert!(waited < POLL + SLACK, "{waited:?}");
    server.cmd(&["HSET", "orders", "somebody:1", "1"]);
    assert!(lock.force_unlock().unwrap());
    assert!(lock.try_lock().unwrap());
    lock.unlock().unwrap();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn a_grant_at_the_deadline_is_held_or_released() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let client = Client::open(&proxy.url()).unwrap();
    let watching = Client::open(&server.url()).unwrap();
    let (held, given_up) = (AtomicU32::new(0), AtomicU32::new(0));
    // Loads the scripts, so that each attempt is one request.
    assert!(client.lock("warm").try_lock().unwrap());
    client.lock("warm").unlock().unwrap();
    thread::scope(|scope| {
        for name in 0..6_u64 {
            let (proxy, client, watching, held, given_up) =
                (&proxy, &client, &watching, &held, &given_up);
            let name = format!("orders:{name}.");
            scope.spawn(move || {
                let lock = client.lock(&name).with_lease_time(MINUTE);
                for round in 0..8 {
                    // An attempt has until the end of the wait plus up to 250 ms.
                    let delay = ms(30 + 180 - 20 + 15 * round);
                    let rule = proxy.next(1, Some(name.as_bytes()), Fault::DelayReply(delay));
                    let start = Instant::now();
                    match lock.try_lock_for(ms(30)) {
                        Ok(true) => {
                            assert!(lock.is_valid());
                            assert_eq!(lock.hold_count().unwrap(), 1);
                            lock.unlock().unwrap();
                            held.fetch_add(1, Ordering::SeqCst);
                        }
                        Ok(false) => panic!("nobody else holds it"),
                        Err(error) => {
                            assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
                            let error = lock.unlock().unwrap_err();
                            assert!(matches!(error, Error::NotHeld { .. }), "{error}");
                            given_up.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    assert!(start.elapsed() < ms(30 + 250) + SLACK);
                    assert_eq!(rule.hits(), 1);
                    // Long before the lease ends, because it is released in the background.
                    eventually(SLACK * 2, "nothing is left behind", || {
                        !watching.lock(&name).is_locked().unwrap()
                    });
                }
            });
        }
    });
    assert!(held.into_inner() > 0);
    assert!(given_up.into_inner() > 0);
    assert_eq!(elsewhere(|| server.int(&["DBSIZE"])), 0);
}

#[test]
fn an_interrupt_waits_for_the_request_in_flight_only() {
    const COMMAND: Duration = ms(1000);
    let waits: [fn(&Client, &Interrupt) -> redlatch::Result<()>; 4] = [
        |client, interrupt| client.lock("orders").lock_interruptibly(interrupt),
        |client, interrupt| client.spin_lock("spun").lock_interruptibly(interrupt),
        |client, interrupt| client.latch("import").wait_interruptibly(interrupt),
        |client, interrupt| {
            let semaphore = client.semaphore("mail");
            semaphore.acquire_interruptibly(1, interrupt).map(drop)
        },
    ];
    let server = RedisServer::start();
    let client = Client::builder().command_timeout(COMMAND);
    let client = client.open(&server.url()).unwrap();
    client.lock("orders").is_locked().unwrap();
    server.freeze();
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let all = waits.map(|wait| {
            let (client, interrupt) = (&client, &interrupt);
            scope.spawn(move || (wait(client, interrupt), Instant::now()))
        });
        // All have sent their requests, and none got a reply.
        thread::sleep(ms(300));
        interrupt.raise();
        let raised = Instant::now();
        for one in all {
            let (outcome, ended) = one.join().unwrap();
            assert!(
                matches!(outcome, Err(Error::Interrupted { .. })),
                "{outcome:?}"
            );
            let took = ended.saturating_duration_since(raised);
            assert!(took < COMMAND + ms(300), "{took:?}");
        }
    });
    server.thaw();
}
