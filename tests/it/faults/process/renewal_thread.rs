//! The renewal thread: F53 and F55.

use super::*;

#[cfg(feature = "test-util")]
#[test]
fn the_death_of_the_renewal_thread_ends_holds_and_attempts() {
    let server = RedisServer::start();
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&told);
    let client = Client::builder()
        .on_lost(move |loss| hook.lock().unwrap().push(loss.clone()))
        .open(&server.url())
        .unwrap();
    let fixed = client.lock("fixed").with_lease_time(MINUTE);
    let fixed = fixed.guard().unwrap();
    let mut guards: Vec<Guard> = (0..20)
        .map(|number| client.lock(&format!("orders:{number}")).guard().unwrap())
        .collect();
    guards.push(client.lock("orders:0").guard().unwrap());
    guards.push(fixed);
    let lost: Vec<_> = guards.iter().map(Guard::lost).collect();
    thread::scope(|scope| {
        let held = client.lock("orders:0");
        let waiting = scope.spawn(move || held.try_lock_for(CHILD));
        thread::sleep(ms(100));
        let start = Instant::now();
        testing::Controls::of(&client).kill_watchdog();
        for lost in &lost {
            let loss = lost.recv_timeout(SLACK).unwrap();
            assert_eq!(loss.cause, LossCause::WatchdogDied);
        }
        let refused = client.lock("another").lock().unwrap_err();
        assert!(matches!(refused, Error::WatchdogDied { .. }), "{refused}");
        assert!(matches!(
            client.lock("orders:0").try_lock(),
            Err(Error::WatchdogDied { .. })
        ));
        assert!(guards.iter().all(|guard| !guard.is_valid()));
        assert!(
            guards
                .iter()
                .all(|guard| guard.remaining_validity() == Duration::ZERO)
        );
        eventually(SLACK, "the hook is told of every hold", || {
            told.lock().unwrap().len() == 21
        });
        for guard in guards {
            let error = guard.unlock().unwrap_err();
            assert!(
                matches!(&error, Error::Lost { cause, .. } if *cause == LossCause::WatchdogDied),
                "{error}"
            );
        }
        // Waiters could not hold anything any more, and get an error.
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::WatchdogDied { .. }), "{error}");
        assert!(start.elapsed() < ms(1100) + SLACK * 2);
    });
    client.shutdown();
    let lock = Client::open(&server.url()).unwrap().lock("another");
    assert!(lock.try_lock().unwrap());
    lock.unlock().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_renewal_thread_that_cannot_start_fails_the_call_unsent() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder without threads", &[("URL", &server.url())]);
    let evals = server.eval_count();
    child.send_line("lock");
    assert_eq!(
        child.expect_line("lock", CHILD),
        "lock WatchdogDied WatchdogDied WatchdogDied"
    );
    assert_eq!(server.eval_count(), evals);
    child.send_line("go on");
    assert_eq!(child.expect_line("later", CHILD), "later true true ()");
    assert!(child.wait(CHILD).success());
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[cfg(target_os = "linux")]
pub(super) fn holder_without_threads() {
    let client = Client::open(&arg("URL")).unwrap();
    let lock = client.lock("orders");
    listen();
    forbid_threads();
    let outcomes = (
        outcome(lock.lock()),
        outcome(lock.try_lock()),
        outcome(lock.try_lock_for(ms(100))),
    );
    allow_threads();
    say(&format!(
        "lock {} {} {}",
        outcomes.0, outcomes.1, outcomes.2
    ));
    listen();
    let got = lock.try_lock().unwrap();
    say(&format!(
        "later {got} {} {}",
        lock.is_valid(),
        outcome(lock.unlock())
    ));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn holder_without_threads() {}

#[cfg(not(target_os = "linux"))]
pub(super) fn client_without_threads() {}

const THOUSANDS: usize = 10_000;

#[test]
#[ignore = "takes long: make test-all"]
fn no_loss_among_ten_thousand_holds_is_silent() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder of thousands", &[("URL", &server.url())]);
    child.expect_line("held", MINUTE);
    let long = crate::support::is_long();
    thread::sleep(Duration::from_secs(if long { 60 } else { 4 }));
    child.send_line("audit");
    let kept = audit(&child);
    assert!(kept > THOUSANDS / 2, "only {kept} were kept alive");
    // Simulates a quota of 1 % of a processor.
    let starved = ms(if long { 20_000 } else { 5500 });
    child.send_line(&format!("probe {}", starved.as_millis()));
    let start = Instant::now();
    while start.elapsed() < starved {
        child.freeze();
        thread::sleep(ms(495));
        child.thaw();
        thread::sleep(ms(5));
    }
    let kept = audit(&child);
    println!("{kept} of {THOUSANDS} were kept alive without time to do so");
    child.send_line("end");
    assert!(child.wait(MINUTE).success());
    eventually(ms(3000) + SLACK, "nothing is left", || {
        server.int(&["DBSIZE"]) == 0
    });
}

/// The number of valid holds; panics if a loss was not reported.
#[track_caller]
fn audit(child: &Child) -> usize {
    let report = child.expect_line("audit", MINUTE);
    let numbers: Vec<usize> = report
        .split(' ')
        .skip(1)
        .map(|word| word.parse().unwrap())
        .collect();
    let [valid, lost, gone_but_valid, untold] = numbers[..] else {
        panic!("{report}");
    };
    assert_eq!(valid + lost, THOUSANDS, "{report}");
    assert_eq!(
        gone_but_valid, 0,
        "gone from the server, but valid: {report}"
    );
    assert_eq!(untold, 0, "not valid, but not told: {report}");
    valid
}

pub(super) fn holder_of_thousands() {
    let url = arg("URL");
    let client = Client::builder()
        .watchdog_timeout(ms(3000))
        .open(&url)
        .unwrap();
    let held: Vec<_> = (0..THOUSANDS)
        .map(|number| {
            let name = format!("orders:{number}");
            let guard = client.lock(&name).guard().unwrap();
            let lost = guard.lost();
            (name, guard, lost)
        })
        .collect();
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    say("held");
    let mut gone_but_valid = |part: &[(String, Guard, Losses)]| {
        let mut question = redis::pipe();
        for (name, guard, _) in part {
            question
                .cmd("HEXISTS")
                .arg(name)
                .arg(guard.visitor().as_str());
        }
        // The server first: a key that is gone there cannot return, so its hold must not be valid afterwards.
        let exist: Vec<bool> = question.query(&mut connection).unwrap();
        let both = part.iter().zip(exist);
        both.filter(|((_, guard, _), exists)| !exists && guard.is_valid())
            .count()
    };
    while let Some(word) = listen().filter(|word| word != "end") {
        let mut silent = 0;
        if let Some(time) = word.strip_prefix("probe ") {
            let end = Instant::now() + ms(time.parse().unwrap());
            while Instant::now() < end {
                let first = fastrand::usize(..THOUSANDS - 20);
                silent += gone_but_valid(&held[first..first + 20]);
                thread::sleep(ms(1));
            }
        }
        silent += gone_but_valid(&held);
        let end = Instant::now() + SLACK;
        let (mut lost, mut untold) = (0, 0);
        for (_, guard, told) in &held {
            if !guard.is_valid() {
                lost += 1;
                // Queried only here, or already reported by an audit.
                let again = guard.lost();
                let left = || end.saturating_duration_since(Instant::now());
                if told.recv_timeout(left()).is_err() && again.recv_timeout(left()).is_err() {
                    untold += 1;
                }
            }
        }
        say(&format!(
            "audit {} {lost} {silent} {untold}",
            held.len() - lost
        ));
    }
}
