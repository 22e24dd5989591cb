//! Levels of a hold that are given back late, twice or in any order.

use super::*;

#[test]
fn a_lost_level_that_its_guard_has_given_back_is_not_unlocked_once_more() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders").with_lease_time(ms(50));
    let long = client.lock("orders").with_lease_time(LONG);
    let is_told = |told: Result<(), Error>| match told {
        Err(Error::Lost { .. }) => true,
        Err(Error::NotHeld { .. }) => false,
        told => panic!("{told:?}"),
    };
    let mut guard = lock.guard().unwrap();
    thread::sleep(ms(100));
    assert!(!guard.is_valid());
    guard = long.guard().unwrap();
    guard.unlock().unwrap();
    assert!(!is_told(lock.unlock()), "a guard had it, and is gone");

    // One by a guard and one by hand, and the guard goes first or last.
    for is_first in [true, false] {
        let guard = lock.guard().unwrap();
        lock.lock().unwrap();
        thread::sleep(ms(100));
        long.lock().unwrap();
        long.unlock().unwrap();
        if is_first {
            assert!(is_told(guard.unlock()));
            assert!(is_told(lock.unlock()), "it was taken by hand");
        } else {
            assert!(is_told(lock.unlock()), "it was taken by hand");
            assert!(is_told(guard.unlock()));
        }
        assert!(!is_told(lock.unlock()), "nothing is left");
    }
}

/// Runs `call`, whose request is sent a second time, because its connection is cut while the first copy is held up.
fn sent_twice([cut, held]: [&Proxy; 2], script: &str, call: impl FnOnce()) -> Rule {
    let first = held.next(1, Some(sha(script).as_bytes()), Fault::Hold);
    thread::scope(|scope| {
        scope.spawn(|| {
            eventually(SLACK, "the first copy is held up", || first.hits() == 1);
            cut.cut();
        });
        call();
    });
    first
}

#[test]
fn a_first_copy_that_comes_late_does_not_shorten_what_was_entered_since() {
    for is_entry in [true, false] {
        let (server, held) = server();
        let cut = Proxy::to(held.addr());
        let client = Client::builder()
            .command_timeout(ms(10_000))
            .open(&cut.url())
            .unwrap();
        let short = client.lock("orders").with_lease_time(ms(6_000));
        let long = client.lock("orders").with_lease_time(LONG);
        let hold = short.guard().unwrap();
        let first = if is_entry {
            let first = sent_twice([&cut, &held], ACQUIRE, || short.lock().unwrap());
            short.unlock().unwrap();
            first
        } else {
            long.lock().unwrap();
            sent_twice([&cut, &held], RELEASE_LEVEL, || long.unlock().unwrap())
        };
        long.lock().unwrap();
        first.release();
        let is_cut_short = || lease_of(&server, "orders") < ms(6_000);
        eventually(SLACK, "the first copy runs", is_cut_short);
        let when = format!("the first copy has come, of an entry: {is_entry}");
        believes_no_more_than(&hold, || lease_of(&server, "orders"), &when);
    }
}

#[cfg(all(feature = "test-util", target_os = "linux"))]
#[test]
fn a_level_given_back_late_does_not_shorten_what_was_entered_since() {
    for role in ["holder of late levels", "holder beside a slow clock"] {
        let mut child = Child::spawn(role, &[]);
        child.expect_line("done", CHILD);
        assert!(child.wait(CHILD).success());
    }
}

/// A server, and the times that have passed on its clock and on ours beyond the true one.
#[cfg(all(feature = "test-util", target_os = "linux"))]
struct Clocks {
    server: RedisServer,
    shim: ClockShim,
    passed_ms: std::sync::atomic::AtomicI64,
}

#[cfg(all(feature = "test-util", target_os = "linux"))]
impl Clocks {
    fn start() -> Self {
        let shim = ClockShim::build();
        let server = RedisServer::with_clock(&shim);
        teach(&server);
        Clocks {
            server,
            shim,
            passed_ms: Default::default(),
        }
    }

    fn pass(&self, here: Duration, there: Duration) {
        let there = i64::try_from(there.as_millis()).unwrap();
        redlatch::testing::advance_clock(here);
        self.shim
            .set(self.passed_ms.fetch_add(there, Ordering::SeqCst) + there);
    }

