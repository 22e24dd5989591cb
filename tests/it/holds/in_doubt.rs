//! In-doubt releases, which are sent again until the server replies.

use super::*;

#[cfg(feature = "test-util")]
#[test]
fn an_in_doubt_release_is_retried_until_the_lease_ends() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder of an hour", &[("URL", &server.url())]);
    assert!(child.wait(CHILD).success());
    assert!(child.lines().contains(&"done".to_owned()));
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
    // The longest lease ever set counts, also of a level whose release got no reply.
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
