//! Rights and passwords: F25 and F26.

use super::*;
use crate::support::scripts;

/// The commands that scripts call, but for those that are only the last resort of one, or for another kind of lock.
fn needed() -> Vec<String> {
    let all = scripts::all();
    let of_locks = all
        .iter()
        .filter(|(path, _)| path.starts_with("reentrant/"));
    let called = |(_, text): &(String, String)| -> Vec<String> {
        let text = scripts::spliced(text);
        let calls = text.split("call('").skip(1);
        let calls = calls.filter_map(|rest| rest.split_once('\''));
        calls.map(|(command, _)| command.to_lowercase()).collect()
    };
    let mut commands: Vec<_> = of_locks
        .flat_map(called)
        // Of these the first undoes, the second is for the nodes of a quorum, and a hand-off does without the third.
        .filter(|command| !["del", "info", "pubsub"].contains(&&**command))
        .collect();
    commands.sort();
    commands.dedup();
    assert!(commands.len() >= 9, "{commands:?}");
    commands
}

#[test]
fn each_right_that_lacks_is_named_and_nothing_stays() {
    let server = RedisServer::start();
    for command in needed() {
        let url = user(&server, "app", &[&format!("-{command}")]);
        let client = quick().watchdog_timeout(LEASE).open(&url).unwrap();
        let lock = client.lock("orders");
        let stranger = self::client(&server).lock("orders");
        let mut errors = Vec::new();
        let mut note = |error: Option<Error>| {
            every_key_expires(&server);
            errors.extend(error);
        };
        note(lock.is_locked().err());
        note(lock.try_lock().err());
        note(lock.try_lock().err());
        note(lock.unlock().err());
        note(lock.unlock().err());
        server.cmd(&["DEL", "orders"]);
        stranger.lock().unwrap();
        note(ends_within(ms(200), || lock.try_lock_for(ms(100))).err());
        note(lock.force_unlock().err());
        let _ = stranger.unlock();
        server.cmd(&["DEL", "orders"]);
        // A re-entry, and an unlock, of what was taken away.
        note(lock.try_lock().err());
        server.cmd(&["DEL", "orders"]);
        note(lock.try_lock().err());
        server.cmd(&["DEL", "orders"]);
        note(lock.unlock().err());
        note(lock.unlock().err());
        let mut named = 0;
        for error in errors {
            no_secret(&error);
            no_secret(&error.to_string());
            match error {
                Error::Permission { missing, .. } => {
                    assert_eq!(missing, [format!("+{command}")]);
                    named += 1;
                }
                // What follows from it.
                Error::NotHeld { .. } | Error::Lost { .. } => {}
                error => panic!("without {command}: {error}"),
            }
        }
        // Waiters look for themselves, so it is a loss of speed only. Renewals and hand-overs alone need HEXISTS.
        let is_spared = matches!(&*command, "publish" | "hexists" | "hlen");
        assert!(named > 0 || is_spared, "{command}");
        let said = match client.check() {
            Ok(warnings) => format!("{warnings:?}"),
            // Without TIME there is no connection.
            Err(error) => error.to_string(),
        };
        assert!(said.contains(&format!("+{command}")), "{command}: {said}");
    }
    server.cmd(&["DEL", "orders"]);
}

#[test]
fn two_rights_that_lack_leave_no_key_without_an_end() {
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
fn a_user_without_evalsha_or_channels_can_lock_all_the_same() {
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
fn a_user_of_other_keys_is_told_which_one_it_lacks() {
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
fn a_user_without_a_name_for_its_connection_can_lock_all_the_same() {
    let server = RedisServer::start();
    let url = user(&server, "app", &["-client", "-info"]);
    let client = quick().open(&url).unwrap();
    all_works(&client.lock("orders"), &|| {});
    client.check().unwrap();
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
        // With a second one to find out what is missing, and one of the look at the start.
        let tries = proxy.counters().accepted - accepted;
        assert!(tries <= 16, "{tries} connections for 6 calls");
    }
    // A server that wants a password of whoever has none.
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
fn rights_that_are_taken_away_meanwhile_end_waits_and_holds() {
    let server = RedisServer::start();
    let url = user(&server, "app", &[]);
    let client = quick().watchdog_timeout(SHORT).open(&url).unwrap();
    let lock = client.lock("orders");
    let stranger = self::client(&server);
    stranger.lock("orders").lock().unwrap();
    let guard = client.lock("invoices").guard().unwrap();
    let lost = guard.lost();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.try_lock_for(Duration::from_secs(60)));
        somebody_waits(&server, "orders");
        // Connections that are open stay open.
        server.cmd(&["ACL", "SETUSER", "app", "off"]);
        assert!(guard.is_valid());
        let start = Instant::now();
        server.cmd(&["ACL", "DELUSER", "app"]);
        fails(waiting.join().unwrap(), Class::Permission);
        assert!(start.elapsed() < ms(1100) + SLACK, "{:?}", start.elapsed());
        told(&lost, SHORT);
        assert!(!guard.is_valid());
    });
    fails(guard.unlock(), Class::Lost);
    fails(client.lock("other").try_lock(), Class::Permission);
    stranger.lock("orders").unlock().unwrap();
    leaves_nothing(&server);
}
