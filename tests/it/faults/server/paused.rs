//! Servers that pause or stop for longer than a lease: F29 and F30.

use super::*;

#[test]
fn a_server_paused_past_the_lease_ends_the_hold_grants_nothing() {
    let server = RedisServer::start();
    teach(&server);
    let client = losing(&server);
    let other = self::client(&server);
    let waiter = other.lock("orders");
    let guard = client.lock("orders").guard().unwrap();
    assert!(!waiter.try_lock().unwrap());
    let lost = guard.lost();
    let monitor = Monitor::start(&server);
    let start = Instant::now();
    server.freeze();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let result = ends_within(ms(700), || waiter.try_lock_for(ms(700)));
            let error = result.unwrap_err();
            assert!(error.is_ambiguous() || error.is_retryable(), "{error}");
        });
        while guard.is_valid() {
            assert!(start.elapsed() < SHORT, "nothing was confirmed since");
            thread::sleep(ms(1));
        }
        next_loss(&lost, ms(100));
        waiting.join().unwrap();
    });
    let left = SHORT.saturating_sub(start.elapsed());
    thread::sleep(left + ms(50));
    server.thaw();
    leaves_nothing(&server);
    thread::sleep(ms(200));
    is_empty(&server);
    assert_eq!(
        written(&monitor, other.id()),
        Vec::<String>::new(),
        "a grant to a caller that has left"
    );
    assert!(waiter.try_lock().unwrap());
    waiter.unlock().unwrap();
}

#[test]
fn a_server_that_pauses_longer_than_the_lease_ends_the_hold() {
    let server = RedisServer::start();
    let client = losing(&server);
    for mode in ["WRITE", "ALL"] {
        let guard = client.lock("orders").guard().unwrap();
        let renewed = client.lock("invoices").guard().unwrap();
        let lost = guard.lost();
        let start = Instant::now();
        server.cmd(&["CLIENT", "PAUSE", "1400", mode]);
        ends_within(TIMEOUT, || fails(renewed.unlock(), Class::Unknown));
        while guard.is_valid() {
            assert!(start.elapsed() < SHORT, "nothing was confirmed since");
            thread::sleep(ms(1));
        }
        let loss = next_loss(&lost, ms(100));
        assert!(
            matches!(loss.cause, LossCause::Unreachable { .. }),
            "{loss}"
        );
        fails(guard.unlock(), Class::Lost);
        let lock = client.lock("orders");
        let got = ends_within(ms(1400), || {
            lock.try_lock_for(Duration::from_secs(20)).unwrap()
        });
        assert!(got);
        assert!(lock.is_valid());
        lock.unlock().unwrap();
        leaves_nothing(&server);
    }
}
