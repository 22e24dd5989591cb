//! Read-write locks in a cluster: their timeout keys are in the lock's slot, and their messages arrive.

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
        // Notes on former waiters have a TTL.
        let left = left.iter().find(|key| !key.starts_with("redlatch_rw:"));
        assert_eq!(left, None, "nothing is left");
    }
}
