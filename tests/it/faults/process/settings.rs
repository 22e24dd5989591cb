//! Extreme settings: F58.

use super::*;

#[test]
fn extreme_settings_are_refused_or_work() {
    let server = RedisServer::start();
    let url = server.url();
    let client = Client::open(&url).unwrap();
    let lock = client.lock("orders");
    let day = Duration::from_secs(24 * 60 * 60);
    let just_over = day * 365 + Duration::from_nanos(1);
    let just_under = Duration::from_nanos(9_999_999);
    for lease in [
        Duration::ZERO,
        Duration::from_nanos(1),
        just_under,
        just_over,
        ms(u64::MAX),
        ms(i64::MAX.unsigned_abs()),
        Duration::MAX,
    ] {
        let fixed = lock.with_lease_time(lease);
        for error in [
            fixed.lock().unwrap_err(),
            fixed.try_lock().unwrap_err(),
            fixed.guard().map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidLease { .. }), "{error}");
        }
        let error = Client::builder().watchdog_timeout(lease).open(&url);
        let error = error.map(drop).unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    }
    assert_eq!(server.int(&["DBSIZE"]), 0);

    // The longest lease is still a TTL.
    let longest = lock.with_lease_time(day * 365);
    longest.lock().unwrap();
    assert!(server.int(&["PTTL", "orders"]) > 364 * 86_400_000);
    assert!(longest.is_valid());
    longest.unlock().unwrap();

    // Leases shorter than any round trip under load: kept, or lost with a report.
    for lease in [ms(10), Duration::from_micros(10_500), ms(15)] {
        let short = Client::builder()
            .watchdog_timeout(lease)
            .command_timeout(ms(2000))
            .open(&url)
            .unwrap();
        for _ in 0..20 {
            match short.lock("short").guard() {
                Ok(guard) => {
                    let lost = guard.lost();
                    thread::sleep(ms(30));
                    let is_gone = server.int(&["EXISTS", "short"]) == 0;
                    assert!(!(is_gone && guard.is_valid()), "lost in silence");
                    if !guard.is_valid() {
                        lost.recv_timeout(SLACK).unwrap();
                    }
                    if let Err(error) = guard.unlock() {
                        assert!(error.is_lost(), "{error}");
                    }
                }
                // The reply came after the end of the lease.
                Err(error) => assert!(error.is_ambiguous(), "{error}"),
            }
        }
        eventually(SLACK, "no rest of a short lease", || {
            server.int(&["EXISTS", "short"]) == 0
        });
    }

    // No timeout is too short, and only an infinite one is too long.
    let other = Client::open(&url).unwrap().lock("orders");
    lock.lock().unwrap();
    for wait in [Duration::ZERO, Duration::from_nanos(1)] {
        let start = Instant::now();
        assert!(!other.try_lock_for(wait).unwrap());
        assert!(start.elapsed() < SLACK);
    }
    assert!(matches!(
        other.try_lock_for(Duration::MAX),
        Err(Error::InvalidWait { .. })
    ));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let got = other.try_lock_for(day * 365 * 100).unwrap();
            other.unlock().unwrap();
            got
        });
        thread::sleep(ms(100));
        lock.unlock().unwrap();
        assert!(waiting.join().unwrap());
    });

    // A timeout below a round trip: any outcome, but in time and without leftovers.
    let hasty = Client::builder()
        .watchdog_timeout(ms(1000))
        .command_timeout(ms(1))
        .connect_timeout(ms(1))
        .outage_timeout(ms(1))
        .open(&url)
        .unwrap();
    for _ in 0..50 {
        let lock = hasty.lock("hasty");
        let start = Instant::now();
        match lock.try_lock() {
            Ok(true) => match lock.unlock() {
                Ok(()) => {}
                Err(error) => assert!(error.is_retryable() || error.is_ambiguous(), "{error}"),
            },
            Ok(false) => {}
            Err(error) => assert!(error.is_retryable() || error.is_ambiguous(), "{error}"),
        }
        assert!(start.elapsed() < SLACK);
    }
    eventually(
        ms(1000) + SLACK,
        "what the hasty client could not free",
        || server.int(&["EXISTS", "hasty"]) == 0,
    );

    // A single connection.
    let narrow = Client::builder().pool_size(1).open(&url).unwrap();
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let lock = narrow.lock("narrow");
                lock.lock().unwrap();
                lock.unlock().unwrap();
            });
        }
    });
    for prefix in ["\n", "{", &"x".repeat(600)] {
        let odd = Client::builder().key_prefix(prefix).open(&url).unwrap();
        let error = odd.lock("orders").lock().unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    }
    assert_eq!(server.int(&["DBSIZE"]), 0);
}
