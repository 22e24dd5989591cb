//! Locks in a Redis Cluster: F39 to F41 of the catalogue, and where the unlock messages go.

use std::net::TcpListener;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error, HealthWarning, LossCause};

use crate::backends::{
    Grants, KEPT, LEASE, SLACK, all_works, channel, hand_over, is_renewed, is_woken, timed,
};
use crate::report;
use crate::support::topology_fixtures::{AGREEMENT, Access, Cluster, FakeClusterNode};
use crate::support::{Monitor, Proxy, RedisServer, eventually, free_port, ms};

/// A lease that outlives a failover, even on a busy machine.
const PATIENT: Duration = Duration::from_secs(15);

/// A lease that no test lives to see the end of.
const LONG: Duration = Duration::from_secs(60);

fn open(builder: Builder, cluster: &Cluster) -> Client {
    builder.cluster(cluster.urls()).unwrap()
}

fn client(cluster: &Cluster, lease: Duration) -> Client {
    open(Client::builder().watchdog_timeout(lease), cluster)
}

/// How many listen to the unlock messages of `name`: to sharded ones and to plain ones.
fn listeners(cluster: &Cluster, name: &str) -> (u32, u32) {
    let count = |node: usize, question: &str| {
        let (_, listeners): (String, u32) =
            cluster.nodes[node].ask(&["PUBSUB", question, &channel(name)]);
        listeners
    };
    let plain = (0..cluster.nodes.len()).map(|node| count(node, "NUMSUB"));
    (count(cluster.owner_of(name), "SHARDNUMSUB"), plain.sum())
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn each_lock_is_where_its_slot_is() {
    let cluster = Cluster::masters();
    let client = client(&cluster, KEPT);
    let mut kept = Vec::new();
    for node in 0..3 {
        let name = cluster.name_at(node, "orders");
        for name in [name.clone(), format!("a{{{name}}}b")] {
            kept.push(client.lock(&name).guard().unwrap());
            for (index, other) in cluster.nodes.iter().enumerate() {
                assert_eq!(other.keys("*").contains(&name), index == node, "{name}");
            }
        }
    }
    thread::sleep(KEPT + ms(200));
    for guard in kept {
        assert!(guard.is_valid(), "{:?}", guard.lost().recv());
        guard.unlock().unwrap();
    }
    for node in &cluster.nodes {
        assert!(node.keys("*").is_empty());
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn holds_are_renewed_at_once_when_a_shard_has_another_master() {
    let cluster = Cluster::start();
    let client = client(&cluster, LONG);
    let [kept, orders] = ["kept", "orders"].map(|stem| cluster.name_at(0, stem));
    for is_planned in [true, false] {
        let guard = client.lock(&kept).guard().unwrap();
        all_works(&client.lock(&orders));
        let old = cluster.owner_of(&kept);
        cluster.nodes[old].replicate(1, &kept);
        let (_, new) = if is_planned {
            cluster.failover(&kept)
        } else {
            cluster.lose_owner(&kept)
        };
        cluster.nodes[new].cmd(&["DEL", &kept]);
        assert!(client.lock(&orders).try_lock_for(AGREEMENT).unwrap());
        client.lock(&orders).unlock().unwrap();
        let loss = guard.lost().recv_timeout(SLACK);
        let cause = loss.map(|loss| loss.cause);
        assert_eq!(cause, Ok(LossCause::Gone), "{is_planned}");
        if is_planned {
            cluster.wait_until_healthy();
        }
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn one_seed_is_enough_and_dead_ones_cost_little() {
    let cluster = Cluster::start();
    let name = cluster.name_at(2, "orders");
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let urls = cluster.urls();
    let of = |node: usize| urls[node].clone();
    for seeds in [
        vec![of(0)],
        vec![of(2)],
        // A replica of a shard that has nothing to do with it.
        vec![of(4)],
        vec![nobody.clone(), of(1)],
    ] {
        let client = Client::builder().cluster(&seeds).unwrap();
        let (took, ()) = timed(|| all_works(&client.lock(&name)));
        assert!(took < SLACK, "{took:?} with {seeds:?}");
    }
    cluster.nodes[3].freeze();
    let client = Client::builder().cluster([of(3), of(1)]).unwrap();
    let (took, ()) = timed(|| all_works(&client.lock(&name)));
    report(&format!(
        "cluster: first lock in {took:.1?}, the first seed is frozen"
    ));
    assert!(took < Duration::from_secs(2) + SLACK, "{took:?}");
    cluster.nodes[3].thaw();

    let client = Client::builder().command_timeout(ms(500));
    let client = client.cluster([nobody]).unwrap();
    let (took, result) = timed(|| client.lock(&name).try_lock());
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(took < ms(500) + SLACK, "{took:?}");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn nodes_that_do_not_answer_are_asked_behind_those_that_did() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let guide = FakeClusterNode::start();
    // They take connections, and say nothing.
    let silent: Vec<_> = (0..60)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let silent_at: Vec<_> = silent.iter().map(|it| it.local_addr().unwrap()).collect();
    guide.tell(first.addr(), &silent_at);
    let client = Client::builder().cluster([guide.url()]).unwrap();
    let lock = client.lock("orders");
    all_works(&lock);
    guide.tell(second.addr(), &silent_at);
    first.kill();
    assert!(lock.try_lock_for(AGREEMENT).unwrap());
    assert_eq!(second.int(&["EXISTS", "orders"]), 1);
    lock.unlock().unwrap();
    let asked = silent.iter().filter(|it| {
        it.set_nonblocking(true).unwrap();
        it.accept().is_ok()
    });
    let asked = asked.count();
    assert!(asked < 10, "{asked} were asked");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_node_that_does_not_know_its_host_is_where_it_was_asked() {
    let server = RedisServer::start();
    // The slot of foo is 12182.
    for host in ["?", ""] {
        let guide = FakeClusterNode::start();
        guide.redirect(12182, host, server.port());
        let client = Client::builder().cluster([guide.url()]).unwrap();
        let lock = client.lock("foo");
        assert!(lock.try_lock().unwrap(), "{host:?}");
        assert_eq!(server.int(&["EXISTS", "foo"]), 1);
        lock.unlock().unwrap();
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_pool_that_is_used_up_says_nothing_of_its_node() {
    let server = RedisServer::start();
    let guide = FakeClusterNode::start();
    guide.tell(server.addr(), &[]);
    let client = Client::builder().pool_size(1).cluster([guide.url()]);
    let client = client.unwrap();
    all_works(&client.lock("orders"));
    let asked = guide.asked();
    server.cmd(&["CLIENT", "PAUSE", "1000", "ALL"]);
    thread::scope(|scope| {
        let slow = scope.spawn(|| client.lock("orders").guard().unwrap().unlock().unwrap());
        thread::sleep(ms(100));
        let error = client.lock("others").try_lock_for(ms(100)).unwrap_err();
        assert!(matches!(error, Error::Exhausted { .. }), "{error}");
        slow.join().unwrap();
    });
    all_works(&client.lock("orders"));
    assert_eq!(guide.asked(), asked, "nobody had a reason to doubt the map");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn what_is_in_doubt_on_one_shard_does_not_wait_for_another() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let proxies = [0, 1].map(|at| Proxy::to(servers[at].addr()));
    let guide = FakeClusterNode::start();
    guide.tell_halves(proxies[0].addr(), proxies[1].addr());
    let open = || {
        Client::builder()
            .command_timeout(ms(1000))
            .watchdog_timeout(LONG)
    };
    let client = open().cluster([guide.url()]).unwrap();
    // Their slots are 5061 and 12182.
    let here = (0..8).map(|at| client.lock(&format!("a{at}{{bar}}")));
    let here: Vec<_> = here.collect();
    let there = client.lock("foo");
    there.lock().unwrap();
    let are_held = Barrier::new(here.len());
    thread::scope(|scope| {
        for lock in &here {
            let (proxy, are_held) = (&proxies[0], &are_held);
            scope.spawn(move || {
                lock.lock().unwrap();
                are_held.wait();
                proxy.black_hole();
                lock.unlock().unwrap_err();
            });
        }
    });
    // Its release is lost as well, on a shard that answers again at once.
    proxies[1].black_hole();
    there.unlock().unwrap_err();
    proxies[1].heal();
    let other = open().cluster([guide.url()]).unwrap().lock("foo");
    let (took, is_free) = timed(|| other.try_lock_for(LONG / 2).unwrap());
    assert!(is_free);
    assert!(took < SLACK * 2, "{took:?}");
    other.unlock().unwrap();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_server_that_is_no_cluster_is_told() {
    let server = crate::support::RedisServer::start();
    let client = Client::builder().cluster([server.url()]).unwrap();
    let error = client.lock("orders").try_lock().unwrap_err();
    assert!(
        error.to_string().to_lowercase().contains("cluster"),
        "{error}"
    );
    assert_eq!(server.int(&["EXISTS", "orders"]), 0);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_cluster_may_have_a_password() {
    let cluster = Cluster::with(false, Access::with(Some("canary-data")), &[]);
    let client = client(&cluster, KEPT);
    for node in 0..3 {
        all_works(&client.lock(&cluster.name_at(node, "orders")));
    }
    let holder = self::client(&cluster, LONG);
    let name = cluster.name_at(1, "orders");
    is_woken(&holder.lock(&name), &client.lock(&name), || {
        thread::sleep(ms(300))
    });
    let wrong = cluster
        .urls()
        .into_iter()
        .map(|url| url.replace("canary-data", "canary-no"));
    let wrong = Client::builder().cluster(wrong).unwrap();
    let error = wrong.lock("orders").try_lock().unwrap_err();
    assert!(matches!(error, Error::Permission { .. }), "{error:?}");
    let text = format!("{error} {error:?} {client:?} {wrong:?}");
    assert!(!text.contains("canary"), "{text}");
}

// F40

#[test]
#[ignore = "needs several servers: make topologies"]
fn rights_are_looked_for_at_each_master() {
    let cluster = Cluster::masters();
    for (node, lacks) in cluster
        .nodes
        .iter()
        .zip(["-hset", "-pexpire", "-ssubscribe"])
    {
        let all = [
            "ACL", "SETUSER", "app", "on", ">canary", "~*", "&*", "+@all", lacks,
        ];
        let _: String = node.ask(&all);
    }
    let urls = cluster.urls();
    let urls: Vec<_> = urls
        .iter()
        .map(|url| url.replace("redis://", "redis://app:canary@"))
        .collect();
    let client = Client::builder().cluster(&urls).unwrap();
    let warnings = client.check().unwrap();
    for (node, lacks) in cluster
        .nodes
        .iter()
        .zip(["+hset", "+pexpire", "+ssubscribe"])
    {
        let place = node.addr().to_string();
        let here = |it: &&HealthWarning| *it.node == *place && it.message.contains("lacks");
        let said: Vec<_> = warnings.iter().filter(here).collect();
        assert!(
            matches!(&said[..], [it] if it.message.ends_with(lacks)),
            "{place} {lacks}: {warnings:?}"
        );
    }
    // One that says nothing leaves time for the others.
    cluster.nodes[0].freeze();
    let warnings = client.check().unwrap();
    cluster.nodes[0].thaw();
    let lacks = warnings.iter().filter(|it| it.message.contains("lacks"));
    assert_eq!(lacks.count(), 2, "{warnings:?}");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_hold_moves_with_its_slot() {
    let cluster = Cluster::masters();
    let client = client(&cluster, KEPT);
    let other = self::client(&cluster, KEPT);
    let name = cluster.name_at(0, "orders");
    let lock = client.lock(&name);
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    lock.lock().unwrap();
    for to in [1, 2, 0] {
        cluster.migrate(&name, to);
        let start = Instant::now();
        while start.elapsed() < KEPT + ms(300) {
            assert!(guard.is_valid(), "on its way to {to}: {:?}", lost.recv());
            thread::sleep(ms(10));
        }
        assert!(!other.lock(&name).try_lock().unwrap());
        assert_eq!(cluster.nodes[to].int(&["EXISTS", &name]), 1);
        assert_eq!(lock.hold_count().unwrap(), 2);
    }
    lock.unlock().unwrap();
    guard.unlock().unwrap();
    all_works(&other.lock(&name));
    for node in &cluster.nodes {
        assert!(node.keys("*").is_empty());
    }
}

// F39

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_slot_that_stays_half_moved_is_served() {
    let cluster = Cluster::masters();
    let (client, other) = (client(&cluster, KEPT), client(&cluster, LONG));
    let name = cluster.name_at(0, "orders");
    let held = client.lock(&name);
    // New keys of the slot go to the receiver, with ASK.
    let fresh = format!("{{{name}}}fresh");
    let guard = held.guard().unwrap();
    let migration = cluster.begin_migration(&name, 1);
    let asked = Monitor::start(&cluster.nodes[1]);
    for _ in 0..3 {
        let lock = client.lock(&fresh);
        let second = lock.guard().unwrap();
        assert_eq!(cluster.nodes[1].keys("*fresh").len(), 1);
        assert!(!other.lock(&fresh).try_lock().unwrap());
        is_renewed(&second);
        second.unlock().unwrap();
    }
    assert!(cluster.nodes[1].keys("*fresh").is_empty());
    assert!(!asked.lines_containing("ASKING").is_empty());
    is_renewed(&guard);
    assert_eq!(cluster.nodes[0].int(&["EXISTS", &name]), 1);

    let lost = guard.lost();
    // The hold has moved, and the slot has not yet.
    migration.move_keys();
    assert_eq!(cluster.nodes[0].keys("*").len(), 0);
    let start = Instant::now();
    while start.elapsed() < KEPT * 3 / 2 {
        assert!(guard.is_valid(), "{:?}", lost.recv());
        thread::sleep(ms(10));
    }
    assert!(!other.lock(&name).try_lock().unwrap());
    held.lock().unwrap();
    assert_eq!(held.hold_count().unwrap(), 2);
    held.unlock().unwrap();
    let took = hand_over(&held, &other.lock(&name), || {
        guard.unlock().unwrap();
        thread::sleep(ms(300));
    });
    // The messages go where the slot is, so a waiter may have to look by itself.
    assert!(took < SLACK, "{took:?}");
    migration.finish();
    all_works(&held);
    all_works(&other.lock(&fresh));
    for node in &cluster.nodes {
        assert!(node.keys("*").is_empty());
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn an_unlock_where_a_slot_moves_away_is_heard() {
    let cluster = Cluster::masters();
    let (holder, waiter) = (client(&cluster, LONG), client(&cluster, LONG));
    let name = cluster.name_at(0, "orders");
    let mut times = Vec::new();
    for _ in 0..7 {
        let mut migration = None;
        // The key is at the source, and when it is gone everything else is asked for at the receiver.
        let took = hand_over(&holder.lock(&name), &waiter.lock(&name), || {
            eventually(SLACK, "the waiter listens", || {
                listeners(&cluster, &name).0 > 0
            });
            migration = Some(cluster.begin_migration(&name, 1));
        });
        migration.unwrap().abandon();
        times.push(took);
    }
    // Who hears no message looks again once a second.
    times.sort_unstable();
    assert!(times[times.len() / 2] < ms(200), "{times:?}");
    holder.lock(&name).lock().unwrap();
    let migration = cluster.begin_migration(&name, 1);
    assert!(waiter.lock(&name).force_unlock().unwrap());
    assert!(holder.lock(&name).unlock().unwrap_err().is_lost());
    migration.abandon();
    for node in &cluster.nodes {
        assert!(node.keys("*").is_empty());
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_migration_that_is_given_up_harms_nobody() {
    let cluster = Cluster::masters();
    let client = client(&cluster, KEPT);
    let name = cluster.name_at(2, "orders");
    let guard = client.lock(&name).guard().unwrap();
    let migration = cluster.begin_migration(&name, 0);
    migration.move_keys();
    is_renewed(&guard);
    migration.abandon();
    is_renewed(&guard);
    assert_eq!(cluster.nodes[2].int(&["EXISTS", &name]), 1);
    guard.unlock().unwrap();
    all_works(&client.lock(&name));
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_cluster_that_is_down_is_waited_for() {
    let cluster = Cluster::masters();
    let client = client(&cluster, PATIENT);
    let name = cluster.name_at(0, "orders");
    let lock = client.lock(&name);
    all_works(&lock);
    cluster.nodes[2].kill();
    eventually(AGREEMENT, "the others refuse", || {
        cluster.nodes[0]
            .try_cmd(&["SET", &format!("{{{name}}}x"), "1"])
            .is_err_and(|error| error.code() == Some("CLUSTERDOWN"))
    });
    let error = lock.try_lock().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("CLUSTERDOWN"), "{error}");
    let (took, result) = timed(|| lock.try_lock_for(ms(300)));
    assert!(result.unwrap_err().is_retryable());
    assert!(took >= ms(300) && took < ms(300) + SLACK, "{took:?}");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| all_works(&lock));
        thread::sleep(ms(300));
        assert!(!waiting.is_finished());
        cluster.rejoin(2);
        let (took, ()) = timed(|| waiting.join().unwrap());
        assert!(took < SLACK, "{took:?}");
    });
}

// F41

/// Holds a lock over the failover that `happens`, which returns the new master of its shard.
fn a_hold_goes_on(cluster: &Cluster, happens: impl FnOnce(&str) -> usize) {
    let (client, other) = (client(cluster, PATIENT), client(cluster, PATIENT));
    let name = cluster.name_at(1, "orders");
    let guard = client.lock(&name).guard().unwrap();
    cluster.nodes[1].replicate(1, &name);
    let new = happens(&name);
    assert!(guard.is_valid());
    assert!(!other.lock(&name).try_lock_for(ms(100)).unwrap());
    is_renewed(&guard);
    assert_eq!(cluster.nodes[new].int(&["EXISTS", &name]), 1);
    guard.unlock().unwrap();
    assert!(other.lock(&name).try_lock_for(SLACK).unwrap());
    other.lock(&name).unlock().unwrap();
    assert_eq!(cluster.nodes[new].int(&["EXISTS", &name]), 0);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_hold_survives_the_death_of_its_master() {
    let cluster = Cluster::start();
    a_hold_goes_on(&cluster, |name| cluster.lose_owner(name).1);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_hold_survives_a_planned_failover() {
    let cluster = Cluster::start();
    a_hold_goes_on(&cluster, |name| cluster.failover(name).1);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn grants_go_on_at_the_new_master() {
    let cluster = Cluster::start();
    let name = cluster.name_at(1, "orders");
    let lock = client(&cluster, LEASE).lock(&name);
    for is_planned in [true, false] {
        let (grants, over) = Grants::during(&lock, || {
            if is_planned {
                cluster.failover(&name);
            } else {
                cluster.lose_owner(&name);
            }
            Instant::now()
        });
        let first = grants.first_after(over);
        report(&format!(
            "cluster, {}: first grant {first:.1?} after the failover, {:.1?} without any",
            if is_planned { "planned" } else { "kill" },
            grants.longest_gap()
        ));
        assert!(first < Duration::from_secs(1) + SLACK, "{first:?}");
        if is_planned {
            cluster.wait_until_healthy();
        }
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_lock_that_was_not_copied_is_lost_and_its_holder_told() {
    let cluster = Cluster::start();
    let (client, other) = (client(&cluster, PATIENT), client(&cluster, PATIENT));
    let name = cluster.name_at(1, "orders");
    all_works(&client.lock(&name));
    cluster.nodes[4].freeze();
    cluster.nodes[1].drop_replicas();
    let guard = client.lock(&name).guard().unwrap();
    cluster.nodes[1].kill();
    cluster.nodes[4].thaw();
    let holder = other.lock(&name).guard().unwrap();
    let loss = guard.lost().recv_timeout(PATIENT * 2 / 3).unwrap();
    // The renewal may have come before the next holder.
    let successor = LossCause::HeldBy(holder.visitor().to_string());
    assert!([LossCause::Gone, successor].contains(&loss.cause), "{loss}");
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(holder.is_valid());
    holder.unlock().unwrap();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn an_old_master_that_comes_back_gets_nothing_of_ours() {
    let cluster = Cluster::start();
    let name = cluster.name_at(1, "orders");
    let lock = client(&cluster, KEPT).lock(&name);
    all_works(&lock);
    let (old, new) = cluster.lose_owner(&name);
    cluster.nodes[old].restart();
    let start = Instant::now();
    while start.elapsed() < ms(3000) {
        all_works(&lock);
        let seed = Client::builder()
            .cluster([cluster.nodes[old].url()])
            .unwrap();
        let guard = seed.lock(&name).guard().unwrap();
        assert_eq!(cluster.nodes[new].int(&["EXISTS", &name]), 1);
        guard.unlock().unwrap();
        thread::sleep(ms(20));
    }
    assert_eq!(cluster.nodes[new].int(&["EXISTS", &name]), 0);
}

// The messages

#[test]
#[ignore = "needs several servers: make topologies"]
fn messages_are_sharded_unless_told_otherwise() {
    let cluster = Cluster::masters();
    for sharded in [None, Some(true), Some(false)] {
        let builder = || {
            let builder = Client::builder().watchdog_timeout(LONG);
            match sharded {
                Some(sharded) => builder.sharded_pubsub(sharded),
                None => builder,
            }
        };
        let (holder, waiter) = (open(builder(), &cluster), open(builder(), &cluster));
        for node in 0..3 {
            let name = cluster.name_at(node, "orders");
            is_woken(&holder.lock(&name), &waiter.lock(&name), || {
                let expected = if sharded == Some(false) {
                    (0, 1)
                } else {
                    (1, 0)
                };
                eventually(SLACK, "the waiter listens", || {
                    listeners(&cluster, &name) == expected
                });
            });
        }
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn the_listener_moves_with_the_slot() {
    let cluster = Cluster::masters();
    for sharded in [true, false] {
        let builder = || {
            Client::builder()
                .watchdog_timeout(LONG)
                .sharded_pubsub(sharded)
        };
        let (holder, waiter) = (open(builder(), &cluster), open(builder(), &cluster));
        let name = cluster.name_at(0, if sharded { "sharded" } else { "plain" });
        is_woken(&holder.lock(&name), &waiter.lock(&name), || {
            eventually(SLACK, "the waiter listens", || {
                listeners(&cluster, &name) != (0, 0)
            });
            for to in [1, 2] {
                cluster.migrate(&name, to);
                let expected = if sharded { (1, 0) } else { (0, 1) };
                eventually(SLACK * 2, "the waiter listens at the new owner", || {
                    listeners(&cluster, &name) == expected
                });
            }
        });
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn the_listener_moves_with_the_master() {
    let cluster = Cluster::start();
    let name = cluster.name_at(0, "orders");
    for is_planned in [true, false] {
        // A client listens a little longer than it waits; these have not waited yet.
        let (holder, waiter) = (client(&cluster, LONG), client(&cluster, LONG));
        is_woken(&holder.lock(&name), &waiter.lock(&name), || {
            eventually(SLACK, "the waiter listens", || {
                listeners(&cluster, &name).0 == 1
            });
            cluster.nodes[cluster.owner_of(&name)].replicate(1, &name);
            let (_, new) = if is_planned {
                cluster.failover(&name)
            } else {
                cluster.lose_owner(&name)
            };
            eventually(SLACK * 2, "the waiter listens at the new master", || {
                let (_, listeners): (String, u32) =
                    cluster.nodes[new].ask(&["PUBSUB", "SHARDNUMSUB", &channel(&name)]);
                listeners == 1
            });
        });
        if is_planned {
            cluster.wait_until_healthy();
        }
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn waiters_on_all_shards_are_woken_by_one_subscriber() {
    let cluster = Cluster::masters();
    let (holder, waiter) = (client(&cluster, LONG), client(&cluster, LONG));
    let names: Vec<_> = (0..12)
        .map(|number| cluster.name_at(number % 3, &format!("orders{number}-")))
        .collect();
    thread::scope(|scope| {
        let handed: Vec<_> = names
            .iter()
            .map(|name| {
                let (holder, waiter) = (&holder, &waiter);
                let listening = || {
                    eventually(SLACK, "the waiter listens", || {
                        listeners(&cluster, name).0 == 1
                    });
                };
                scope.spawn(move || hand_over(&holder.lock(name), &waiter.lock(name), listening))
            })
            .collect();
        for handed in handed {
            let took = handed.join().unwrap();
            assert!(took < SLACK, "{took:?}");
        }
    });
    for node in &cluster.nodes {
        let list: String = node.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        assert!(list.lines().count() <= 2, "{list}");
    }
}

// One shard of three

#[test]
#[ignore = "needs several servers: make topologies"]
fn holds_on_a_frozen_shard_are_lost_in_time() {
    let cluster = Cluster::with(
        false,
        Access::default(),
        &["--cluster-require-full-coverage", "no"],
    );
    let client = client(&cluster, KEPT);
    let guards: Vec<_> = (0..3)
        .map(|node| {
            client
                .lock(&cluster.name_at(node, "orders"))
                .guard()
                .unwrap()
        })
        .collect();
    thread::sleep(KEPT);
    cluster.nodes[2].freeze();
    let left = guards[2].remaining_validity();
    let (took, loss) = timed(|| guards[2].lost().recv_timeout(KEPT + SLACK).unwrap());
    assert!(
        matches!(loss.cause, LossCause::Unreachable { .. }),
        "{loss}"
    );
    assert!(took + ms(20) >= left, "{took:?} of {left:?}");
    assert!(took < left + SLACK, "{took:?} of {left:?}");
    for guard in &guards[..2] {
        is_renewed(guard);
    }
    cluster.nodes[2].thaw();
    all_works(&client.lock(&cluster.name_at(2, "invoices")));
    let mut guards = guards.into_iter();
    guards.next().unwrap().unlock().unwrap();
    guards.next().unwrap().unlock().unwrap();
    assert!(guards.next().unwrap().unlock().unwrap_err().is_lost());
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_frozen_shard_costs_no_hold_elsewhere_whose_lease_is_shorter_than_a_command() {
    let cluster = Cluster::with(
        false,
        Access::default(),
        &["--cluster-require-full-coverage", "no"],
    );
    let names = [0, 1, 2].map(|node| cluster.name_at(node, "orders"));
    for is_in_use in [false, true] {
        let builder = Client::builder().command_timeout(ms(5000));
        let client = open(builder.watchdog_timeout(ms(900)), &cluster);
        // A hold there that is renewed with the others, or a connection that is made only when it is frozen.
        let frozen = client.lock(&names[2]);
        let frozen = is_in_use.then(|| frozen.guard().unwrap());
        if !is_in_use {
            assert!(!client.lock(&names[0]).is_locked().unwrap());
        }
        cluster.nodes[2].freeze();
        let kept = [0, 1].map(|node| client.lock(&names[node]).guard().unwrap());
        let end = Instant::now() + ms(2700);
        while Instant::now() < end {
            for guard in &kept {
                assert!(guard.is_valid(), "{:?}", guard.lost().try_recv());
            }
            thread::sleep(ms(5));
        }
        cluster.nodes[2].thaw();
        for guard in kept {
            guard.unlock().unwrap();
        }
        if let Some(frozen) = frozen {
            assert!(frozen.unlock().unwrap_err().is_lost());
        }
        client.shutdown();
    }
}

pub(crate) fn one_shard_of_three_frozen() {
    let cluster = Cluster::with(
        true,
        Access::default(),
        &["--cluster-require-full-coverage", "no"],
    );
    let (client, other) = (client(&cluster, KEPT), client(&cluster, KEPT));
    let kept: Vec<_> = (0..2)
        .map(|node| client.lock(&cluster.name_at(node, "kept")).guard().unwrap())
        .collect();
    let still = client.lock(&cluster.name_at(2, "kept")).guard().unwrap();
    // Found now: the fixture asks all nodes, and waits for those that are frozen.
    let busy = [0, 1].map(|node| cluster.name_at(node, "busy"));
    let wanted = cluster.name_at(2, "wanted");
    let healthy = sample(&busy, &client, &other);
    cluster.nodes[2].freeze();
    cluster.nodes[5].freeze();
    let (done, tried) = (AtomicBool::new(false), AtomicU32::new(0));
    let beside = thread::scope(|scope| {
        // The same clients want locks there as well: some wait, some only try.
        for number in 0..6 {
            let lock = [&client, &other][number % 2].lock(&wanted);
            let (done, tried) = (&done, &tried);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let taken = if number < 3 {
                        lock.try_lock()
                    } else {
                        lock.try_lock_for(ms(700))
                    };
                    assert!(taken.is_err(), "nobody grants it");
                    thread::sleep(ms(5));
                    tried.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _end = SetAtEnd(&done);
        thread::sleep(ms(1500));
        let beside = sample(&busy, &client, &other);
        for guard in &kept {
            assert!(
                guard.is_valid(),
                "a hold elsewhere was not renewed: {:?}",
                guard.lost().recv()
            );
        }
        beside
    });
    assert!(!still.is_valid());
    assert!(tried.into_inner() > 0);
    report(&format!("cluster, healthy:             {healthy}"));
    report(&format!("cluster, one of three frozen: {beside}"));
    assert!(
        beside.pair_p99 < healthy.pair_p99 * 10 + ms(50),
        "{healthy} and {beside}"
    );
    // Who hears no message looks again after a second.
    assert!(beside.wake_p99 < ms(600), "{healthy} and {beside}");
    cluster.nodes[2].thaw();
    cluster.nodes[5].thaw();
    cluster.wait_until_healthy();
    all_works(&client.lock(&wanted));
}

/// Becomes true also when the test fails, so that its threads end.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Times at the shards 0 and 1.
struct Sample {
    pair_p50: Duration,
    pair_p99: Duration,
    wake_p50: Duration,
    wake_p99: Duration,
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "lock+unlock p50 {:.1?} p99 {:.1?}, wake-up p50 {:.1?} p99 {:.1?}",
            self.pair_p50, self.pair_p99, self.wake_p50, self.wake_p99
        )
    }
}

fn sample(names: &[String; 2], holder: &Client, waiter: &Client) -> Sample {
    let at = |client: &Client, node: usize| client.lock(&names[node]);
    let percentiles = |mut times: Vec<Duration>| {
        times.sort_unstable();
        (times[times.len() / 2], times[(times.len() - 1) * 99 / 100])
    };
    let mut pairs = Vec::new();
    let locks = [at(holder, 0), at(holder, 1)];
    let start = Instant::now();
    while start.elapsed() < ms(3000) {
        for lock in &locks {
            let pair = || {
                lock.lock().unwrap();
                lock.unlock().unwrap();
            };
            pairs.push(timed(pair).0);
        }
    }
    let woken = (0..30)
        .map(|round| {
            let node = round % 2;
            hand_over(&at(holder, node), &at(waiter, node), || {
                thread::sleep(ms(10))
            })
        })
        .collect();
    let ((pair_p50, pair_p99), (wake_p50, wake_p99)) = (percentiles(pairs), percentiles(woken));
    Sample {
        pair_p50,
        pair_p99,
        wake_p50,
        wake_p99,
    }
}
