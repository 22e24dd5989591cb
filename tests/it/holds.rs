//! What a hold says of itself: until when it counts, that it is over, and what is left of it in the store.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error, Guard, Lock, LossCause, MultiLock, Redlock};

use crate::invariants::{
    ACQUIRE, RELEASE, RELEASE_LEVEL, RENEW, SLACK, WITHDRAW, connections, quick, sha, teach,
};
#[cfg(all(feature = "test-util", target_os = "linux"))]
use crate::support::ClockShim;
#[cfg(any(feature = "test-util", target_os = "linux"))]
use crate::support::child::arg;
use crate::support::child::say;
use crate::support::proxy::Rule;
use crate::support::{Child, End, Fault, Proxy, RedisServer, eventually, ms};

const LEASE: Duration = ms(1500);

/// A lease that is renewed often.
const SHORT: Duration = ms(600);

/// A lease of an inner level that outlasts every test.
const LONG: Duration = Duration::from_secs(600);

const FOR_EVER: usize = usize::MAX;

/// How long a child may take for all that it has to do.
const CHILD: Duration = Duration::from_secs(30);

/// Plays `role` in a child process; false if it is not one of this file.
pub(crate) fn play(role: &str) -> bool {
    match role {
        #[cfg(feature = "test-util")]
        "holder of an hour" => holder_of_an_hour(),
        #[cfg(all(feature = "test-util", target_os = "linux"))]
        "holder of late levels" => holder_of_late_levels(),
        #[cfg(all(feature = "test-util", target_os = "linux"))]
        "holder beside a slow clock" => holder_beside_a_slow_clock(),
        #[cfg(target_os = "linux")]
        "holder without room for a thread" => holder_without_room_for_a_thread(),
        "client with a slow hook" => client_with_a_slow_hook(),
        _ => return false,
    }
    true
}

/// A server that knows all scripts, and a proxy in front of it.
fn server() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    teach(&server);
    let proxy = Proxy::to(server.addr());
    (server, proxy)
}

/// The longest that the key of `name` may still last, an instant after `asked`.
fn lease_of(server: &RedisServer, name: &str) -> Duration {
    ms(server.int(&["PTTL", name]).max(0).unsigned_abs())
}

/// The law: what is believed here is never more than what the store has.
#[track_caller]
fn believes_no_more_than(guard: &Guard, lease: impl FnOnce() -> Duration, when: &str) {
    let believed = guard.remaining_validity();
    let asked = Instant::now();
    let lease = lease() + asked.elapsed();
    // PTTL is rounded.
    assert!(
        believed <= lease + ms(1),
        "{when}: {believed:?} is believed, {lease:?} is left"
    );
}

#[test]
fn a_late_confirmation_of_a_renewal_does_not_outlast_the_level_given_back_before() {
    let (server, proxy) = server();
    let client = Client::builder()
        .watchdog_timeout(LEASE)
        .open(&proxy.url())
        .unwrap();
    let lock = client.lock("orders");
    let outer = lock.guard().unwrap();
    let inner = lock.with_lease_time(LONG).guard().unwrap();
    let renewed = proxy.next(1, Some(sha(RENEW).as_bytes()), Fault::DelayReply(ms(250)));
    eventually(SLACK, "a renewal", || renewed.hits() == 1);
    thread::sleep(ms(50));
    inner.unlock().unwrap();
    let end = Instant::now() + ms(400);
    while Instant::now() < end {
        believes_no_more_than(&outer, || lease_of(&server, "orders"), "given back");
        thread::sleep(ms(5));
    }
    assert!(outer.is_valid());
    outer.unlock().unwrap();
}

#[test]
fn a_late_confirmation_of_a_re_entry_does_not_outlast_the_renewal_behind_it() {
    let (server, proxy) = server();
    let client = Client::builder()
        .watchdog_timeout(LEASE)
        .open(&proxy.url())
        .unwrap();
    let lock = client.lock("orders");
    let outer = lock.guard().unwrap();
    let counted = Fault::DelayReply(ms(0));
    let renewals = proxy.next(FOR_EVER, Some(sha(RENEW).as_bytes()), counted);
    let entered = proxy.next(1, Some(sha(ACQUIRE).as_bytes()), Fault::DelayReply(ms(900)));
    let inner = lock.with_lease_time(LONG).guard().unwrap();
    assert!(entered.hits() == 1 && renewals.hits() > 0);
    believes_no_more_than(&outer, || lease_of(&server, "orders"), "entered");
    // The next renewal mends it.
    eventually(SLACK, "it counts on the long lease", || {
        outer.remaining_validity() > LONG / 2
    });
    believes_no_more_than(&outer, || lease_of(&server, "orders"), "renewed");
    inner.unlock().unwrap();
    believes_no_more_than(&outer, || lease_of(&server, "orders"), "given back");
    outer.unlock().unwrap();
}

