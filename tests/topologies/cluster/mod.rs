//! Locks in a Redis Cluster: F39 to F41 of the table in `tests/it/faults/README.md`, and where the unlock
//! messages come from.

mod databases;
mod failovers;
mod frozen_shard;
mod guarded;
mod messages;
mod sides;
mod slots;
mod survey;

pub(crate) use frozen_shard::one_shard_of_three_frozen;

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
use crate::support::{Monitor, Proxy, RedisServer, eventually, free_port, ms, product};

/// A lease that survives a failover, even on a busy machine.
const PATIENT: Duration = Duration::from_secs(15);

/// A lease longer than any test.
const LONG: Duration = Duration::from_secs(60);

fn open(builder: Builder, cluster: &Cluster) -> Client {
    builder.cluster(cluster.urls()).unwrap()
}

fn client(cluster: &Cluster, lease: Duration) -> Client {
    open(Client::builder().watchdog_timeout(lease), cluster)
}

/// The number of subscribers of `name`: sharded and plain.
fn listeners(cluster: &Cluster, name: &str) -> (u32, u32) {
    let count = |node: usize, question: &str| {
        let (_, listeners): (String, u32) =
            cluster.nodes[node].ask(&["PUBSUB", question, &channel(name)]);
        listeners
    };
    let plain = (0..cluster.nodes.len()).map(|node| count(node, "NUMSUB"));
    let sharded = match product().has_sharded_messages() {
        true => count(cluster.owner_of(name), "SHARDNUMSUB"),
        false => 0,
    };
    (sharded, plain.sum())
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
fn one_seed_is_enough_and_dead_ones_cost_little() {
    let cluster = Cluster::start();
    let name = cluster.name_at(2, "orders");
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let urls = cluster.urls();
    let of = |node: usize| urls[node].clone();
    for seeds in [
        vec![of(0)],
        vec![of(2)],
        // A replica of another shard.
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
fn silent_nodes_delay_a_new_slot_map_only_once() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let guide = FakeClusterNode::start();
    // They accept connections, and never reply.
    let silent = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let silent_at: Vec<_> = silent.iter().map(|it| it.local_addr().unwrap()).collect();
    guide.tell(first.addr(), &silent_at);
    let client = Client::builder().cluster([guide.url()]).unwrap();
    let lock = client.lock("orders");
    all_works(&lock);
    for (to, from) in [(&second, &first), (&first, &second), (&second, &first)] {
        guide.tell(to.addr(), &silent_at);
        from.cmd(&["REPLICAOF", "127.0.0.1", "1"]);
        to.cmd(&["REPLICAOF", "NO", "ONE"]);
        all_works(&lock);
    }
    let queries = silent.map(|node| {
        node.set_nonblocking(true).unwrap();
        node.incoming().take_while(Result::is_ok).count()
    });
    assert_eq!(queries, [1; 3], "a node that failed is queried last");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn in_doubt_requests_of_one_shard_wait_for_no_other() {
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
    // Its release is lost as well, on a shard that replies again at once.
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
fn a_server_that_is_no_cluster_is_reported() {
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

#[test]
#[ignore = "needs several servers: make topologies"]
fn rights_are_checked_on_each_master() {
    let cluster = Cluster::masters();
    let listens = match product().has_sharded_messages() {
        true => "-ssubscribe",
        false => "-subscribe",
    };
    for (node, lacks) in cluster.nodes.iter().zip(["-hset", "-pexpire", listens]) {
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
    let listens = listens.replace('-', "+");
    for (node, lacks) in cluster.nodes.iter().zip(["+hset", "+pexpire", &listens]) {
        let place = node.addr().to_string();
        let here = |it: &&HealthWarning| *it.node == *place && it.message.contains("lacks");
        let said: Vec<_> = warnings.iter().filter(here).collect();
        assert!(
            matches!(&said[..], [it] if it.message.contains(lacks)),
            "{place} {lacks}: {warnings:?}"
        );
    }
    // A silent node leaves time for the others.
    cluster.nodes[0].freeze();
    let warnings = client.check().unwrap();
    cluster.nodes[0].thaw();
    let lacks = warnings.iter().filter(|it| it.message.contains("lacks"));
    assert_eq!(lacks.count(), 2, "{warnings:?}");
}
