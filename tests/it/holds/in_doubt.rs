//! Releases in doubt, which are sent again until the server answers.

use super::*;

#[cfg(feature = "test-util")]
#[test]
fn a_release_in_doubt_is_sent_as_long_as_the_lease_may_last() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder of an hour", &[("URL", &server.url())]);
    assert!(child.wait(CHILD).success());
    assert!(child.said().contains(&"done".to_owned()));
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[cfg(feature = "test-util")]
pub(super) fn holder_of_an_hour() {
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
        crate::laws::until_queued(&handed, 1);
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
pub(super) fn holder_without_room_for_a_thread() {
    use crate::faults::{allow_threads, forbid_threads};
    use rustix::time::{ClockId, clock_gettime};
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
    let worked = || clock_gettime(ClockId::ProcessCPUTime);
    let before = worked();
    thread::sleep(ms(600));
    let worked = Duration::try_from(worked() - before).unwrap();
    assert!(worked < ms(150), "it tries without a pause: {worked:?}");
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
    stays_valid(&guard, LEASE * 2);
    eventually(SLACK * 4, "all are released", || {
        server.int(&["DBSIZE"]) == 1
    });
    guard.unlock().unwrap();
}