/// Enters and leaves levels with short and long leases while replies are held back by chance.
fn replies_in_any_order(lock: &Lock, proxies: &[Proxy], lease: impl Fn() -> Duration) {
    let mut draw = fastrand::Rng::with_seed(7);
    let mut levels: Vec<Guard> = vec![lock.guard().unwrap()];
    let passes = |error: Error| error.is_retryable() || error.is_ambiguous() || error.is_lost();
    let mut rounds = 0;
    let end = Instant::now() + ms(3000);
    while Instant::now() < end {
        for proxy in proxies {
            for script in [RENEW, ACQUIRE, RELEASE_LEVEL] {
                if draw.bool() {
                    let late = Fault::DelayReply(ms(draw.u64(1..140)));
                    proxy.next(1, Some(sha(script).as_bytes()), late);
                }
            }
        }
        let what = if levels.len() == 1 || (levels.len() < 4 && draw.bool()) {
            let lease = [LONG, SHORT * 2, SHORT / 3][draw.usize(..3)];
            match lock.with_lease_time(lease).try_guard() {
                Ok(guard) => levels.extend(guard),
                Err(error) => assert!(passes(error)),
            }
            "entered"
        } else {
            // Not the outermost, which is renewed.
            let level = levels.remove(draw.usize(1..levels.len()));
            let left = level.unlock();
            assert!(left.is_ok() || left.is_err_and(passes));
            "left"
        };
        let pause = Instant::now() + ms(draw.u64(0..30));
        loop {
            believes_no_more_than(&levels[0], &lease, what);
            if Instant::now() >= pause {
                break;
            }
            thread::sleep(ms(2));
        }
        if !levels[0].is_valid() {
            // So many answers were late that it was lost, which it may be.
            break;
        }
        rounds += 1;
    }
    assert!(rounds > 5, "{rounds} rounds");
}

#[test]
fn replies_in_any_order_never_make_a_hold_outlast_its_key() {
    let (server, proxy) = server();
    let client = Client::builder()
        .watchdog_timeout(SHORT)
        .open(&proxy.url())
        .unwrap();
    let lock = client.lock("orders");
    replies_in_any_order(&lock, &[proxy], || lease_of(&server, "orders"));
}

#[test]
fn replies_in_any_order_never_make_a_redlock_outlast_its_majority() {
    let (servers, proxies): (Vec<_>, Vec<_>) = (0..3).map(|_| server()).unzip();
    let nodes = proxies
        .iter()
        .map(|proxy| Client::open(&proxy.url()).unwrap());
    let redlock = Redlock::builder()
        .nodes(nodes)
        .max_lease(LONG)
        .node_timeout(ms(80))
        .watchdog_timeout(SHORT)
        .trust_new_nodes()
        .build()
        .unwrap();
    let of_two = || {
        let mut leases: Vec<_> = servers.iter().map(|it| lease_of(it, "orders")).collect();
        leases.sort();
        leases[1]
    };
    replies_in_any_order(&redlock.lock("orders"), &proxies, of_two);
}

#[test]
fn replies_in_any_order_never_make_a_multi_lock_outlast_a_member() {
    let (servers, proxies): (Vec<_>, Vec<_>) = (0..2).map(|_| server()).unzip();
    let locks: Vec<Lock> = proxies
        .iter()
        .map(|proxy| {
            let client = Client::builder().watchdog_timeout(SHORT).open(&proxy.url());
            client.unwrap().lock("orders")
        })
        .collect();
    let both = MultiLock::of(&locks).unwrap();
    let least = || {
        let leases = servers.iter().map(|it| lease_of(it, "orders"));
        leases.min().unwrap()
    };
    replies_in_any_order(&both, &proxies, least);
}

