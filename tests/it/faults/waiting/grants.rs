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
fn the_documented_time_bounds_include_the_round_trip() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let command = ms(1600);
    let clients: Vec<_> = servers
        .iter()
        .map(|one| {
            Client::builder()
                .command_timeout(command)
                .open(&one.url())
                .unwrap()
        })
        .collect();
    let redlock = redlatch::Redlock::builder()
        .nodes(clients.clone())
        .trust_new_nodes()
        .node_timeout(ms(5000))
        .build()
        .unwrap();
    let lock = |place: usize, name: &str| match place {
        0 => clients[0].lock(&format!("one:{name}")),
        1 => redlock.lock(&format!("many:{name}")),
        _ => {
            let parts = clients.iter().enumerate();
            let parts: Vec<_> = parts
                .map(|(part, one)| one.lock(&format!("{part}:{name}")))
                .collect();
            redlatch::MultiLock::of(&parts).unwrap()
        }
    };
    for place in 0..3 {
        let taken = lock(place, "taken").with_lease_time(MINUTE / 2);
        taken.lock().unwrap();
    }
    // Each thread holds a lock and waits for a taken one when all servers fall silent.
    let ready = std::sync::Barrier::new(10);
    let took: Vec<(usize, [Duration; 3])> = thread::scope(|scope| {
        let threads: Vec<_> = (0..9)
            .map(|number| {
                let (lock, ready, place) = (&lock, &ready, number % 3);
                scope.spawn(move || {
                    let own = lock(place, &format!("own:{number}"));
                    let taken = lock(place, "taken");
                    own.lock().unwrap();
                    ready.wait();
                    ready.wait();
                    let took = |call: &dyn Fn() -> Result<bool, Error>| {
                        let start = Instant::now();
                        let error = call().unwrap_err();
                        assert!(!matches!(error, Error::NotHeld { .. }), "{error}");
                        start.elapsed()
                    };
                    let calls = [
                        took(&|| own.unlock().map(|()| true)),
                        took(&|| taken.try_lock_for(ms(100))),
                        took(&|| taken.try_lock()),
                    ];
                    (place, calls)
                })
            })
            .collect();
        ready.wait();
        servers.iter().for_each(RedisServer::freeze);
        ready.wait();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    servers.iter().for_each(RedisServer::thaw);
    for place in 0..3 {
        // The minimum counts: the slack of the machine is not part of the bound.
        let quickest = |call: usize| {
            let here = took.iter().filter(|(at, _)| *at == place);
            here.map(|(_, calls)| calls[call]).min().unwrap()
        };
        let [unlock, wait, once] = [0, 1, 2].map(quickest);
        assert!(unlock < command, "unlock: {unlock:?} in place {place}");
        assert!(wait < ms(100 + 250), "wait: {wait:?} in place {place}");
        assert!(once < command, "try: {once:?} in place {place}");
    }
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
