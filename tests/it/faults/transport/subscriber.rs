//! The connection of the subscriber: F8.

use super::*;

/// The id of the first client of a CLIENT LIST.
fn id(list: Option<String>) -> Option<String> {
    Some(list?.split_once(' ')?.0.to_owned())
}

#[test]
fn a_dead_subscriber_is_replaced_promptly() {
    let fixture = Fixture::new();
    let lock = fixture.client.lock("orders");
    let undisturbed = fixture.undisturbed();
    let holder = undisturbed
        .lock("orders")
        .with_lease_time(Duration::from_secs(60));
    let unlocked_after = |prepare: &dyn Fn()| {
        holder.lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                assert!(lock.try_lock_for(Duration::from_secs(40)).unwrap());
                let now = Instant::now();
                lock.unlock().unwrap();
                now
            });
            somebody_waits(&fixture.server, "orders");
            prepare();
            let freed = Instant::now();
            holder.unlock().unwrap();
            waiting.join().unwrap().duration_since(freed)
        })
    };
    let took = unlocked_after(&|| fixture.proxy.mute());
    // It polls after at most 1.1 s, and then uses the dead command connection.
    assert!(took < ms(1100) + TIMEOUT + SLACK, "{took:?}");
    let subscriber = || fixture.server.text(&["CLIENT", "LIST", "TYPE", "PUBSUB"]);
    let dead = id(subscriber());
    let took = unlocked_after(&|| {
        eventually(Duration::from_secs(20), "another subscriber", || {
            let present = id(subscriber());
            present.is_some() && present != dead
        });
        // The query after the subscription is over.
        thread::sleep(ms(150));
    });
    assert!(took < ms(600), "it was not woken: {took:?}");
}

/// Another client acquires all these locks.
fn held_by_another(server: &RedisServer, names: &[String]) {
    let hold = "for _, name in ipairs(ARGV) do redis.call('HSET', name, 'another:1:1', 1) redis.call('PEXPIRE', name, 60000) end";
    let mut words = vec!["EVAL", hold, "0"];
    words.extend(names.iter().map(String::as_str));
    server.cmd(&words);
}

/// The number of channels with a subscriber.
fn channels(server: &RedisServer) -> usize {
    let answer = server.cmd(&["PUBSUB", "CHANNELS", "redisson_lock__channel:*"]);
    redis::from_redis_value::<Vec<String>>(answer)
        .unwrap()
        .len()
}

/// A user with the right to one lock's channel only.
#[test]
fn a_forbidden_channel_does_not_block_other_channels() {
    let server = RedisServer::start();
    let rules = [
        "ACL",
        "SETUSER",
        "half",
        "on",
        ">half",
        "~*",
        "+@all",
        "resetchannels",
    ];
    server.cmd(&[&rules[..], &["&redisson_lock__channel:{mine*"]].concat());
    held_by_another(&server, &["mine".to_owned(), "other".to_owned()]);
    let url = format!("redis://half:half@{}", server.addr());
    let client = Client::open(&url).unwrap();
    thread::scope(|scope| {
        for name in ["mine", "other"] {
            let lock = client.lock(name);
            scope.spawn(move || lock.try_lock_for(Duration::from_secs(50)).unwrap_err());
        }
        let hears = || channels(&server) == 1;
        let subscribers = || server.text(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        eventually(Duration::from_secs(20), "it hears its own", hears);
        let before = id(subscribers());
        assert_eq!(server.int(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
        eventually(Duration::from_secs(20), "it hears its own again", || {
            let now = id(subscribers());
            now.is_some() && now != before && hears()
        });
        client.shutdown();
    });
}

/// A proxy in front of the server ends each connection that subscribes.
#[test]
fn reconnects_of_a_failing_subscription_back_off() {
    let server = RedisServer::start();
    held_by_another(&server, &["orders".to_owned()]);
    let proxy = Proxy::to(server.addr());
    proxy.next(
        usize::MAX,
        Some(b"SUBSCRIBE"),
        Fault::SwallowRequest(End::Reset),
    );
    let lock = Client::open(&proxy.url()).unwrap().lock("orders");
    let before = proxy.counters().accepted;
    assert!(!lock.try_lock_for(Duration::from_secs(3)).unwrap());
    let accepted = proxy.counters().accepted - before;
    // Delays of 10 ms at first and of half a second soon, and the connection for requests.
    assert!((2..=30).contains(&accepted), "{accepted} connections");
}
