//! One node, and the nodes of a cluster, seen as the place where locks live.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::Value;

use super::*;
use crate::stores::redis::Redis;
use crate::stores::redis::tests::stub::{Request, Says, StubServer, bulk, settings};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn until(mut is_so: impl FnMut() -> bool) {
    let patience = soon();
    while !is_so() {
        assert!(Instant::now() < patience, "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A server that calls itself a master with a replica, and tells that it has all slots of a cluster.
fn server() -> StubServer {
    let server = StubServer::start(|_| None);
    let address = server.address();
    server.answer(move |request| told(request, &address));
    server
}

fn told(request: &Request, address: &str) -> Option<Says> {
    if request.is("CLUSTER SLOTS") {
        let (host, port) = address.rsplit_once(':').unwrap();
        let node = Value::Array(vec![bulk(host), Value::Int(port.parse().unwrap())]);
        let range = Value::Array(vec![Value::Int(0), Value::Int(16383), node]);
        return Some(Says::Reply(Value::Array(vec![range])));
    }
    let role = [bulk("master"), Value::Int(1), Value::Array(vec![bulk("x")])];
    request
        .is("ROLE")
        .then(|| Says::Reply(Value::Array(role.to_vec())))
}

/// The stores that lead to this server: alone, as a master with replicas, by a sentinel, and as a cluster.
fn stores(server: &StubServer) -> [Arc<Redis>; 4] {
    let (urls, settings) = ([server.url()], settings());
    [
        Redis::open(&urls[0], &settings),
        Redis::replicas(&urls, &settings),
        Redis::sentinel("m", &urls, &settings),
        Redis::cluster(&urls, &settings),
    ]
    .map(|store| Arc::new(store.unwrap()))
}

#[test]
fn what_may_take_over_and_who_watches_follows_from_the_kind_of_place() {
    let server = server();
    let of = |store: &Arc<Redis>| {
        let topology = &store.topology;
        (topology.can_fail_over(), topology.is_watched())
    };
    let expected = [(false, false), (true, false), (true, true), (true, false)];
    assert_eq!(stores(&server).each_ref().map(of), expected);
    let found = stores(&server).map(|store| store.topology.watchers(soon()).len());
    // The sentinel knows no such master, and is the only one.
    assert_eq!((found[0], found[1], found[3]), (0, 0, 0));
    assert!(found[2] > 0);
}

#[test]
fn each_node_is_talked_to_once_and_then_none_is_left() {
    let server = server();
    let [alone, _, _, cluster] = stores(&server);
    let address: Arc<str> = server.address().into();
    for (store, name) in [(alone, "the master"), (cluster, &*address)] {
        let topology = &store.topology;
        let told = topology.each(soon(), |node, _, _| Ok(node.name()));
        assert_eq!(told, [(Arc::clone(&address), Ok(Arc::clone(&address)))]);
        let next = |done: &[Arc<str>]| {
            let talk = |_: &Node, _: &mut Connection, name: &Arc<str>| Ok(Arc::clone(name));
            topology.at_next(done, done.is_empty(), soon(), talk)
        };
        let name: Arc<str> = name.into();
        assert_eq!(next(&[]), Some((Arc::clone(&name), Ok(Arc::clone(&name)))));
        assert_eq!(next(&[name]), None);
        assert_eq!(*topology.name("a"), *address);
        let with = topology.with("a", soon(), |node, _| Ok(node.name()));
        assert_eq!(with, Ok(Arc::clone(&address)));
    }
    let [alone, _, _, cluster] = stores(&server);
    assert_eq!(alone.topology.whole_name(), address);
    let whole = format!("the cluster of {address}");
    assert_eq!(*cluster.topology.whole_name(), *whole);
}

#[test]
fn a_node_gets_ready_to_renew_at_its_first_hold() {
    let server = server();
    let [alone, _, _, cluster] = stores(&server);
    for store in [alone, cluster] {
        let topology = &store.topology;
        let prepared = AtomicUsize::new(0);
        let prepare = |_: &mut Connection| {
            prepared.fetch_add(1, Ordering::Relaxed);
            true
        };
        topology.each(soon(), |_, _, _| Ok(()));
        for _ in 0..2 {
            topology.get_ready_to_renew("a", soon(), &prepare);
        }
        assert_eq!(prepared.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_channel_is_heard_and_given_up_with_its_interest() {
    let server = server();
    let [alone, _, _, cluster] = stores(&server);
    let channel: Arc<str> = "channel".into();
    for store in [alone, cluster] {
        let topology = &store.topology;
        topology.each(soon(), |_, _, _| Ok(()));
        assert!(topology.messages(&channel).is_none());
        let (_interest, is_live) = topology.listen(&channel, true);
        assert!(!is_live);
        until(|| topology.messages(&channel).is_some());
        let (_other, is_live) = topology.listen(&channel, true);
        assert!(is_live);
        let heard = topology.messages(&channel).unwrap();
        let again = topology.messages(&channel).unwrap();
        assert!(Arc::ptr_eq(&heard, &again));
        topology.close();
    }
}

#[test]
fn somebody_who_asks_for_it_is_told_of_a_takeover() {
    let (first, second) = (server(), server());
    let urls = [first.url(), second.url()];
    let store = Redis::replicas(&urls, &settings()).unwrap();
    let counted: Arc<AtomicUsize> = Arc::default();
    let counter = Arc::clone(&counted);
    store.topology.on_takeover(Box::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    let Topology::One(node) = &store.topology else {
        panic!("it is one node");
    };
    let connect = || drop(node.pool.connector().connect(soon()).unwrap());
    connect();
    first.answer(|_| None);
    connect();
    assert_eq!(counted.load(Ordering::Relaxed), 1);
}

/// Keeps an idle connection, one for renewals and one that owes an answer.
fn fill(node: &Node) {
    let connect = || node.pool.connector().connect(soon()).unwrap();
    node.pool.keep(connect());
    node.put_renewing(connect());
    node.pool.check_in_unread(connect(), 1, None, None, soon());
}

#[test]
fn the_connections_of_all_nodes_are_counted_by_what_they_do() {
    let server = server();
    let [alone, ..] = stores(&server);
    let counts = |topology: &Topology| {
        let told = topology.connections(&Traffic::default());
        (told.idle, told.late, told.is_subscriber_down)
    };
    let Topology::One(node) = &alone.topology else {
        panic!("it is one node");
    };
    assert_eq!(counts(&alone.topology), (0, 0, false));
    node.pool
        .keep(node.pool.connector().connect(soon()).unwrap());
    assert_eq!(counts(&alone.topology), (1, 0, false));
    fill(node);
    assert_eq!(counts(&alone.topology), (3, 1, false));
    // Nobody can listen there.
    server.answer(|_| Some(Says::Cut));
    let (_interest, _) = alone.topology.listen(&"channel".into(), true);
    assert!(counts(&alone.topology).2);
    alone.topology.close();
    assert_eq!(counts(&alone.topology), (0, 0, true));
}

#[test]
fn the_connections_of_a_cluster_are_those_of_its_masters_together() {
    let servers = [server(), server()];
    let halves = [0, 8192].into_iter().zip(&servers).map(|(first, server)| {
        let address = server.address();
        let (host, port) = address.rsplit_once(':').unwrap();
        let node = Value::Array(vec![bulk(host), Value::Int(port.parse().unwrap())]);
        Value::Array(vec![Value::Int(first), Value::Int(first + 8191), node])
    });
    let map = Value::Array(halves.collect());
    servers[0].answer(move |request| {
        request
            .is("CLUSTER SLOTS")
            .then(|| Says::Reply(map.clone()))
    });
    let store = Redis::cluster(&[servers[0].url()], &settings()).unwrap();
    let Topology::Cluster(cluster) = &store.topology else {
        panic!("it is a cluster");
    };
    cluster.refresh(soon()).unwrap();
    for shard in cluster.shards() {
        fill(&shard.node);
    }
    let told = store.topology.connections(&Traffic::default());
    assert_eq!((told.idle, told.late), (4, 2));
    store.topology.close();
    let told = store.topology.connections(&Traffic::default());
    assert_eq!((told.idle, told.late), (0, 0));
}
