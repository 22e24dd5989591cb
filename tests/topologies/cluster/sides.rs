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

/// A hold as its thread may have left it in the server: its field stands, and its time is over.
fn bury(cluster: &Cluster, name: &str) {
    cluster.nodes[0].cmd(&["HSET", name, "dead:1:1", "1"]);
}

/// Puts there what a script of either side needs to run where the slot is half moved: with a key missing it is not begun.
fn with_all_keys(cluster: &Cluster, name: &str) {
    let node = &cluster.nodes[0];
    let notes = format!("redlatch_rw:{{{name}}}");
    node.cmd(&["ZADD", &notes, "1", "dead:1:1"]);
    let fields: Vec<String> = redis::from_redis_value(node.cmd(&["HKEYS", name])).unwrap();
    for field in fields.iter().filter(|it| it.ends_with(":write")) {
        let own = format!("{{{name}}}:{field}:rwlock_timeout:1");
        node.cmd(&["SET", &own, "1", "PX", "60000"]);
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_hold_ends_whole_or_not_at_all_while_its_slot_moves() {
    let cluster = Cluster::masters();
    let [one, two] = [(); 2].map(|()| client(&cluster, LONG));
    for is_writer in [false, true] {
        let name = cluster.name_at(0, "prices");
        let [lock, other] = [&one, &two].map(|client| client.read_write_lock(&name));
        let side = if is_writer { lock.write() } else { lock.read() };
        let guard = side.guard().unwrap();
        bury(&cluster, &name);
        with_all_keys(&cluster, &name);
        let node = &cluster.nodes[0];
        let before = node.cmd(&["HGETALL", &name]);
        let migration = cluster.begin_migration(&name, 1);
        guard.unlock().unwrap_err();
        assert_eq!(node.cmd(&["HGETALL", &name]), before, "nothing was done");
        migration.abandon();
        // It is given back in the background, and those who wait hear of it.
        let (took, ()) = timed(|| other.write().run(|_| ()).unwrap());
        assert!(took < LONG / 2, "{took:?}");
        one.read_write_lock(&name).read().run(|_| ()).unwrap();
        node.cmd(&["DEL", &name]);
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_level_is_given_back_whole_or_not_at_all_while_its_slot_moves() {
    let cluster = Cluster::masters();
    let client = client(&cluster, LONG);
    let name = cluster.name_at(0, "prices");
    let lock = client.read_write_lock(&name).read();
    let guard = lock.guard().unwrap();
    lock.lock().unwrap();
    bury(&cluster, &name);
    with_all_keys(&cluster, &name);
    let node = &cluster.nodes[0];
    let before = node.cmd(&["HGETALL", &name]);
    let migration = cluster.begin_migration(&name, 1);
    lock.unlock().unwrap_err();
    assert_eq!(node.cmd(&["HGETALL", &name]), before, "nothing was done");
    migration.abandon();
    guard.unlock().unwrap();
    client.read_write_lock(&name).write().run(|_| ()).unwrap();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_reader_whose_time_key_has_not_moved_yet_is_there() {
    let cluster = Cluster::masters();
    let [one, two] = [(); 2].map(|()| client(&cluster, LONG));
    let (source, receiver) = (&cluster.nodes[0], &cluster.nodes[1]);
    for gives_back_all in [false, true] {
        let name = cluster.name_at(0, &format!("prices{gives_back_all}"));
        let theirs = two.read_write_lock(&name).read().owned().unwrap();
        let fields: Vec<String> = redis::from_redis_value(source.cmd(&["HKEYS", &name])).unwrap();
        let field = fields.iter().find(|it| *it != "mode").unwrap();
        let lock = one.read_write_lock(&name).read();
        lock.lock().unwrap();
        if !gives_back_all {
            lock.lock().unwrap();
        }
        with_all_keys(&cluster, &name);
        let migration = cluster.begin_migration(&name, 1);
        let time_key = format!("{{{name}}}:{field}:rwlock_timeout:1");
        let keys = source.keys("*").into_iter().filter(|it| *it != time_key);
        keys.for_each(|key| migration.move_key(&key));
        lock.unlock().unwrap_err();
        migration.move_keys();
        migration.finish();
        assert_eq!(receiver.int(&["HEXISTS", &name, field]), 1, "it goes on");
        let writer = one.read_write_lock(&name).write();
        assert!(!elsewhere(|| writer.try_lock_for(ms(300)).unwrap()));
        assert!(theirs.is_valid());
        theirs.unlock().unwrap();
    }
}
