//! Until when a hold counts: never longer than its key, and told in time.

use super::*;

#[test]
fn a_late_confirmation_of_a_renewal_does_not_outlast_the_level_given_back_before() {
    let (server, proxy) = server();
    let lock = renewed_for(&proxy, LEASE);
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
    let lock = renewed_for(&proxy, LEASE);
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
    let lock = renewed_for(&proxy, SHORT);
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
    let guard = renewed_for(&proxy, ms(1000)).guard().unwrap();
    let lost = guard.lost().recv_timeout(ms(2500));
    assert_eq!(lost, Err(redlatch::NoLoss::NotYet));
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
    stays_valid(&guard, LEASE * 2);
    for server in &servers[..2] {
        server.thaw();
    }
    guard.unlock().unwrap();
}

#[test]
fn a_hold_that_comes_to_be_renewed_has_the_connection_for_that_at_once() {
    for is_handed_off in [false, true] {
        let server = RedisServer::start();
        let client = Client::open(&server.url()).unwrap();
        let lock = client.lock("orders");
        let fixed = lock.with_lease_time(LONG);
        fixed.lock().unwrap();
        thread::scope(|scope| {
            let waiter = is_handed_off.then(|| {
                let waiter = scope.spawn(|| {
                    lock.lock().unwrap();
                    let connections = connections(&server).len();
                    lock.unlock().unwrap();
                    connections
                });
                until_queued(&lock, 1);
                waiter
            });
            // What looks at the settings of the server has its connection by now.
            thread::sleep(ms(200));
            let before = connections(&server).len();
            let after = match waiter {
                Some(waiter) => {
                    fixed.unlock().unwrap();
                    waiter.join().unwrap()
                }
                None => {
                    lock.lock().unwrap();
                    connections(&server).len()
                }
            };
            assert!(
                after > before,
                "{before} connections, {after}, handed off: {is_handed_off}"
            );
        });
    }
}
