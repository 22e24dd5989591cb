//! Rights and passwords: F25 and F26.

use super::*;

#[test]
fn missing_rights_leave_no_key_without_a_ttl() {
    let server = RedisServer::start();
    let url = user(&server, "app", &["-pexpire", "-hdel"]);
    let client = quick().open(&url).unwrap();
    let error = fails(client.lock("orders").try_lock(), Class::Permission);
    let Error::Permission { missing, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*missing, ["+hdel", "+pexpire"]);
    is_empty(&server);
}

#[test]
fn a_user_without_evalsha_or_channels_can_lock() {
    let server = RedisServer::start();
    for rules in [&["-evalsha"][..], &["resetchannels"], &["-subscribe"]] {
        let url = user(&server, "app", rules);
        let client = quick().watchdog_timeout(LEASE).open(&url).unwrap();
        let lock = client.lock("orders");
        all_works(&lock, &|| {});
        lock.lock().unwrap();
        let got = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
                let now = Instant::now();
                lock.unlock().unwrap();
                now
            });
            thread::sleep(ms(200));
            let freed = Instant::now();
            lock.unlock().unwrap();
            waiting.join().unwrap().duration_since(freed)
        });
        assert!(got < ms(1100) + SLACK, "{got:?}");
        is_empty(&server);
    }
    let url = user(&server, "app", &["-eval", "-evalsha"]);
    let error = fails(
        quick().open(&url).unwrap().lock("orders").lock(),
        Class::Permission,
    );
    assert!(error.to_string().contains("eval"), "{error}");
}

#[test]
fn the_error_names_the_key_that_the_user_lacks() {
    let server = RedisServer::start();
    let url = user(&server, "app", &["resetkeys", "~invoices:*"]);
    let client = quick().open(&url).unwrap();
    all_works(&client.lock("invoices:1"), &|| {});
    for result in [
        client.lock("orders").try_lock(),
        client.lock("orders").is_locked(),
        client.lock("orders").force_unlock(),
    ] {
        let error = fails(result, Class::Permission);
        assert!(error.to_string().contains("~orders"), "{error}");
    }
    is_empty(&server);
}

#[test]
fn a_wrong_password_and_an_unknown_user_are_refused_at_once() {
    let server = RedisServer::start();
    let good = user(&server, "app", &[]);
    let proxy = Proxy::to(server.addr());
    let to_proxy = |url: &str| url.replace(&server.addr().to_string(), &proxy.addr().to_string());
    let urls = [
        to_proxy(&good.replace(":canary", ":wrong-canary")),
        to_proxy(&good.replace("app", "stranger")),
    ];
    for url in &urls {
        let client = quick().open(url).unwrap();
        let lock = client.lock("orders");
        let accepted = proxy.counters().accepted;
        ends_within(ms(0), || fails(lock.try_lock(), Class::Permission));
        ends_within(ms(0), || {
            fails(
                lock.try_lock_for(Duration::from_secs(60)),
                Class::Permission,
            )
        });
        ends_within(ms(0), || fails(lock.lock(), Class::Permission));
        fails(lock.is_locked(), Class::Permission);
        fails(lock.force_unlock(), Class::Permission);
        fails(client.check(), Class::Permission);
        // One more connection for the query of the missing right, and one for the check at the start.
        let tries = proxy.counters().accepted - accepted;
        assert!(tries <= 16, "{tries} connections for 6 calls");
    }
    // The server requires a password, and the client has none.
    server.cmd(&["CONFIG", "SET", "requirepass", CANARY]);
    let error = fails(client(&server).lock("orders").lock(), Class::Permission);
    assert!(error.to_string().contains("NOAUTH"), "{error}");
    let url = server.url().replace("://", &format!("://:{CANARY}@"));
    all_works(&quick().open(&url).unwrap().lock("orders"), &|| {});
    all_works(
        &quick().open(&to_proxy(&good)).unwrap().lock("orders"),
        &|| {},
    );
}

#[test]
fn revoked_rights_end_waits_and_holds() {
    let server = RedisServer::start();
    let url = user(&server, "app", &[]);
    let client = quick().watchdog_timeout(SHORT).open(&url).unwrap();
    let lock = client.lock("orders");
    let other = self::client(&server);
    other.lock("orders").lock().unwrap();
    let guard = client.lock("invoices").guard().unwrap();
    let lost = guard.lost();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.try_lock_for(Duration::from_secs(60)));
        somebody_waits(&server, "orders");
        // Open connections stay open.
        server.cmd(&["ACL", "SETUSER", "app", "off"]);
        assert!(guard.is_valid());
        let start = Instant::now();
        server.cmd(&["ACL", "DELUSER", "app"]);
        fails(waiting.join().unwrap(), Class::Permission);
        assert!(start.elapsed() < ms(1100) + SLACK, "{:?}", start.elapsed());
        next_loss(&lost, SHORT);
        assert!(!guard.is_valid());
    });
    fails(guard.unlock(), Class::Lost);
    fails(client.lock("other").try_lock(), Class::Permission);
    other.lock("orders").unlock().unwrap();
    leaves_nothing(&server);
}