    /// A level is given back by a request that is held up, six seconds later the lock is entered again, and then the
    /// request comes.
    fn a_level_comes_late(&self, proxy: &Proxy, outer: &Guard, inner: Guard, lock: &Lock) {
        let late = proxy.next(1, Some(sha(RELEASE_LEVEL).as_bytes()), Fault::Hold);
        assert!(inner.unlock().is_err() && late.hits() == 1);
        self.pass(ms(6_000), ms(6_000));
        let again = lock
            .with_lease_time(Duration::from_secs(100_000))
            .guard()
            .unwrap();
        late.release();
        thread::sleep(ms(300));
        believes_no_more_than(outer, || lease_of(&self.server, "orders"), "it has come");
        assert!(lease_of(&self.server, "orders") > Duration::from_secs(90_000));
        drop(again);
    }
}

#[cfg(all(feature = "test-util", target_os = "linux"))]
pub(super) fn holder_of_late_levels() {
    let clocks = Clocks::start();
    let proxy = Proxy::to(clocks.server.addr());
    let client = quick().open(&proxy.url()).unwrap();
    let lock = client.lock("orders");
    let hour = lock.with_lease_time(Duration::from_secs(3600));
    let outer = hour.guard().unwrap();
    let slow = Fault::DelayRequest(ms(150));
    let slow = proxy.next(1, Some(sha(ACQUIRE).as_bytes()), slow);
    let inner = thread::scope(|scope| {
        scope.spawn(|| {
            eventually(SLACK, "it is on its way", || slow.hits() == 1);
            // For a minute, by the clocks.
            clocks.pass(ms(60_000), ms(60_000));
        });
        hour.guard().unwrap()
    });
    clocks.a_level_comes_late(&proxy, &outer, inner, &lock);
    outer.unlock().unwrap();
    say("done");
}

#[cfg(all(feature = "test-util", target_os = "linux"))]
pub(super) fn holder_beside_a_slow_clock() {
    let clocks = Clocks::start();
    let proxy = Proxy::to(clocks.server.addr());
    let client = quick().open(&proxy.url()).unwrap();
    let lock = client.lock("orders");
    let long = lock.with_lease_time(Duration::from_secs(50_000));
    let (outer, inner) = (long.guard().unwrap(), long.guard().unwrap());
    clocks.pass(Duration::from_secs(3600), ms(3_600_000 - 34_000));
    clocks.a_level_comes_late(&proxy, &outer, inner, &lock);
    outer.unlock().unwrap();
    // Whatever is asked first after a rest is done, also where the clock of the server is fast.
    let rest = |fast_ms: i64| {
        let there = 3_600_000 + fast_ms;
        clocks.pass(Duration::from_secs(3600), ms(there.unsigned_abs()));
    };
    for fast_ms in [34_000, -34_000] {
        rest(fast_ms);
        let outer = long.guard().unwrap();
        rest(fast_ms);
        let inner = long.guard().unwrap();
        rest(fast_ms);
        inner.unlock().unwrap();
        rest(fast_ms);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| long.try_lock_for(SLACK).map(|_| long.unlock()));
            crate::laws::until_queued(&long, 1);
            outer.unlock().unwrap();
            waiter.join().unwrap().unwrap().unwrap();
        });
        long.lock().unwrap();
        rest(fast_ms);
        assert!(long.force_unlock().unwrap());
        assert!(long.unlock().is_err());
        rest(fast_ms);
        let renewed = client.lock("renewed").guard().unwrap();
        thread::sleep(ms(100));
        assert!(renewed.is_valid());
        renewed.unlock().unwrap();
    }
    say("done");
}

#[test]
fn the_end_of_a_short_level_is_told_when_the_long_one_was_given_back_before() {
    let client = Client::in_memory();
    let long = client.lock("orders").guard().unwrap();
    let short = client.lock("orders").with_lease_time(ms(1000));
    let short = short.guard().unwrap();
    let lost = short.lost();
    // The longer lease would have been looked at after ten seconds.
    long.unlock().unwrap();
    let loss = lost.recv_timeout(ms(6000)).unwrap();
    assert_eq!(loss.cause, LossCause::LeaseEnded);
    assert!(!short.is_valid());
}
