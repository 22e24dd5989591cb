//! Announced addresses that are unreachable from here, and wrong maps of them.

use std::sync::atomic::AtomicBool;

use super::*;

/// The address that the nodes announce. No server listens there.
const ANNOUNCED: &str = "127.0.0.9";

/// A cluster of one node that announces an unreachable address.
fn cluster() -> RedisServer {
    let node = RedisServer::with(&[
        "--cluster-enabled",
        "yes",
        "--cluster-announce-ip",
        ANNOUNCED,
    ]);
    let slots: Vec<String> = (0..16_384).map(|slot: u32| slot.to_string()).collect();
    let mut words = vec!["CLUSTER", "ADDSLOTS"];
    words.extend(slots.iter().map(String::as_str));
    node.cmd(&words);
    eventually(ms(10_000), "the node serves", || {
        node.try_cmd(&["SET", "x", "y"]).is_ok() && node.try_cmd(&["DEL", "x"]).is_ok()
    });
    node
}

/// A client with `map` as its address map.
fn mapped(
    node: &RedisServer,
    map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
) -> Client {
    let builder = quick().watchdog_timeout(LEASE * 2).map_address(map);
    builder.cluster([node.url()]).unwrap()
}

fn home(_: &str, port: u16) -> (String, u16) {
    ("127.0.0.1".to_owned(), port)
}

/// The error with its source.
fn whole(error: &Error) -> String {
    use std::error::Error as _;
    let source = error.source().map(ToString::to_string);
    format!("{error}: {}", source.unwrap_or_default())
}

#[test]
fn announced_addresses_are_reached_by_a_map() {
    let node = cluster();
    let announced = format!("{ANNOUNCED}:{}", node.port());
    let at = format!("127.0.0.1:{}", node.port());
    let unmapped = quick().cluster([node.url()]).unwrap();
    let error = ends_within(TIMEOUT, || {
        fails(unmapped.lock("orders").try_lock(), Class::Unreachable)
    });
    for word in [&*announced, &at, "announced", "--map"] {
        assert!(whole(&error).contains(word), "{word}: {error}");
    }
    let error = fails(unmapped.check(), Class::Unreachable);
    assert!(whole(&error).contains(&announced), "{error}");

    let client = mapped(&node, home);
    all_works(&client.lock("orders"), &|| ());
    let lock = client.lock("kept");
    let guard = lock.guard().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_lock_for(SLACK).unwrap()));
        // Messages use a connection to the announced address, too.
        eventually(ms(5000), "somebody listens", || {
            // Servers before Redis 7 have no shard channels.
            let shards = node.try_cmd(&["PUBSUB", "SHARDCHANNELS"]);
            let plain = node.try_cmd(&["PUBSUB", "CHANNELS"]);
            [shards, plain]
                .iter()
                .any(|it| matches!(it, Ok(redis::Value::Array(it)) if !it.is_empty()))
        });
        guard.unlock().unwrap();
    });
    let found = client.check().unwrap();
    assert!(!found.iter().any(|it| it.code == "reachable"), "{found:?}");
}

#[test]
fn a_wrong_map_is_an_error_and_harms_no_hold() {
    type Map = fn(u16) -> (String, u16);
    let (node, other) = (cluster(), cluster());
    static OTHER: AtomicUsize = AtomicUsize::new(0);
    OTHER.store(usize::from(other.port()), Ordering::Relaxed);
    let to_other: Map = |_| home("", u16::try_from(OTHER.load(Ordering::Relaxed)).unwrap());
    static SINGLE: AtomicUsize = AtomicUsize::new(0);
    let single = RedisServer::start();
    SINGLE.store(usize::from(single.port()), Ordering::Relaxed);
    let to_single: Map = |_| home("", u16::try_from(SINGLE.load(Ordering::Relaxed)).unwrap());
    let wrong: [(Map, Class, &str); 6] = [
        (to_other, Class::Unreachable, "a server other than"),
        (to_single, Class::Unreachable, "a server other than"),
        (|_| home("", 1), Class::Unreachable, "127.0.0.1:1"),
        (|_| home("", 0), Class::Config, "port 0"),
        (
            |_| {
                thread::sleep(Duration::from_secs(20));
                home("", 1)
            },
            Class::Unreachable,
            "did not return in time",
        ),
        (|_| panic!("as planned"), Class::Config, "panicked"),
    ];
    let tried = &|map: Map, class, word, name: &str| {
        let is_wrong = Arc::new(AtomicBool::new(false));
        let reads = Arc::clone(&is_wrong);
        let client = mapped(&node, move |host, port| {
            match reads.load(Ordering::Relaxed) {
                true => map(port),
                false => home(host, port),
            }
        });
        let guard = client.lock(name).owned().unwrap();
        is_wrong.store(true, Ordering::Relaxed);
        let fresh = mapped(&node, move |_, port| map(port));
        let error = ends_within(TIMEOUT, || fails(fresh.lock("orders").try_lock(), class));
        let text = whole(&error);
        for word in [word, ANNOUNCED] {
            assert!(text.contains(word), "{word}: {text}");
        }
        ends_within(TIMEOUT, || fresh.shutdown());
        thread::sleep(LEASE * 2);
        assert!(guard.is_valid());
        is_wrong.store(false, Ordering::Relaxed);
        guard.unlock().unwrap();
    };
    // The last address alone, because a panic's backtrace takes time.
    for some in wrong.chunks(5) {
        thread::scope(|scope| {
            for (number, (map, class, word)) in some.iter().enumerate() {
                scope.spawn(move || tried(*map, *class, word, &format!("kept {number}")));
            }
        });
    }
    for server in [&node, &other, &single] {
        assert_eq!(server.int(&["DBSIZE"]), 0);
    }
}
