//! Slots that are migrated, half migrated or without a master: F39 and F40.

use super::*;

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
    // The hold has moved, but the slot has not yet.
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
    // Messages go to the slot's node, so a waiter may have to poll.
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
fn a_wait_for_a_semaphore_goes_on_while_its_slot_moves() {
    let cluster = Cluster::masters();
    let client = client(&cluster, KEPT);
    let name = cluster.name_at(0, "orders");
    let semaphore = client.semaphore(&name);
    assert!(semaphore.try_set(0).unwrap());
    // The permit of a dead client, behind which there are no others.
    let owners = format!("redlatch_sc:{{{name}}}");
    cluster.nodes[0].cmd(&["ZADD", &owners, "1", "1*dead:1:1"]);
    let migration = cluster.begin_migration(&name, 1);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let permits = semaphore.try_acquire_for(1, SLACK * 2).unwrap();
            permits.map(|it| it.release().unwrap())
        });
        thread::sleep(ms(1500));
        assert!(!waits.is_finished());
        migration.move_keys();
        migration.finish();
        assert!(waits.join().unwrap().is_some());
    });
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn an_unlock_in_a_migrating_slot_wakes_waiters() {
    let cluster = Cluster::masters();
    let (holder, waiter) = (client(&cluster, LONG), client(&cluster, LONG));
    let name = cluster.name_at(0, "orders");
    let mut times = Vec::new();
    for _ in 0..7 {
        let mut migration = None;
        // The key is at the source; once it is deleted, requests go to the receiver.
        let took = hand_over(&holder.lock(&name), &waiter.lock(&name), || {
            eventually(SLACK, "the waiter listens", || {
                listeners(&cluster, &name) != (0, 0)
            });
            migration = Some(cluster.begin_migration(&name, 1));
        });
        migration.unwrap().abandon();
        times.push(took);
    }
    // A waiter without messages polls once a second.
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
fn an_aborted_slot_migration_loses_no_hold() {
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
