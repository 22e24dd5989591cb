//! Servers that lose data: F32, F33 and F42.

use super::*;

#[test]
fn a_deleted_hold_is_lost_and_never_returns() {
    let server = RedisServer::start();
    let client = losing(&server);
    let lock = client.lock("orders");
    let monitor = Monitor::start(&server);
    for wipe in [&["FLUSHALL"][..], &["DEL", "orders"]] {
        let guard = lock.guard().unwrap();
        let nested = lock.guard().unwrap();
        let visitor = guard.visitor().to_string();
        let lost = guard.lost();
        server.cmd(wipe);
        let loss = next_loss(&lost, SHORT / 3 + TIMEOUT);
        assert_eq!(loss.cause, LossCause::Gone);
        assert!(!guard.is_valid() && !nested.is_valid());
        not_heard_of(&monitor, &visitor, SHORT);
        fails(nested.unlock(), Class::Lost);
        fails(guard.unlock(), Class::Lost);
        not_heard_of(&monitor, &visitor, ms(100));
        is_empty(&server);
    }
    // Another client holds the lock by now, and keeps it.
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    server.cmd(&["DEL", "orders"]);
    let other = self::client(&server).lock("orders");
    assert!(other.try_lock().unwrap());
    let loss = next_loss(&lost, SHORT / 3 + TIMEOUT);
    assert!(matches!(loss.cause, LossCause::HeldBy(_)), "{loss}");
    fails(guard.unlock(), Class::Lost);
    assert!(other.is_held_by_current_thread().unwrap());
    other.unlock().unwrap();
    is_empty(&server);
}

#[test]
fn an_evicted_hold_is_lost_after_a_warning_of_the_policy() {
    let server = RedisServer::with(&["--maxmemory", "3mb", "--maxmemory-policy", "volatile-lru"]);
    let client = losing(&server);
    let warnings = client.check().unwrap();
    assert!(
        warnings
            .iter()
            .any(|one| one.message.contains("volatile-lru")),
        "{warnings:?}"
    );
    let guard = client.lock("orders").guard().unwrap();
    let lost = guard.lost();
    let big = "x".repeat(10_000);
    for key in 0..1000 {
        if server.int(&["EXISTS", "orders"]) == 0 {
            break;
        }
        let _ = server.try_cmd(&["SET", &format!("cache{key}"), &big]);
    }
    assert_eq!(server.int(&["EXISTS", "orders"]), 0, "it was not evicted");
    let loss = next_loss(&lost, SHORT / 3 + TIMEOUT);
    assert_eq!(loss.cause, LossCause::Gone);
    fails(guard.unlock(), Class::Lost);
}

#[test]
fn a_restart_loses_only_unsaved_holds() {
    let server = RedisServer::start();
    let client = losing(&server);
    let guard = client.lock("orders").guard().unwrap();
    let visitor = guard.visitor().to_string();
    let lost = guard.lost();
    server.restart();
    let monitor = Monitor::start(&server);
    let loss = next_loss(&lost, SHORT / 3 + TIMEOUT);
    assert_eq!(loss.cause, LossCause::Gone);
    assert!(!guard.is_valid());
    fails(guard.unlock(), Class::Lost);
    not_heard_of(&monitor, &visitor, SHORT);
    is_empty(&server);

    let server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let client = quick()
        .watchdog_timeout(Duration::from_secs(3))
        .open(&server.url())
        .unwrap();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    let again = lock.guard().unwrap();
    server.restart();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        assert!(guard.is_valid(), "after {:?}", start.elapsed());
        thread::sleep(ms(50));
    }
    assert_eq!(counts(&server, "orders"), ["2"]);
    again.unlock().unwrap();
    assert_eq!(counts(&server, "orders"), ["1"]);
    guard.unlock().unwrap();
    is_empty(&server);
}
