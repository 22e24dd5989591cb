//! Read-write locks in a cluster: their time keys are in the slot of the lock, and their messages arrive.

use super::*;

#[test]
#[ignore = "needs several servers: make topologies"]
fn both_sides_of_a_read_write_lock_work_on_each_shard() {
    let cluster = Cluster::masters();
    let [one, two] = [(); 2].map(|()| client(&cluster, LONG));
    for shard in 0..3 {
        let name = cluster.name_at(shard, "prices");
        let [lock, other] = [&one, &two].map(|client| client.read_write_lock(&name));
        let writing = lock.write().guard().unwrap();
        let reading = lock.read().guard().unwrap();
        assert!(!other.read().try_lock().unwrap() && !other.write().try_lock().unwrap());
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                other.read().lock().unwrap();
                let now = Instant::now();
                other.read().unlock().unwrap();
                now
            });
            thread::sleep(ms(400));
            let freed = Instant::now();
            writing.unlock().unwrap();
            let took = waits.join().unwrap().duration_since(freed);
            assert!(took < SLACK, "{took:?}");
        });
        assert!(!other.write().try_lock().unwrap());
        reading.unlock().unwrap();
        is_woken(&lock.write(), &other.write(), || ());
        is_woken(&lock.read(), &other.write(), || ());
        is_woken(&lock.write(), &other.read(), || ());
    }
    for node in &cluster.nodes {
        let left: Vec<String> = redis::from_redis_value(node.cmd(&["KEYS", "*"])).unwrap();
        // Notes on those who waited end by themselves.
        let left = left.iter().find(|key| !key.starts_with("redlatch_rw:"));
        assert_eq!(left, None, "nothing is left");
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn holds_of_both_sides_are_renewed_on_several_shards_at_once() {
    let cluster = Cluster::masters();
    let client = client(&cluster, LEASE);
    let locks = [0, 1, 2].map(|shard| {
        let name = cluster.name_at(shard, "prices");
        client.read_write_lock(&name)
    });
    let guards: Vec<_> = locks
        .iter()
        .flat_map(|lock| [lock.write(), lock.read()])
        .map(|side| side.guard().unwrap())
        .collect();
    for guard in &guards {
        is_renewed(guard);
    }
    for guard in guards {
        guard.unlock().unwrap();
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn readers_and_writers_take_turns_on_each_shard_and_behind_a_takeover() {
    let cluster = Cluster::start();
    let [one, two] = [(); 2].map(|()| client(&cluster, LONG));
    for shard in 0..3 {
        let name = cluster.name_at(shard, "prices");
        let [lock, other] = [&one, &two].map(|client| client.read_write_lock(&name));
        let reading = lock.read().guard().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| other.write().run(|_| thread::sleep(ms(200))).unwrap());
            thread::sleep(ms(400));
            assert!(!elsewhere(|| lock.read().try_lock().unwrap()), "its turn");
            if shard == 0 {
                // What the new master has not heard of is noted again.
                cluster.nodes[0].replicate(1, &name);
                let (_, new) = cluster.failover(&name);
                cluster.nodes[new].cmd(&["DEL", &format!("redlatch_rw:{{{name}}}")]);
                eventually(SLACK * 4, "it is its turn again", || {
                    let taken = elsewhere(|| {
                        let taken = lock.read().try_lock();
                        if taken.as_ref().is_ok_and(|taken| *taken) {
                            lock.read().unlock().unwrap();
                        }
                        taken
                    });
                    taken.is_ok_and(|taken| !taken)
                });
            }
            let reads = scope.spawn(|| {
                other
                    .read()
                    .run(|_| assert!(!lock.write().is_locked().unwrap()))
                    .unwrap();
            });
            thread::sleep(ms(100));
            reading.unlock().unwrap();
            waits.join().unwrap();
            reads.join().unwrap();
        });
    }
}
