//! Which sentinel the client follows, and the cost of a dead, outdated or wrong one: F38.

use super::*;

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_sentinel_that_is_behind_hides_no_failover() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    // The next query of all sentinels is far away.
    let (client, sentinels) = sentinels_reporting(LONG, [(&old, 1), (&old, 1), (&old, 1)]);
    assert!(is_at(&client, &old));
    sentinels[1].name(new.addr(), 2);
    sentinels[2].name(new.addr(), 2);
    old.kill();
    let lock = client.lock("orders");
    let (took, is_granted) = timed(|| lock.try_lock_for(AGREEMENT).unwrap());
    assert!(is_granted);
    assert!(took < SLACK, "{took:?}");
    assert_eq!(new.int(&["EXISTS", "orders"]), 1);
    lock.unlock().unwrap();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn one_sentinel_alone_changes_no_master() {
    let (master, other_master) = (RedisServer::start(), RedisServer::start());
    let watch = Monitor::start(&other_master);
    let (client, sentinels) =
        sentinels_reporting(LEASE, [(&other_master, 9), (&master, 1), (&master, 1)]);
    let start = Instant::now();
    while start.elapsed() < LEASE {
        assert!(is_at(&client, &master));
        thread::sleep(ms(50));
    }
    let written = watch.lines_containing("probe");
    assert!(written.is_empty(), "{written:#?}");
    // A second sentinel makes it a failover.
    sentinels[2].name(other_master.addr(), 9);
    eventually(LEASE + SLACK, "the failover is followed", || {
        is_at(&client, &other_master)
    });
    assert!(is_at(&client, &other_master));
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn the_last_sentinel_decides_for_a_demoted_master() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let (client, sentinels) = sentinels_reporting(KEPT, [(&old, 1), (&old, 1), (&old, 1)]);
    old.cmd(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    new.cmd(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    let guard = client.lock("kept").guard().unwrap();
    eventually(AGREEMENT, "the copy has it", || {
        new.int(&["EXISTS", "kept"]) == 1
    });
    sentinels[0].hush();
    sentinels[2].hush();
    // While the old master replies, a single sentinel changes nothing.
    sentinels[1].name(new.addr(), 2);
    assert!(is_at(&client, &old));
    new.cmd(&["REPLICAOF", "NO", "ONE"]);
    old.cmd(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    eventually(SLACK, "the one that is left is believed", || {
        is_at(&client, &new)
    });
    is_renewed(&guard);
    guard.unlock().unwrap();
    assert_eq!(new.int(&["EXISTS", "kept"]), 0);
    // A single sentinel never moves it back to an earlier failover.
    sentinels[1].name(old.addr(), 1);
    old.cmd(&["REPLICAOF", "NO", "ONE"]);
    for _ in 0..10 {
        assert!(is_at(&client, &new));
        thread::sleep(ms(100));
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn the_last_sentinel_decides_for_an_unreachable_master() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let (client, sentinels) = sentinels_reporting(LONG, [(&old, 1), (&old, 1), (&old, 1)]);
    let lock = client.lock("orders");
    all_works(&lock);
    sentinels[0].hush();
    old.kill();
    sentinels[1].name(new.addr(), 2);
    // Another sentinel contradicts, once each closed connection is noticed.
    let mut error = String::new();
    eventually(SLACK, "no connection is left", || {
        let found = lock.try_lock().unwrap_err();
        error = found.to_string();
        !found.is_ambiguous()
    });
    for part in [new.addr(), old.addr()].map(|addr| addr.to_string()) {
        assert!(error.contains(&part), "{error}");
    }
    assert!(error.contains("ignored"), "{error}");
    sentinels[2].hush();
    // The server that it names is a replica.
    new.cmd(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    let error = lock.try_lock().unwrap_err().to_string();
    assert!(error.contains("ignored"), "{error}");
    assert!(error.contains("slave"), "{error}");
    new.cmd(&["REPLICAOF", "NO", "ONE"]);
    all_works(&lock);
    assert!(is_at(&client, &new));
}

/// The time of a new client's first lock, with these sentinels.
fn first_lock(urls: &[String]) -> Duration {
    let client = Client::builder().watchdog_timeout(PATIENT);
    let client = client.sentinel(NAME, urls).unwrap();
    let lock = client.lock("orders");
    let (first, ()) = timed(|| assert!(lock.try_lock_for(AGREEMENT).unwrap()));
    lock.unlock().unwrap();
    let (next, ()) = timed(|| all_works(&lock));
    assert!(next < SLACK, "{next:?} when all is known");
    first
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_dead_frozen_or_lying_sentinel_costs_little() {
    let set = Sentinels::start();
    let other_master = RedisServer::start();
    let watch = Monitor::start(&other_master);
    let urls = set.urls();
    let nobody: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let fakes = [
        ("a replica", FakeSentinel::naming(set.nodes[1].addr())),
        ("nobody", FakeSentinel::naming(nobody)),
        (
            "a host that does not answer",
            FakeSentinel::naming("192.0.2.1:6379".parse().unwrap()),
        ),
        ("another master", FakeSentinel::naming(other_master.addr())),
    ];
    for (named, fake) in &fakes {
        for at in 0..3 {
            let mut urls = urls.clone();
            urls[at] = fake.url();
            let took = first_lock(&urls);
            report(&format!(
                "sentinel {at} of 3 names {named}: first lock in {took:.1?}"
            ));
            assert!(took < Duration::from_secs(5) + SLACK, "{named}: {took:?}");
        }
        assert!(fake.asked() > 0, "nobody asked the one that names {named}");
    }
    let written = watch.lines_containing("orders");
    assert!(written.is_empty(), "{written:#?}");

    set.sentinels[0].freeze();
    let frozen = first_lock(&urls);
    set.sentinels[0].kill();
    let dead = first_lock(&urls);
    report(&format!(
        "sentinel 0 of 3: frozen, first lock in {frozen:.1?}; dead, {dead:.1?}"
    ));
    assert!(frozen < Duration::from_secs(5) + SLACK, "{frozen:?}");
    assert!(dead < Duration::from_secs(5) + SLACK, "{dead:?}");
}

pub(crate) fn two_sentinels_of_three_frozen() {
    let set = Sentinels::start();
    let client = client(&set, LONG);
    let lock = client.lock("orders");
    all_works(&lock);
    // In the order of the queries.
    set.sentinels[0].freeze();
    set.sentinels[1].freeze();
    set.nodes[0].cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    let (took, got) = timed(|| lock.try_lock_for(PATIENT).unwrap());
    assert!(got);
    report(&format!(
        "sentinel, two of three frozen: a new connection in {took:.1?}"
    ));
    assert!(took < ms(1500), "{took:?}");
    set.sentinels[0].thaw();
    set.sentinels[1].thaw();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn without_any_sentinel_the_current_master_is_kept() {
    let set = Sentinels::start();
    let client = client(&set, KEPT);
    let guard = client.lock("kept").guard().unwrap();
    let other = self::client(&set, LONG);
    all_works(&other.lock("orders"));
    // Renewals have their own connection, from the first one on.
    thread::sleep(KEPT);
    for sentinel in &set.sentinels {
        sentinel.kill();
    }
    let start = Instant::now();
    let lost = guard.lost();
    while start.elapsed() < KEPT * 2 {
        assert!(guard.is_valid(), "{:?}", lost.recv());
        all_works(&client.lock("orders"));
        thread::sleep(ms(20));
    }
    guard.unlock().unwrap();
    let took = hand_over(&client.lock("orders"), &other.lock("orders"), || {
        thread::sleep(ms(200));
    });
    assert!(took < SLACK, "{took:?}");

    let new = open(Client::builder().command_timeout(ms(500)), &set);
    let (took, result) = timed(|| new.lock("orders").try_lock());
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(took < ms(500) + SLACK, "{took:?}");
    set.sentinels[1].restart();
    all_works(&new.lock("orders"));
}
