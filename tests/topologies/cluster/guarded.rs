//! Guarded writes in a cluster: their keys have to be in the lock's slot.

use super::*;

/// No node has a data key.
#[track_caller]
fn nothing_is_written(cluster: &Cluster, keys: &[&String]) {
    for node in &cluster.nodes {
        // For slots of other nodes a node returns only this.
        let there = format!("{:?}", node.cmd(&["KEYS", "*"]));
        for key in keys {
            assert!(!there.contains(key.as_str()), "{there}");
        }
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_key_in_another_slot_is_refused_and_nothing_is_written() {
    let cluster = Cluster::masters();
    let name = cluster.name_at(0, "orders");
    let near = format!("{{{name}}}:data");
    // A key on the same node, which would be written silently, and a key on another node.
    let others = [cluster.name_at(0, "stock"), cluster.name_at(1, "stock")];
    let client = client(&cluster, LONG);
    let guard = client.lock(&name).guard().unwrap();
    for other in &others {
        let is_refused = |outcome: Result<(), Error>| match outcome.unwrap_err() {
            Error::CrossSlot { lock, key, .. } => assert_eq!((&*lock, &key), (&*name, other)),
            error => panic!("{error:?}"),
        };
        let write = |batch: &mut redlatch::Batch| {
            batch.set(&near, "1").set(other, "1");
        };
        is_refused(guard.write(write).map(drop));
        let text = "redis.call('SET', KEYS[1], '1') redis.call('SET', KEYS[2], '1')";
        is_refused(guard.eval(text, &[&near, other], &[]).map(drop));
        is_refused(client.write_fenced(&name, 1, write).map(drop));
        nothing_is_written(&cluster, &[&near, other]);
    }
    guard.unlock().unwrap();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn writes_follow_the_slot() {
    let cluster = Cluster::masters();
    let client = client(&cluster, LONG);
    let name = cluster.name_at(0, "orders");
    let data = format!("{{{name}}}:data");
    let guard = client.lock(&name).guard().unwrap();
    for (count, to) in (1..).zip([1, 2, 0]) {
        let write = |batch: &mut redlatch::Batch| {
            batch.incr_by(&data, 1);
        };
        let replies = guard.write(write).unwrap();
        assert_eq!(replies[0].as_int(), Some(2 * count - 1));
        cluster.migrate(&name, to);
        client.write_fenced(&name, count as u64, write).unwrap();
        assert_eq!(cluster.nodes[to].int(&["GET", &data]), 2 * count);
    }
    let stale = client.write_fenced(&name, 1, |_| ()).unwrap_err();
    assert!(matches!(stale, Error::Stale { newer: 3, .. }), "{stale:?}");
    guard.unlock().unwrap();
}
