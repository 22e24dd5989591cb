//! Locks behind sentinels: F35 to F38 of the catalogue, and who may name a master.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error, Lock, LossCause, Redlock};

use crate::backends::{
    Grants, KEPT, LEASE, SLACK, all_works, channel, hand_over, is_renewed, is_woken, timed,
};
use crate::report;
use crate::support::topology_fixtures::sentinels::NAME;
use crate::support::topology_fixtures::{AGREEMENT, FakeSentinel, Sentinels};
use crate::support::{Monitor, RedisServer, eventually, free_port, ms};

/// A lease that outlives a failover, even on a busy machine.
const PATIENT: Duration = Duration::from_secs(15);

/// A lease that no test lives to see the end of.
const LONG: Duration = Duration::from_secs(60);

fn client(set: &Sentinels, lease: Duration) -> Client {
    open(Client::builder().watchdog_timeout(lease), set)
}

fn open(builder: Builder, set: &Sentinels) -> Client {
    builder.sentinel(NAME, set.urls()).unwrap()
}

/// Holds a lock over the failover that `happens`, which returns the new master.
fn a_hold_goes_on(set: &Sentinels, happens: impl FnOnce() -> usize) {
    let client = client(set, PATIENT);
    let lock = client.lock("orders");
    let other = self::client(set, PATIENT).lock("orders");
    let guard = lock.guard().unwrap();
    set.nodes[set.master()].replicate(2, "orders");
    let new = happens();
    assert!(guard.is_valid());
    assert!(!other.try_lock_for(ms(100)).unwrap());
    is_renewed(&guard);
    assert!(set.nodes[new].int(&["PTTL", "orders"]) > 0);
    assert!(lock.is_held_by_current_thread().unwrap());
    guard.unlock().unwrap();
    assert!(other.try_lock_for(SLACK).unwrap());
    other.unlock().unwrap();
    assert_eq!(set.nodes[new].int(&["EXISTS", "orders"]), 0);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_hold_survives_the_death_of_the_master() {
    let set = Sentinels::start();
    a_hold_goes_on(&set, || set.lose_master().1);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_hold_survives_a_planned_failover() {
    let set = Sentinels::start();
    a_hold_goes_on(&set, || set.failover().1);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn grants_go_on_at_the_new_master() {
    let set = Sentinels::start();
    let lock = client(&set, LEASE).lock("orders");
    for is_planned in [false, true] {
        let (grants, over) = Grants::during(&lock, || {
            if is_planned {
                set.failover();
            } else {
                set.lose_master();
            }
            Instant::now()
        });
        let first = grants.first_after(over);
        report(&format!(
            "sentinel, {}: first grant {first:.1?} after the failover, {:.1?} without any",
            if is_planned { "planned" } else { "kill" },
            grants.longest_gap()
        ));
        assert!(first < Duration::from_secs(1) + SLACK, "{first:?}");
        if !is_planned {
            set.rejoin(0);
            set.wait_until_settled();
        }
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn waiters_hear_of_an_unlock_at_the_new_master() {
    let set = Sentinels::start();
    let (holder, waiter) = (client(&set, LONG), client(&set, LONG));
    for is_planned in [true, false] {
        is_woken(&holder.lock("orders"), &waiter.lock("orders"), || {
            set.nodes[set.master()].replicate(2, "orders");
            let (_, new) = if is_planned {
                set.failover()
            } else {
                set.lose_master()
            };
            eventually(SLACK * 2, "the waiter listens at the new master", || {
                let (_, listeners): (String, u32) =
                    set.nodes[new].ask(&["PUBSUB", "NUMSUB", &channel("orders")]);
                listeners > 0
            });
        });
        if is_planned {
            set.wait_until_settled();
        }
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_lock_that_was_not_copied_is_lost_and_its_holder_told() {
    let set = Sentinels::start();
    let lease = Duration::from_secs(30);
    let client = client(&set, lease);
    let other = self::client(&set, lease).lock("orders");
    for replica in &set.nodes[1..] {
        replica.freeze();
    }
    set.nodes[0].drop_replicas();
    // The replicas are not missed before a second is over.
    let guard = client.lock("orders").guard().unwrap();
    set.nodes[0].kill();
    for replica in &set.nodes[1..] {
        replica.thaw();
    }
    set.wait_for_master_after(0);
    let lost = guard.lost();
    let holder = other.guard().unwrap();
    // The renewal comes when a third of the lease is over, the holder of this long one need not wait for its end.
    let loss = lost.recv_timeout(lease * 2 / 3).unwrap();
    // The renewal may have come before the next holder.
    let successor = LossCause::HeldBy(holder.visitor().to_string());
    assert!([LossCause::Gone, successor].contains(&loss.cause), "{loss}");
    assert!(!guard.is_valid());
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(holder.is_valid());
    holder.unlock().unwrap();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn an_old_master_that_comes_back_gets_nothing_of_ours() {
    let set = Sentinels::start();
    let old_client = client(&set, KEPT);
    let kept = old_client.lock("kept").guard().unwrap();
    set.nodes[0].replicate(2, "kept");
    let (old, new) = set.lose_master();
    set.nodes[old].restart();
    // The sentinels demote it after two seconds or after ten; here it is a master for as long as it takes.
    set.nodes[old].cmd(&["ACL", "SETUSER", "default", "-slaveof", "-replicaof"]);
    let monitor = Monitor::start(&set.nodes[old]);
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(10) {
        for client in [&client(&set, KEPT), &old_client] {
            let (holder, waiter) = (client.lock("orders"), old_client.lock("orders"));
            all_works(&holder);
            if rounds % 4 == 0 {
                hand_over(&holder, &waiter, || {});
            }
        }
        rounds += 1;
        thread::sleep(ms(50));
    }
    assert!(set.nodes[old].is_master());
    let heard = monitor.lines();
    report(&format!(
        "sentinel: an old master was back for {rounds} rounds without it"
    ));
    assert!(rounds > 3, "too short to prove anything");
    assert!(!heard.is_empty(), "nobody has looked");
    let ours: Vec<_> = heard
        .iter()
        .filter(|line| {
            let line = line.to_lowercase();
            !line.contains("__sentinel__")
                && ["eval", "subscribe", "publish", "orders", "kept"]
                    .iter()
                    .any(|word| line.contains(word))
        })
        .collect();
    assert!(ours.is_empty(), "{ours:#?}");
    assert!(kept.is_valid() || set.nodes[new].int(&["EXISTS", "kept"]) == 0);
}

/// Unlocks what the old master may have granted, and the new one may know nothing of.
#[track_caller]
fn is_unlocked_or_lost(lock: &Lock) {
    if let Err(error) = lock.unlock() {
        assert!(error.is_lost(), "{error}");
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_master_that_was_cut_off_is_left_though_it_answers() {
    let set = Sentinels::options().watcher().start();
    let builder = || {
        Client::builder()
            .watchdog_timeout(PATIENT)
            .credentials("default", "canary-data")
    };
    let client = open(builder(), &set);
    let guard = client.lock("kept").guard().unwrap();
    all_works(&client.lock("orders"));
    set.nodes[0].replicate(2, "kept");
    set.cut_off(0);
    let new = set.wait_for_master_after(0);
    let over = Instant::now();
    assert!(set.nodes[0].is_master());
    // Its connections are open and work; it is the sentinels' word that ends them.
    eventually(PATIENT / 3 + SLACK, "the new master is used", || {
        let lock = client.lock("orders");
        lock.lock().unwrap();
        let is_there = set.nodes[new].int(&["EXISTS", "orders"]) == 1;
        is_unlocked_or_lost(&lock);
        is_there
    });
    report(&format!(
        "sentinel: a master that was cut off was left {:.1?} after the failover",
        over.elapsed()
    ));
    is_renewed(&guard);
    guard.unlock().unwrap();
    // Sentinels that have changed their mind once more would be no fault of the client's.
    if set.master() == new {
        let keys: Vec<_> = set.nodes.iter().map(|node| node.keys("*")).collect();
        let logs: Vec<_> = set
            .sentinels
            .iter()
            .map(|sentinel| sentinel.log())
            .collect();
        assert_eq!(
            set.nodes[new].int(&["EXISTS", "kept"]),
            0,
            "{keys:?} {new} {logs:#?}"
        );
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn messages_of_sentinels_are_enough_to_leave_a_master() {
    let set = Sentinels::options().watcher().start();
    // A third of this lease is longer than the test.
    let client = open(
        Client::builder()
            .watchdog_timeout(Duration::from_secs(600))
            .credentials("default", "canary-data"),
        &set,
    );
    let lock = client.lock("orders");
    all_works(&lock);
    eventually(SLACK, "it listens to a sentinel", || {
        set.sentinels
            .iter()
            .any(|sentinel| sentinel.listeners() > 0)
    });
    set.cut_off(0);
    let new = set.wait_for_master_after(0);
    eventually(SLACK, "the new master is used", || {
        lock.lock().unwrap();
        let is_there = set.nodes[new].int(&["EXISTS", "orders"]) == 1;
        is_unlocked_or_lost(&lock);
        is_there
    });
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_look_once_in_a_while_is_enough_to_leave_a_master() {
    let set = Sentinels::options().watcher().start();
    let lease = ms(6000);
    let client = open(
        Client::builder()
            .watchdog_timeout(lease)
            .credentials("default", "canary-data"),
        &set,
    );
    let lock = client.lock("orders");
    all_works(&lock);
    eventually(SLACK, "it listens to a sentinel", || {
        set.sentinels
            .iter()
            .any(|sentinel| sentinel.listeners() > 0)
    });
    // The one that would tell it says nothing any more; the other two are enough to choose.
    let told = set
        .sentinels
        .iter()
        .find(|sentinel| sentinel.listeners() > 0);
    told.unwrap().freeze();
    set.cut_off(0);
    let new = set.wait_for_master_after(0);
    // One look to find the silence, one to find the master.
    eventually(lease * 2 / 3 + SLACK * 2, "the new master is used", || {
        lock.lock().unwrap();
        let is_there = set.nodes[new].int(&["EXISTS", "orders"]) == 1;
        is_unlocked_or_lost(&lock);
        is_there
    });
}

/// A client of three sentinels that say what they are told: each a master, and the epoch of the failover that made it one.
fn told(lease: Duration, says: [(&RedisServer, u64); 3]) -> (Client, [FakeSentinel; 3]) {
    let sentinels = says.map(|(server, epoch)| FakeSentinel::naming_since(server.addr(), epoch));
    let urls: Vec<_> = sentinels.iter().map(FakeSentinel::url).collect();
    let client = Client::builder().watchdog_timeout(lease);
    (client.sentinel(NAME, urls).unwrap(), sentinels)
}

/// Whether the locks of this client are at `server` once its connections to it are new.
fn is_at(client: &Client, server: &RedisServer) -> bool {
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    let guard = client.lock("probe").guard().unwrap();
    let is_there = server.int(&["EXISTS", "probe"]) == 1;
    if let Err(error) = guard.unlock() {
        assert!(error.is_lost(), "{error}");
    }
    is_there
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_sentinel_that_is_behind_turns_nobody_back() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let (client, sentinels) = told(KEPT, [(&new, 2), (&new, 2), (&old, 1)]);
    let guard = client.lock("orders").guard().unwrap();
    assert_eq!(new.int(&["EXISTS", "orders"]), 1);
    // Those that know better say nothing for a while.
    sentinels[0].hush();
    sentinels[1].hush();
    let start = Instant::now();
    while start.elapsed() < KEPT {
        assert!(is_at(&client, &new));
        thread::sleep(ms(50));
    }
    is_renewed(&guard);
    sentinels[0].speak();
    assert!(is_at(&client, &new));
    // Most of all three have to say so.
    sentinels[0].name(old.addr(), 1);
    eventually(KEPT + SLACK, "the majority is followed", || {
        is_at(&client, &old)
    });
    drop(guard);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_sentinel_that_is_behind_hides_no_failover() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    // It is long until the next look at all of them.
    let (client, sentinels) = told(LONG, [(&old, 1), (&old, 1), (&old, 1)]);
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
fn one_sentinel_alone_moves_nobody() {
    let (master, stranger) = (RedisServer::start(), RedisServer::start());
    let watch = Monitor::start(&stranger);
    let (client, sentinels) = told(LEASE, [(&stranger, 9), (&master, 1), (&master, 1)]);
    let start = Instant::now();
    while start.elapsed() < LEASE {
        assert!(is_at(&client, &master));
        thread::sleep(ms(50));
    }
    let written = watch.lines_containing("probe");
    assert!(written.is_empty(), "{written:#?}");
    // A second one makes it a failover.
    sentinels[2].name(stranger.addr(), 9);
    eventually(LEASE + SLACK, "the failover is followed", || {
        is_at(&client, &stranger)
    });
    assert!(is_at(&client, &stranger));
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn the_last_sentinel_is_believed_when_the_master_has_become_a_replica() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let (client, sentinels) = told(KEPT, [(&old, 1), (&old, 1), (&old, 1)]);
    old.cmd(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    new.cmd(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    let guard = client.lock("kept").guard().unwrap();
    eventually(AGREEMENT, "the copy has it", || {
        new.int(&["EXISTS", "kept"]) == 1
    });
    sentinels[0].hush();
    sentinels[2].hush();
    // While the old one is the master, one alone moves nobody.
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
    // Never back to an earlier failover on the word of one.
    sentinels[1].name(old.addr(), 1);
    old.cmd(&["REPLICAOF", "NO", "ONE"]);
    for _ in 0..10 {
        assert!(is_at(&client, &new));
        thread::sleep(ms(100));
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn the_last_sentinel_is_believed_when_the_master_cannot_be_reached() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let (client, sentinels) = told(LONG, [(&old, 1), (&old, 1), (&old, 1)]);
    let lock = client.lock("orders");
    all_works(&lock);
    sentinels[0].hush();
    old.kill();
    sentinels[1].name(new.addr(), 2);
    // This one finds out that its connection is closed.
    lock.try_lock().unwrap_err();
    // Another one that answers says otherwise.
    let error = lock.try_lock().unwrap_err().to_string();
    for part in [new.addr(), old.addr()].map(|addr| addr.to_string()) {
        assert!(error.contains(&part), "{error}");
    }
    assert!(error.contains("not believed"), "{error}");
    sentinels[2].hush();
    // The one that it names is a replica.
    new.cmd(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    let error = lock.try_lock().unwrap_err().to_string();
    assert!(error.contains("not believed"), "{error}");
    assert!(error.contains("slave"), "{error}");
    new.cmd(&["REPLICAOF", "NO", "ONE"]);
    all_works(&lock);
    assert!(is_at(&client, &new));
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn holds_are_renewed_at_once_when_the_master_is_another_one() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let (client, sentinels) = told(LONG, [(&old, 1), (&old, 1), (&old, 1)]);
    let holds = ["a", "b", "c"].map(|name| client.lock(name).guard().unwrap());
    let fixed = client.lock("fixed").with_lease_time(LONG).guard().unwrap();
    let watch = Monitor::start(&new);
    for sentinel in &sentinels {
        sentinel.name(new.addr(), 2);
    }
    old.cmd(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    // Whatever is asked finds the new master, which has none of the holds. Their renewal is 20 seconds away.
    all_works(&client.lock("orders"));
    // One with a fixed lease hears of it, too.
    for hold in holds.iter().chain([&fixed]) {
        let loss = hold.lost().recv_timeout(SLACK).unwrap();
        assert_eq!(loss.cause, LossCause::Gone);
    }
    // One request for all of them.
    let asked = watch.lines_containing("\"EVALSHA\"");
    let renewals: Vec<_> = asked.iter().filter(|it| it.contains("\"b\"")).collect();
    assert_eq!(renewals.len(), 1, "{renewals:#?}");
    for name in ["\"a\"", "\"c\""] {
        assert!(renewals[0].contains(name), "{renewals:#?}");
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_master_that_says_so_needs_no_sentinel() {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    let (client, sentinels) = told(LEASE, [(&master, 1), (&master, 1), (&master, 1)]);
    let guard = client.lock("orders").guard().unwrap();
    // Before the first renewal.
    for sentinel in &sentinels {
        sentinel.hush();
    }
    let lost = guard.lost();
    let start = Instant::now();
    while start.elapsed() < LEASE * 3 {
        assert!(guard.is_valid(), "{:?}", lost.recv());
        assert!(is_at(&client, &master));
        thread::sleep(ms(50));
    }
    guard.unlock().unwrap();
    // One that calls itself a replica is none.
    let port = replica.port().to_string();
    master.cmd(&["REPLICAOF", "127.0.0.1", &port]);
    let error = client.lock("orders").try_lock().unwrap_err();
    assert!(!error.is_lost(), "{error}");
    master.cmd(&["REPLICAOF", "NO", "ONE"]);
    eventually(SLACK, "it is master again", || is_at(&client, &master));
}

/// How long a new client needs for its first lock, with these sentinels.
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
fn one_sentinel_that_is_dead_or_frozen_or_lies_costs_little() {
    let set = Sentinels::start();
    let stranger = RedisServer::start();
    let watch = Monitor::start(&stranger);
    let urls = set.urls();
    let nobody: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let fakes = [
        ("a replica", FakeSentinel::naming(set.nodes[1].addr())),
        ("nobody", FakeSentinel::naming(nobody)),
        (
            "a host that does not answer",
            FakeSentinel::naming("192.0.2.1:6379".parse().unwrap()),
        ),
        ("another master", FakeSentinel::naming(stranger.addr())),
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
    // In the order in which they are asked.
    set.sentinels[0].freeze();
    set.sentinels[1].freeze();
    set.nodes[0].cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    let (took, got) = timed(|| lock.try_lock_for(PATIENT).unwrap());
    assert!(got);
    report(&format!(
        "sentinel, two of three frozen: a new connection in {took:.1?}"
    ));
    assert!(took < ms(700), "{took:?}");
    set.sentinels[0].thaw();
    set.sentinels[1].thaw();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_failover_is_followed_while_one_sentinel_is_frozen() {
    let set = Sentinels::start();
    let client = client(&set, LEASE);
    let lock = client.lock("orders");
    all_works(&lock);
    // The one it listens to, most of all.
    let heard = set
        .sentinels
        .iter()
        .find(|sentinel| sentinel.listeners() > 0)
        .unwrap_or(&set.sentinels[0]);
    heard.freeze();
    let (grants, over) = Grants::during(&lock, || {
        set.lose_master();
        Instant::now()
    });
    let first = grants.first_after(over);
    report(&format!(
        "sentinel, kill, one of three frozen: first grant {first:.1?} after the failover"
    ));
    assert!(first < Duration::from_secs(5) + SLACK, "{first:?}");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn without_any_sentinel_the_present_master_goes_on_being_used() {
    let set = Sentinels::start();
    let client = client(&set, KEPT);
    let guard = client.lock("kept").guard().unwrap();
    let other = self::client(&set, LONG);
    all_works(&other.lock("orders"));
    // Renewals have a connection of their own, from the first one on.
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

#[test]
#[ignore = "needs several servers: make topologies"]
fn sentinels_and_master_have_passwords_of_their_own() {
    let set = Sentinels::options()
        .password("canary-data")
        .sentinel_password("canary-sentinel")
        .start();
    let good = || Client::builder().credentials("default", "canary-data");
    let client = open(good(), &set);
    all_works(&client.lock("orders"));
    assert!(!format!("{client:?}").contains("canary"), "{client:?}");
    set.failover();
    all_works(&client.lock("orders"));

    let no_password: Vec<_> = set
        .sentinels
        .iter()
        .map(|sentinel| format!("redis://{}", sentinel.addr()))
        .collect();
    let mixed_up: Vec<_> = set
        .sentinels
        .iter()
        .map(|sentinel| format!("redis://:canary-data@{}", sentinel.addr()))
        .collect();
    for client in [
        good().sentinel(NAME, no_password).unwrap(),
        good().sentinel(NAME, mixed_up).unwrap(),
        open(Client::builder(), &set),
        open(
            Client::builder().credentials("default", "canary-wrong"),
            &set,
        ),
        open(
            Client::builder().credentials("canary-user", "canary-data"),
            &set,
        ),
    ] {
        let (took, result) = timed(|| client.lock("orders").try_lock());
        let error = result.unwrap_err();
        assert!(took < SLACK * 2, "{took:?}");
        assert!(matches!(error, Error::Permission { .. }), "{error:?}");
        let text = format!("{error} {error:?} {client:?}");
        assert!(!text.contains("canary"), "{text}");
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn databases_behind_sentinels_are_apart() {
    let set = Sentinels::start();
    let third = open(Client::builder().database(3), &set);
    let none = open(Client::builder(), &set);
    let guard = third.lock("orders").guard().unwrap();
    all_works(&none.lock("orders"));
    assert!(set.nodes[0].told("db3").unwrap().starts_with("keys=1"));
    let again = open(Client::builder().database(3), &set);
    assert!(!again.lock("orders").try_lock().unwrap());
    set.nodes[0].replicate(2, "orders");
    let (old, new) = set.failover();
    set.demote(old);
    assert!(!again.lock("orders").try_lock_for(ms(100)).unwrap());
    guard.unlock().unwrap();
    assert_eq!(set.nodes[new].told("db3"), None);
    let error = open(Client::builder().database(4711), &set)
        .lock("orders")
        .try_lock()
        .unwrap_err();
    assert!(!error.is_ambiguous(), "{error}");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_name_that_no_sentinel_knows_is_told() {
    let set = Sentinels::start();
    let client = Client::builder().sentinel("nobody", set.urls()).unwrap();
    let (took, result) = timed(|| client.lock("orders").try_lock());
    let error = result.unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
    assert!(took < SLACK * 2, "{took:?}");
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let none: [&str; 0] = [];
    let one = ["redis://127.0.0.1:26379"];
    for refused in [
        Client::builder().sentinel(NAME, none),
        Client::builder().sentinel("", one),
        Client::builder().sentinel(NAME, ["http://127.0.0.1:26379"]),
        Client::builder().master_replicas(none),
        Client::builder().cluster(none),
        Client::builder().cluster(["redis://127.0.0.1:26379/3"]),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_node_of_a_quorum_that_fails_over_costs_nothing_and_waits_for_its_vote() {
    const MAX_LEASE: Duration = ms(6000);
    let set = Sentinels::start();
    let others = [RedisServer::start(), RedisServer::start()];
    let plain = others
        .iter()
        .map(|server| Client::open(&server.url()).unwrap());
    let redlock = Redlock::builder()
        .nodes(plain.chain([client(&set, LEASE)]))
        .max_lease(MAX_LEASE)
        .node_timeout(ms(500))
        .trust_new_nodes()
        .build()
        .unwrap();
    let lock = redlock.lock("a");
    let held = redlock.lock("held").guard().unwrap();
    let old = set.master();
    eventually(SLACK, "the node has it", || {
        set.nodes[old].int(&["EXISTS", "held"]) == 1
    });
    set.nodes[old].kill();
    for _ in 0..5 {
        assert!(lock.try_lock_for(SLACK).unwrap(), "two of three are there");
        lock.unlock().unwrap();
    }
    set.wait_for_master_after(old);
    assert!(held.is_valid());
    held.unlock().unwrap();
    // From here on the new master would have to vote, which it has not been asked for yet, or not long ago.
    let seen = Instant::now();
    others[0].freeze();
    let mut told = false;
    loop {
        match lock.try_lock() {
            Ok(granted) if granted => break,
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
                told |= error.to_string().contains("no vote");
            }
        }
        assert!(seen.elapsed() < MAX_LEASE + AGREEMENT);
        thread::sleep(ms(20));
    }
    assert!(told, "it was granted after {:?}", seen.elapsed());
    lock.unlock().unwrap();
    others[0].thaw();
}
