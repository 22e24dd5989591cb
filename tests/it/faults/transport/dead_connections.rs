//! Connections that are dead, refused or overrun: F7, F11, F13 and F14.

use super::*;

#[test]
fn renewals_need_no_new_connection() {
    let lease = ms(2000);
    let builder = Client::builder().command_timeout(Duration::from_secs(5));
    let fixture = Fixture::with(builder.watchdog_timeout(lease));
    let lock = fixture.client.lock("orders");
    lock.lock().unwrap();
    fixture.proxy.refuse();
    let start = Instant::now();
    while start.elapsed() < lease + ms(500) {
        assert!(lock.is_valid(), "lost after {:?}", start.elapsed());
        thread::sleep(ms(20));
    }
    lock.unlock().unwrap();
    is_empty(&fixture.server);
}

#[test]
fn a_dead_connection_costs_one_command_timeout() {
    let fixture = Fixture::with(quick().pool_size(1));
    let lock = fixture.warm();
    // The background thread sometimes uses the same connection, and has to finish first.
    let mute = || {
        thread::sleep(ms(300));
        fixture.proxy.mute();
    };
    mute();
    ends_within(TIMEOUT, || fails(lock.is_locked(), Class::Unreachable));
    assert!(!lock.is_locked().unwrap());

    mute();
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
    assert!(lock.try_lock().unwrap());

    mute();
    ends_within(TIMEOUT, || lock.unlock().unwrap());
    is_empty(&fixture.server);

    mute();
    let got = ends_within(TIMEOUT, || {
        lock.try_lock_for(Duration::from_secs(20)).unwrap()
    });
    assert!(got);
    one_hold_and_then_none(&fixture, &lock);
}

#[test]
fn every_call_ends_in_time_while_the_server_is_silent() {
    let fixture = Fixture::with(quick().watchdog_timeout(LEASE));
    let lock = fixture.warm();
    let other = fixture.client.lock("invoices");
    let third = fixture.client.lock("parcels");
    lock.lock().unwrap();
    lock.lock().unwrap();
    let guard = other.guard().unwrap();
    // Only the renewal could keep or free the lock.
    fixture.proxy.black_hole();
    let bounded = |what: &str, call: &mut dyn FnMut() -> bool| {
        let start = Instant::now();
        assert!(call(), "{what} has not failed");
        let took = start.elapsed();
        assert!(took < TIMEOUT + SLACK, "{what} took {took:?}");
    };
    bounded("unlock of a level", &mut || lock.unlock().is_err());
    bounded("unlock", &mut || lock.unlock().is_err());
    let mut guard = Some(guard);
    bounded("drop of a guard", &mut || guard.take().is_some());
    bounded("try_lock", &mut || third.try_lock().is_err());
    bounded("try_lock_for", &mut || third.try_lock_for(ms(300)).is_err());
    bounded("is_locked", &mut || third.is_locked().is_err());
    bounded("remaining_lease", &mut || third.remaining_lease().is_err());
    bounded("force_unlock", &mut || third.force_unlock().is_err());
    bounded("check", &mut || fixture.client.check().is_err());
    let start = Instant::now();
    assert!(third.lock().is_err());
    assert!(start.elapsed() >= ms(800), "the outage time-out");
    assert!(start.elapsed() < ms(800) + TIMEOUT + SLACK);
    fixture.proxy.heal();
    leaves_nothing(&fixture.server);
    assert!(lock.try_lock().unwrap());
    fixture.proxy.black_hole();
    ends_within(TIMEOUT * 2, || fixture.client.shutdown());
    fixture.proxy.heal();
    every_key_expires(&fixture.server);
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_unreachable() {
    let fixture = Fixture::with(quick().connect_timeout(ms(200)));
    let lock = fixture.client.lock("orders");
    fixture.server.freeze();
    ends_within(ms(200), || fails(lock.try_lock(), Class::Unreachable));
    ends_within(ms(300), || {
        fails(lock.try_lock_for(ms(300)), Class::Unreachable)
    });
    ends_within(ms(200), || fails(lock.is_locked(), Class::Unreachable));
    fixture.server.thaw();
    assert!(lock.try_lock().unwrap());
    one_hold_and_then_none(&fixture, &lock);
}

#[test]
fn one_budget_covers_connecting_and_the_whole_handshake() {
    let server = RedisServer::start();
    teach(&server);
    server.cmd(&[
        "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all",
    ]);
    let proxy = Proxy::to(server.addr());
    let url = proxy.url().replace("redis://", "redis://app:secret@") + "/3";
    let client = quick().connect_timeout(ms(500)).open(&url).unwrap();
    let lock = client.lock("orders");
    // AUTH, SELECT, SETNAME, TIME: each in time, but not all together.
    proxy.next(FOR_EVER, None, Fault::DelayReply(ms(400)));
    let start = Instant::now();
    fails(lock.try_lock(), Class::Unreachable);
    assert!(start.elapsed() >= ms(400));
    // Without a common deadline it would take 1.6 s.
    assert!(start.elapsed() < ms(1200), "{:?}", start.elapsed());
    proxy.heal();
    assert!(lock.try_lock().unwrap());
    lock.unlock().unwrap();
}

#[test]
fn waiters_survive_a_restart() {
    let server = RedisServer::start();
    let client = quick()
        .outage_timeout(Duration::from_secs(30))
        .open(&server.url())
        .unwrap();
    let other = quick().open(&server.url()).unwrap();
    other.lock("orders").lock().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..4)
            .map(|number| {
                let lock = client.lock("orders");
                scope.spawn(move || {
                    if number % 2 == 0 {
                        lock.lock().unwrap();
                    } else {
                        assert!(lock.try_lock_for(Duration::from_secs(30)).unwrap());
                    }
                    lock.unlock().unwrap();
                    Instant::now()
                })
            })
            .collect();
        somebody_waits(&server, "orders");
        server.kill();
        // The close of a recently used connection may show only after the next request.
        let error = ends_within(ms(0), || client.lock("other").try_lock()).unwrap_err();
        assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
        let fresh = quick().open(&server.url()).unwrap();
        let lock = fresh.lock("other");
        ends_within(ms(0), || fails(lock.try_lock(), Class::Unreachable));
        ends_within(ms(200), || {
            fails(lock.try_lock_for(ms(200)), Class::Unreachable)
        });
        thread::sleep(ms(500));
        // The server restarts without the lock.
        server.restart();
        let back = Instant::now();
        for waiter in waiters {
            let granted = waiter.join().unwrap();
            assert!(
                granted.duration_since(back) < ms(1100) + SLACK,
                "{:?}",
                granted.duration_since(back)
            );
        }
    });
    drop(client);
    drop(other);
    no_connection_is_left(&server);
}
