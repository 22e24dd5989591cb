//! Pauses and clock steps: F47 to F49.

use super::*;

const LEASE: Duration = ms(2400);

const PAUSE: Duration = ms(6000);

#[test]
fn a_process_paused_past_its_lease_loses_the_lock() {
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    let other = Client::open(&server.url()).unwrap();
    let successor = other.lock("orders").with_lease_time(MINUTE);
    for _ in 0..2 {
        let mut child = Child::spawn("paused holder", &[("URL", &server.url())]);
        child.expect_line("held", CHILD);
        // In the middle of its renewals.
        thread::sleep(LEASE * 3 / 4 + ms(fastrand::u64(..800)));
        child.freeze();
        let frozen = Instant::now();
        assert!(successor.try_lock_for(Duration::from_secs(10)).unwrap());
        thread::sleep(PAUSE.saturating_sub(frozen.elapsed()));
        monitor.clear();
        child.thaw();
        assert_eq!(child.expect_line("first", CHILD), "first false");
        let told = child.expect_line("told", SLACK + ms(2000));
        assert_eq!(told, "told 1 Unreachable");
        assert_eq!(child.expect_line("unlock", CHILD), "unlock Lost");
        assert_eq!(child.expect_line("again", CHILD), "again false");
        // Two renewal periods of the child.
        thread::sleep(LEASE * 2 / 3);
        let renewals = monitor.lines_containing("\"PEXPIRE\" \"orders\"");
        assert_eq!(renewals, Vec::<String>::new());
        assert!(server.int(&["PTTL", "orders"]) > 30_000);
        assert!(successor.is_valid());
        successor.unlock().unwrap();
        assert!(child.wait(CHILD).success());
    }
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

pub(super) fn paused_holder() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&told);
    let client = Client::builder()
        .watchdog_timeout(LEASE)
        .on_lost(move |loss| hook.lock().unwrap().push(loss.cause.clone()))
        .open(&arg("URL"))
        .unwrap();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    say("held");
    let mut last = Instant::now();
    let first = loop {
        // `Instant` stops only in a suspend, not while a process is paused.
        let before = Instant::now();
        let valid = guard.is_valid();
        if before - last > PAUSE - ms(300) {
            break valid;
        }
        assert!(valid, "it is renewed until the pause");
        last = before;
        thread::sleep(ms(1));
    };
    say(&format!("first {first}"));
    lost.recv_timeout(SLACK).unwrap();
    eventually(SLACK, "the hook is called", || {
        !told.lock().unwrap().is_empty()
    });
    assert!(!guard.is_valid());
    let unlocked = outcome(guard.unlock());
    let told = told.lock().unwrap();
    let cause = match &told[0] {
        LossCause::Unreachable { .. } => "Unreachable",
        _ => "another cause",
    };
    say(&format!("told {} {cause}", told.len()));
    say(&format!("unlock {unlocked}"));
    say(&format!("again {}", outcome(lock.try_lock())));
    while listen().is_some() {}
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_clock_that_steps_forward_is_a_reported_loss() {
    let clock = ClockShim::build();
    let server = RedisServer::with_clock(&clock);
    let lease = ms(3000);
    let client = || {
        Client::builder()
            .watchdog_timeout(lease)
            .open(&server.url())
            .unwrap()
    };
    let lock = client().lock("orders");
    let other = client().lock("orders");
    lock.lock().unwrap();
    assert!(!other.try_lock().unwrap(), "its connection knows the time");
    let lost = lock.lost().unwrap();

    clock.set(40_000);
    // A request stamped with the old time is too late for the server; it is sent again.
    assert!(other.try_lock().unwrap());
    assert!(other.try_lock().unwrap());
    let loss = lost.recv_timeout(lease / 3 + SLACK).unwrap();
    assert!(matches!(loss.cause, LossCause::HeldBy(_)), "{loss}");
    assert!(!lock.is_valid());
    assert!(lock.unlock().unwrap_err().is_lost());
    // The hold that began after the step stays valid.
    thread::sleep(lease + ms(200));
    assert!(other.is_valid());
    assert_eq!(other.hold_count().unwrap(), 2);
    other.unlock().unwrap();
    other.unlock().unwrap();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_client_wall_clock_that_steps_has_no_effect() {
    let clock = ClockShim::build();
    let server = RedisServer::start();
    let mut child = Child::spawn(
        "holder under a shifted clock",
        &[
            ("URL", &server.url()),
            ("LD_PRELOAD", clock.library().to_str().unwrap()),
            (OFFSET_VARIABLE, clock.offset_path()),
        ],
    );
    for hours in [0, 2, -48, 1] {
        child.expect_line("next", CHILD);
        clock.set(hours * 3_600_000);
        child.send_line("go");
        let report = child.expect_line("report", CHILD);
        let mut words = report.split(' ').skip(1);
        let shift: i64 = words.next().unwrap().parse().unwrap();
        assert!(
            (shift - hours * 3600).abs() < 600,
            "the child's wall clock has stepped: {report}"
        );
        let waited: u64 = words.next().unwrap().parse().unwrap();
        assert!((400..400 + 2500).contains(&waited), "{report}");
        assert_eq!(words.collect::<Vec<_>>(), ["valid", "1", "free"]);
    }
    child.send_line("end");
    assert_eq!(child.expect_line("unlock", CHILD), "unlock ()");
    assert!(child.wait(CHILD).success());
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

pub(super) fn holder_under_a_shifted_clock() {
    let (wall, steady) = (SystemTime::now(), Instant::now());
    let lease = ms(900);
    let client = Client::builder()
        .watchdog_timeout(lease)
        .open(&arg("URL"))
        .unwrap();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    say("next");
    while listen().is_some_and(|word| word == "go") {
        let start = Instant::now();
        let got = elsewhere(|| lock.try_lock_for(ms(400)).unwrap());
        assert!(!got);
        let waited = start.elapsed().as_millis();
        thread::sleep(lease);
        let valid = if guard.is_valid() { "valid" } else { "invalid" };
        let shift = match SystemTime::now().duration_since(wall) {
            Ok(ahead) => ahead.as_secs_f64(),
            Err(behind) => -behind.duration().as_secs_f64(),
        } - steady.elapsed().as_secs_f64();
        let second = client.lock("invoices").with_lease_time(ms(2000));
        second.lock().unwrap();
        let free = second
            .unlock()
            .map_or_else(|error| error.to_string(), |()| "free".into());
        say(&format!(
            "report {} {waited} {valid} {} {free}",
            shift.round(),
            lock.hold_count().unwrap()
        ));
        say("next");
    }
    say(&format!("unlock {}", outcome(guard.unlock())));
}

#[cfg(feature = "test-util")]
#[test]
fn a_suspend_ends_holds_before_anything_is_sent() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder in suspend", &[("URL", &server.url())]);
    assert!(child.wait(CHILD).success());
    let said = child.lines();
    assert!(said.contains(&"done".to_owned()), "{said:?}");
    eventually(SLACK, "nothing is left", || server.int(&["DBSIZE"]) == 0);
}

#[cfg(feature = "test-util")]
pub(super) fn holder_in_suspend() {
    let client = Client::builder()
        .watchdog_timeout(Duration::from_secs(30))
        .open(&arg("URL"))
        .unwrap();
    let lock = client.lock("orders");
    let other = Client::open(&arg("URL")).unwrap().lock("orders");
    let fixed = client.lock("invoices").with_lease_time(MINUTE);
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    let long = fixed.guard().unwrap();
    assert!(guard.remaining_validity() > Duration::from_secs(20));
    testing::advance_clock(Duration::from_secs(25));
    assert!(guard.is_valid(), "it was not gone for long enough");
    testing::advance_clock(Duration::from_secs(10));
    assert!(!guard.is_valid(), "at once and for itself");
    assert_eq!(guard.remaining_validity(), Duration::ZERO);
    assert!(long.is_valid(), "a longer lease is not over");
    assert!(matches!(lock.unlock(), Err(Error::Lost { .. })));
    let loss = lost.recv_timeout(SLACK).unwrap();
    assert!(
        matches!(loss.cause, LossCause::Unreachable { .. }),
        "{loss}"
    );
    // The request that the server may have executed is resolved, so other clients need not wait for the lease.
    assert!(other.try_lock_for(SLACK).unwrap());
    assert!(!guard.is_valid(), "for good");
    other.unlock().unwrap();
    assert!(lock.try_lock().unwrap(), "a fresh hold");
    assert!(lock.is_valid());
    drop(guard);
    assert_eq!(lock.hold_count().unwrap(), 1);
    lock.unlock().unwrap();
    testing::advance_clock(MINUTE);
    assert!(!long.is_valid());
    assert!(matches!(long.unlock(), Err(Error::Lost { .. })));
    fixed.force_unlock().unwrap();
    say("done");
}
