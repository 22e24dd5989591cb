//! Validity: never longer than the key's life, and its end is reported in time.

use super::*;

/// Enters and leaves levels with short and long leases while random replies are delayed.
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
            // Not the outermost level, which is renewed.
            let level = levels.remove(draw.usize(1..levels.len()));
            let left = level.unlock();
            assert!(left.is_ok() || left.is_err_and(passes));
            "left"
        };
        let pause = Instant::now() + ms(draw.u64(0..30));
        loop {
            validity_is_at_most(&levels[0], &lease, what);
            if Instant::now() >= pause {
                break;
            }
            thread::sleep(ms(2));
        }
        if !levels[0].is_valid() {
            // So many replies were late that the hold was lost, which is allowed.
            break;
        }
        rounds += 1;
    }
    assert!(rounds > 5, "{rounds} rounds");
}

#[test]
fn a_hold_never_outlasts_its_key_in_any_reply_order() {
    let (server, proxy) = server();
    let lock = renewed_for(&proxy, SHORT);
    replies_in_any_order(&lock, &[proxy], || lease_of(&server, "orders"));
}

#[test]
fn a_redlock_never_outlasts_its_majority_in_any_reply_order() {
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
fn a_multi_lock_never_outlasts_a_member_in_any_reply_order() {
    let (servers, proxies): (Vec<_>, Vec<_>) = (0..2).map(|_| server()).unzip();
    let locks: Vec<Lock> = proxies
        .iter()
        .map(|proxy| renewed_for(proxy, SHORT))
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
    let guard = renewed_for(&proxy, ms(2000)).guard().unwrap();
    let lost = guard.lost().recv_timeout(ms(5000));
    assert_eq!(lost, Err(redlatch::NoLoss::NotYet));
    guard.unlock().unwrap();
}
