//! Keys overwritten by other programs: F27, F28 and F66.

use super::*;

#[test]
fn a_key_of_another_program_is_left_alone() {
    let server = RedisServer::start();
    let client = losing(&server);
    for make in [
        &["SET", "orders", "somebody's"][..],
        &["HSET", "orders", "mode", "read", "uuid:1", "1"],
        // Data of an application, not a lock.
        &["HSET", "orders", "customer", "17", "status", "paid"],
        &["HSET", "orders", "customer", "17"],
        &["HSET", "orders", "customer:17", "paid"],
        &["HSET", "orders", "customer:17", "1", "customer:18", "1"],
    ] {
        server.cmd(make);
        let before = server.cmd(&["DUMP", "orders"]);
        let lock = client.lock("orders");
        fails(lock.try_lock(), Class::WrongType);
        ends_within(ms(0), || {
            fails(lock.try_lock_for(Duration::from_secs(60)), Class::WrongType)
        });
        let error = ends_within(ms(0), || fails(lock.lock(), Class::WrongType));
        assert_eq!(error.lock_name(), Some("orders"));
        fails(lock.unlock(), Class::NotHeld);
        fails(lock.force_unlock(), Class::WrongType);
        fails(lock.is_locked(), Class::WrongType);
        fails(lock.remaining_lease(), Class::WrongType);
        assert_eq!(server.cmd(&["DUMP", "orders"]), before);
        assert_eq!(server.int(&["PTTL", "orders"]), -1);
        server.cmd(&["DEL", "orders"]);
    }

    // Another program overwrites a held lock.
    for make in [
        &["SET", "orders", "somebody's"][..],
        &["HSET", "orders", "customer", "17"],
    ] {
        let guard = client.lock("orders").guard().unwrap();
        let again = client.lock("orders").guard().unwrap();
        let lost = guard.lost();
        server.in_one_step(&[&["DEL", "orders"], make]);
        let before = server.cmd(&["DUMP", "orders"]);
        fails(again.unlock(), Class::Lost);
        fails(client.lock("orders").try_lock(), Class::WrongType);
        let loss = next_loss(&lost, SHORT / 3 + TIMEOUT);
        assert!(
            matches!(&loss.cause, LossCause::HeldBy(what) if what.contains("another type")),
            "{loss}"
        );
        fails(guard.unlock(), Class::Lost);
        assert_eq!(server.cmd(&["DUMP", "orders"]), before);
        assert_eq!(server.int(&["PTTL", "orders"]), -1);
        server.cmd(&["DEL", "orders"]);
    }
}

#[test]
fn an_overwritten_lock_key_is_reported_as_lost_by_every_call() {
    type Step = fn(&Lock, Guard);
    let unlock: Step = |_, guard| drop(fails(guard.unlock(), Class::Lost));
    let give_level_back: Step = |lock, guard| {
        fails(lock.unlock(), Class::Lost);
        fails(guard.unlock(), Class::Lost);
    };
    let enter_again: Step = |lock, guard| {
        fails(lock.try_lock(), Class::WrongType);
        assert!(!guard.is_valid());
        fails(guard.unlock(), Class::Lost);
    };
    let hand_over: Step = |lock, guard| {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.try_lock_for(ms(300)));
            thread::sleep(ms(100));
            fails(guard.unlock(), Class::Lost);
            fails(waiter.join().unwrap(), Class::WrongType);
        });
    };
    let server = RedisServer::start();
    let told_of = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told_of);
    let client = quick()
        .watchdog_timeout(Duration::from_secs(60))
        .on_lost(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
    let client = client.open(&server.url()).unwrap();
    let fixed = client
        .lock("orders")
        .with_lease_time(Duration::from_secs(60));
    let mut losses = 0;
    for make in [
        &["LPUSH", "orders", "somebody's"][..],
        &["HSET", "orders", "customer", "17", "status", "paid"],
    ] {
        for lock in [&client.lock("orders"), &fixed, &client.token_lock("orders")] {
            let is_token = !lock.guard().unwrap().visitor().as_str().contains(':');
            for (levels, step) in [
                (1, unlock),
                (2, give_level_back),
                (1, enter_again),
                (1, hand_over),
            ] {
                if is_token && (levels > 1 || std::ptr::fn_addr_eq(step, enter_again)) {
                    continue;
                }
                let guard = lock.guard().unwrap();
                (1..levels).for_each(|_| lock.lock().unwrap());
                let lost = guard.lost();
                server.in_one_step(&[&["DEL", "orders"], make]);
                step(lock, guard);
                let loss = next_loss(&lost, ms(100));
                assert!(matches!(&loss.cause, LossCause::HeldBy(_)), "{loss}");
                losses += 1;
                eventually(SLACK, "the hook", || {
                    told_of.load(Ordering::SeqCst) == losses
                });
                assert_eq!(server.int(&["PTTL", "orders"]), -1);
                server.cmd(&["DEL", "orders"]);
            }
        }
    }
}

#[test]
fn a_hold_count_that_is_no_number_is_an_error() {
    let server = RedisServer::start();
    let client = client(&server);
    let lock = client.lock("orders");
    for count in ["abc", "9223372036854775807", "-1", "1.5", ""] {
        let outer = lock.guard().unwrap();
        let inner = lock.guard().unwrap();
        let visitor = outer.visitor().to_string();
        server.cmd(&["HSET", "orders", &visitor, count]);
        let evals = server.eval_count();
        ends_within(ms(0), || fails(lock.lock(), Class::Corrupt));
        ends_within(ms(0), || {
            fails(lock.try_lock_for(Duration::from_secs(60)), Class::Corrupt)
        });
        if !count.is_empty() {
            let error = fails(lock.hold_count(), Class::Corrupt);
            assert!(error.to_string().contains(&visitor), "{error}");
        }
        fails(inner.unlock(), Class::Corrupt);
        assert!(server.eval_count() - evals < 20, "it goes round in circles");
        every_key_expires(&server);
        outer.unlock().unwrap();
        is_empty(&server);
    }
}

#[test]
fn a_lock_without_a_ttl_is_reported_and_can_be_freed() {
    let server = RedisServer::start();
    let client = client(&server);
    let lock = client.lock("orders");
    server.cmd(&["HSET", "orders", "somebody:1", "1"]);
    fails(lock.try_lock(), Class::NoTtl);
    let start = Instant::now();
    ends_within(ms(300), || fails(lock.try_lock_for(ms(300)), Class::NoTtl));
    assert!(start.elapsed() >= ms(300));
    let start = Instant::now();
    ends_within(ms(800) + ms(1100), || fails(lock.lock(), Class::NoTtl));
    assert!(start.elapsed() >= ms(800), "the outage time-out");
    fails(lock.remaining_lease(), Class::NoTtl);
    assert!(lock.is_locked().unwrap());
    assert_eq!(counts(&server, "orders"), ["1"], "it is left as it is");
    // A waiter is notified.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
            lock.unlock().unwrap();
        });
        somebody_waits(&server, "orders");
        assert!(lock.force_unlock().unwrap());
        ends_within(ms(1100), || waiting.join().unwrap());
    });
    assert!(!lock.force_unlock().unwrap());
    is_empty(&server);
}