#[test]
fn a_short_lease_is_kept_at_a_distant_server() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    proxy.next(FOR_EVER, None, Fault::DelayReply(ms(130)));
    let client = Client::builder()
        .watchdog_timeout(ms(1000))
        .open(&proxy.url());
    let guard = client.unwrap().lock("orders").guard().unwrap();
    let lost = guard.lost().recv_timeout(ms(2500));
    assert_eq!(lost, Err(redlatch::NoLoss::NotYet));
    guard.unlock().unwrap();
}

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

#[cfg(feature = "test-util")]
#[test]
fn a_release_in_doubt_is_sent_as_long_as_the_lease_may_last() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder of an hour", &[("URL", &server.url())]);
    assert!(child.wait(CHILD).success());
    assert!(child.said().contains(&"done".to_owned()));
    assert_eq!(server.int(&["DBSIZE"]), 0);
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
fn holder_of_late_levels() {
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
fn holder_beside_a_slow_clock() {
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
            thread::sleep(ms(100));
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

#[cfg(feature = "test-util")]
fn holder_of_an_hour() {
    use std::net::ToSocketAddrs;
    let url = arg("URL");
    let address = url.trim_start_matches("redis://").to_socket_addrs();
    let proxy = Proxy::to(address.unwrap().next().unwrap());
    let hour = Duration::from_secs(3600);
    let other = Client::open(&url).unwrap();
    let client = Client::open(&proxy.url()).unwrap();
    let fixed = client.lock("fixed").with_lease_time(hour);
    let nested = client.lock("nested");
    let handed = client.lock("handed").with_lease_time(hour);
    // What counts is the longest lease that was ever set, also of a level that was given back in vain.
    let (fixed, outer) = (fixed.guard().unwrap(), nested.guard().unwrap());
    let inner = nested.with_lease_time(hour).guard().unwrap();
    thread::scope(|scope| {
        let held = handed.guard().unwrap();
        let waiter = scope.spawn(|| handed.try_lock_for(ms(900)));
        thread::sleep(ms(200));
        proxy.refuse();
        proxy.cut();
        for level in [inner, outer, fixed, held] {
            let error = level.unlock().unwrap_err();
            assert!(error.is_retryable(), "{error}");
        }
        waiter.join().unwrap().unwrap_err();
    });
    redlatch::testing::advance_clock(Duration::from_secs(120));
    thread::sleep(ms(1200));
    for name in ["fixed", "nested", "handed"] {
        assert!(other.lock(name).is_locked().unwrap(), "{name}");
    }
    proxy.heal();
    for name in ["fixed", "nested", "handed"] {
        let free = other.lock(name).try_lock_for(SLACK).unwrap();
        assert!(free, "{name} is free as soon as the server can be told");
        other.lock(name).unlock().unwrap();
    }
    say("done");
}

#[cfg(target_os = "linux")]
#[test]
fn a_release_in_doubt_waits_for_room_for_its_thread() {
    let server = RedisServer::start();
    let role = "holder without room for a thread";
    let mut child = Child::spawn(role, &[("URL", &server.url())]);
    assert!(child.wait(CHILD).success());
    assert!(child.said().contains(&"done".to_owned()));
}

#[cfg(target_os = "linux")]
fn holder_without_room_for_a_thread() {
    use crate::faults::{allow_threads, forbid_threads};
    let server = redis::Client::open(arg("URL")).unwrap();
    let mut server = server.get_connection().unwrap();
    let mut call = |words: &[&str]| {
        let (name, rest) = words.split_first().unwrap();
        redis::cmd(name)
            .arg(rest)
            .query::<redis::Value>(&mut server)
    };
    let client = quick().open(&arg("URL")).unwrap();
    let lock = client.lock("orders").with_lease_time(LONG);
    lock.lock().unwrap();
    call(&["CLIENT", "PAUSE", "10000", "WRITE"]).unwrap();
    forbid_threads();
    lock.unlock().unwrap_err();
    call(&["CLIENT", "UNPAUSE"]).unwrap();
    thread::sleep(ms(300));
    let stands = || client.lock("orders").is_locked().unwrap();
    assert!(stands(), "nobody is there to release it");
    allow_threads();
    eventually(SLACK, "it is released when there is room", || !stands());
    say("done");
}

#[test]
fn a_backlog_of_releases_in_doubt_delays_no_renewal() {
    const BACKLOG: usize = 200;
    let (server, proxy) = server();
    let client = Client::builder()
        .watchdog_timeout(LEASE)
        .command_timeout(ms(400))
        .pool_size(64)
        .open(&proxy.url())
        .unwrap();
    let guard = client.lock("kept").guard().unwrap();
    let locks: Vec<Lock> = (0..BACKLOG)
        .map(|number| client.lock(&format!("orders:{number}")))
        .collect();
    // What is released is asked for one at a time, each 25 ms away.
    proxy.next(
        FOR_EVER,
        Some(sha(WITHDRAW).as_bytes()),
        Fault::DelayReply(ms(25)),
    );
    let barrier = Barrier::new(20);
    thread::scope(|scope| {
        for locks in locks.chunks(BACKLOG / 20) {
            let (barrier, proxy) = (&barrier, &proxy);
            scope.spawn(move || {
                for lock in locks {
                    lock.with_lease_time(LONG).lock().unwrap();
                }
                if barrier.wait().is_leader() {
                    proxy.next(
                        BACKLOG * 2,
                        Some(sha(RELEASE).as_bytes()),
                        Fault::SwallowRequest(End::Reset),
                    );
                }
                barrier.wait();
                for lock in locks {
                    lock.unlock().unwrap_err();
                }
            });
        }
    });
    let end = Instant::now() + LEASE * 2;
    while Instant::now() < end {
        assert!(guard.is_valid());
        thread::sleep(ms(5));
    }
    eventually(SLACK * 4, "all are released", || {
        server.int(&["DBSIZE"]) == 1
    });
    guard.unlock().unwrap();
}

#[test]
fn the_end_of_a_validity_is_told_when_it_comes() {
    let mut late = Vec::new();
    for _ in 0..3 {
        let server = RedisServer::start();
        let (told, news) = crossbeam_channel::unbounded();
        let client = quick()
            .command_timeout(ms(2000))
            .watchdog_timeout(ms(600))
            .on_lost(move |_| told.send(Instant::now()).unwrap())
            .open(&server.url())
            .unwrap();
        let guard = client.lock("orders").guard().unwrap();
        let lost = guard.lost();
        thread::sleep(ms(250));
        server.freeze();
        while guard.is_valid() {
            thread::sleep(ms(1));
        }
        let invalid = Instant::now();
        let loss = lost.recv_timeout(SLACK).unwrap();
        let heard = invalid.elapsed();
        let told = news.recv_timeout(SLACK).unwrap();
        late.push(heard.max(told.saturating_duration_since(invalid)));
        // The silence was the server's.
        assert!(!loss.cause.to_string().contains("paused"), "{loss}");
        server.thaw();
        guard.unlock().unwrap_err();
    }
    // A busy machine may delay one of them.
    late.sort();
    assert!(late[1] < ms(40), "{late:?}");
}

#[test]
fn a_fixed_lease_ends_in_time_while_renewals_get_no_answer() {
    let server = RedisServer::start();
    let client = quick()
        .command_timeout(ms(2000))
        .watchdog_timeout(Duration::from_secs(6))
        .open(&server.url())
        .unwrap();
    let renewed = client.lock("renewed").guard().unwrap();
    thread::sleep(ms(1800));
    let fixed = client.lock("fixed").with_lease_time(ms(700));
    let fixed = fixed.guard().unwrap();
    let lost = fixed.lost();
    server.freeze();
    while fixed.is_valid() {
        thread::sleep(ms(1));
    }
    let invalid = Instant::now();
    assert_eq!(
        lost.recv_timeout(SLACK).unwrap().cause,
        LossCause::LeaseEnded
    );
    let late = invalid.elapsed();
    server.thaw();
    assert!(late < ms(400), "{late:?}");
    assert!(renewed.is_valid());
}

#[test]
fn a_frozen_minority_costs_no_redlock_whose_lease_is_shorter_than_a_command() {
    let servers: Vec<RedisServer> = (0..5).map(|_| RedisServer::start()).collect();
    let redlock = Redlock::builder()
        .nodes(servers.iter().map(|it| Client::open(&it.url()).unwrap()))
        .max_lease(LONG)
        .watchdog_timeout(LEASE)
        // A busy machine is no silent node.
        .node_timeout(ms(100))
        .trust_new_nodes()
        .build()
        .unwrap();
    for server in &servers[..2] {
        server.freeze();
    }
    let guard = redlock.lock("orders").guard().unwrap();
    let end = Instant::now() + LEASE * 2;
    while Instant::now() < end {
        assert!(guard.is_valid());
        thread::sleep(ms(5));
    }
    for server in &servers[..2] {
        server.thaw();
    }
    guard.unlock().unwrap();
}

#[test]
fn a_look_at_the_settings_delays_no_renewal() {
    let (_server, proxy) = server();
    // With the feature `tracing` the look begins with the first lock.
    proxy.next(FOR_EVER, Some(b"INFO"), Fault::SwallowRequest(End::Silent));
    proxy.next(
        FOR_EVER,
        Some(b"CONFIG"),
        Fault::SwallowRequest(End::Silent),
    );
    let client = Client::builder()
        .watchdog_timeout(ms(900))
        .command_timeout(Duration::from_secs(5))
        .open(&proxy.url())
        .unwrap();
    let guard = client.lock("orders").guard().unwrap();
    thread::sleep(ms(1800));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

#[test]
fn whoever_asks_for_news_after_a_shutdown_hears_at_once() {
    for client in [
        Client::in_memory(),
        Client::open(&RedisServer::start().url()).unwrap(),
    ] {
        let guard = client.lock("orders").guard().unwrap();
        let before = guard.lost();
        client.shutdown();
        for lost in [before, guard.lost()] {
            assert_eq!(lost.recv_timeout(ms(1)).unwrap().cause, LossCause::Closed);
        }
    }
}

#[test]
fn a_hold_that_is_granted_during_a_shutdown_is_told() {
    for round in 0..60 {
        let client = Client::in_memory();
        let start = Barrier::new(5);
        thread::scope(|scope| {
            for number in 0..4 {
                let (client, start) = (&client, &start);
                scope.spawn(move || {
                    let lock = client.lock(&format!("orders:{number}"));
                    start.wait();
                    loop {
                        match lock.guard() {
                            Ok(guard) => {
                                let lost = guard.lost();
                                if let Ok(loss) = lost.recv_timeout(ms(2)) {
                                    assert_eq!(loss.cause, LossCause::Closed);
                                    return;
                                }
                                if guard.unlock().is_ok() && lost.try_recv().is_ok() {
                                    return;
                                }
                            }
                            Err(Error::Closed { .. }) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            start.wait();
            thread::sleep(Duration::from_micros(round * 50));
            client.shutdown();
            // Whoever got a lock at the last moment stands here until it is told.
        });
    }
}

#[test]
fn a_hold_that_is_granted_too_late_for_the_shutdown_is_told() {
    let (_server, proxy) = server();
    let client = Client::open(&proxy.url()).unwrap();
    let warm = client.lock("warm");
    warm.lock().unwrap();
    warm.unlock().unwrap();
    let asked = proxy.next(1, Some(sha(ACQUIRE).as_bytes()), Fault::DelayReply(ms(200)));
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let guard = client.lock("orders").guard().unwrap();
            guard.lost().recv_timeout(SLACK).map(|loss| loss.cause)
        });
        eventually(SLACK, "it is asked for", || asked.hits() == 1);
        client.shutdown();
        assert_eq!(holder.join().unwrap(), Ok(LossCause::Closed));
    });
}

#[test]
fn a_shutdown_waits_for_no_backlog_of_losses() {
    let mut child = Child::spawn("client with a slow hook", &[]);
    let report = child.expect_line("took", CHILD);
    let took: u64 = report.split(' ').nth(1).unwrap().parse().unwrap();
    // Ten seconds of hooks.
    assert!(ms(took) < ms(500) + SLACK, "{report}");
    assert_eq!(child.expect_line("silent", CHILD), "silent true");
    assert!(child.wait(CHILD).success());
}

fn client_with_a_slow_hook() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let server = RedisServer::start();
    let client = quick()
        .on_lost(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            thread::sleep(ms(10));
        })
        .open(&server.url())
        .unwrap();
    for number in 0..1000 {
        let lock = client.lock(&format!("orders:{number}"));
        lock.with_lease_time(LONG).lock().unwrap();
    }
    server.cmd(&["FLUSHALL"]);
    for number in 0..1000 {
        let lost = client.lock(&format!("orders:{number}")).unlock();
        assert!(lost.unwrap_err().is_lost());
    }
    let start = Instant::now();
    client.shutdown();
    say(&format!("took {}", start.elapsed().as_millis()));
    thread::sleep(ms(50));
    let told = calls.load(Ordering::SeqCst);
    thread::sleep(ms(200));
    say(&format!("silent {}", told == calls.load(Ordering::SeqCst)));
}

fn shut_down_in_time(builder: Builder, end: impl FnOnce(Client)) {
    let server = RedisServer::start();
    let client = builder
        .command_timeout(ms(500))
        .watchdog_timeout(ms(600))
        .on_lost(|_| thread::sleep(Duration::from_secs(20)))
        .open(&server.url())
        .unwrap();
    let lock = client.lock("lost");
    lock.with_lease_time(ms(20)).lock().unwrap();
    let waiter = client.lock("waited for");
    let guard = client.lock("waited for").guard().unwrap();
    thread::scope(|scope| scope.spawn(|| waiter.try_lock_for(ms(50))).join().unwrap()).unwrap();
    drop((lock, waiter));
    thread::sleep(ms(100));
    server.freeze();
    // A renewal, a release in the background, a hook and a listener are all under way.
    guard.unlock().unwrap_err();
    let start = Instant::now();
    end(client);
    let took = start.elapsed();
    server.thaw();
    assert!(took < ms(500) + SLACK, "{took:?}");
}

#[test]
fn a_shutdown_ends_in_time_whatever_hangs() {
    shut_down_in_time(quick(), |client| client.shutdown());
    shut_down_in_time(quick(), drop);
}

#[test]
fn many_releases_in_doubt_are_sent_over_few_connections() {
    const BACKLOG: usize = 300;
    let (server, proxy) = server();
    let client = quick().open(&proxy.url()).unwrap();
    let locks: Vec<Lock> = (0..BACKLOG)
        .map(|number| client.lock(&format!("orders:{number}")))
        .collect();
    for lock in &locks {
        lock.with_lease_time(LONG).lock().unwrap();
    }
    proxy.refuse();
    proxy.cut();
    for lock in &locks {
        lock.unlock().unwrap_err();
    }
    // A port that refuses is not stormed for each of them.
    let before = proxy.counters().accepted;
    thread::sleep(ms(1000));
    let tries = proxy.counters().accepted - before;
    assert!(tries < 60, "{tries} connections in a second");
    proxy.heal();
    eventually(SLACK, "all are released", || server.int(&["DBSIZE"]) == 0);
    assert!(connections(&server).len() < 10);
}

/// What a subscriber of `tracing` does wrong ends neither a call nor a thread.
#[cfg(feature = "tracing")]
mod subscribers {
    use std::fmt::Debug;

    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::{Interest, with_default};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    struct Panics;

    impl Subscriber for Panics {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
            Interest::sometimes()
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            if event.metadata().target() == "redlatch" {
                panic!("a subscriber that panics");
            }
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
        fn try_close(&self, _: Id) -> bool {
            panic!("a subscriber that panics")
        }
    }

    impl Debug for Panics {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Panics")
        }
    }

    #[test]
    fn a_subscriber_that_panics_ends_nothing() {
        let client = Client::builder()
            .watchdog_timeout(ms(600))
            .in_memory()
            .unwrap();
        let lock = client.lock("orders");
        with_default(Panics, || {
            lock.lock().unwrap();
            let (ready, go) = (Barrier::new(2), Barrier::new(2));
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    ready.wait();
                    let got = lock.try_lock_for(SLACK).unwrap();
                    go.wait();
                    got && lock.unlock().is_ok()
                });
                ready.wait();
                thread::sleep(ms(100));
                // Handed over to the waiter, with an event in the middle.
                lock.unlock().unwrap();
                go.wait();
                assert!(waiter.join().unwrap());
            });
        });
        assert!(!lock.is_locked().unwrap());
    }
}
