//! A demoted master behind a name that resolves to the new one, and a server of the wrong kind: F20.

use std::net::SocketAddr;

use redlatch::Reply;

use super::*;

/// A master and its replica, behind a name that resolves to the master.
struct Pair {
    name: Proxy,
    old: RedisServer,
    new: RedisServer,
}

fn follow(server: &RedisServer, master: &RedisServer) {
    server.cmd(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    eventually(ms(10_000), "the replica is linked", || {
        server.info("master_link_status").as_deref() == Some("up")
            && server.info("slave_repl_offset") == master.info("master_repl_offset")
    });
}

impl Pair {
    fn start() -> Pair {
        let start = || RedisServer::with(&["--repl-diskless-sync-delay", "0"]);
        let (old, new) = (start(), start());
        follow(&new, &old);
        Pair {
            name: Proxy::to(old.addr()),
            old,
            new,
        }
    }

    /// Promotes the replica, moves the name, and demotes the old master.
    fn take_over(&self) {
        eventually(ms(10_000), "the replica has it all", || {
            self.new.info("slave_repl_offset") == self.old.info("master_repl_offset")
        });
        self.new.cmd(&["REPLICAOF", "NO", "ONE"]);
        self.name.lead_to(self.new.addr());
        self.old
            .cmd(&["REPLICAOF", "127.0.0.1", &self.new.port().to_string()]);
    }
}

/// Runs `work` with a client that has several connections to the old master, after the promotion of the new one.
#[track_caller]
fn works_after_a_promotion(work: impl FnOnce(&Client, &Lock, &Guard)) {
    let pair = Pair::start();
    let client = keeping_at(pair.name.addr());
    let lock = client.lock("orders");
    thread::scope(|scope| {
        for thread in 0..6 {
            let client = &client;
            scope.spawn(move || client.lock(&format!("n{thread}")).run(|_| ()).unwrap());
        }
    });
    let guard = lock.guard().unwrap();
    pair.take_over();
    ends_within(ms(2000), || work(&client, &lock, &guard));
    assert!(guard.is_valid() || !lock.is_held_by_current_thread().unwrap());
}

fn keeping_at(addr: SocketAddr) -> Client {
    let url = format!("redis://{addr}");
    Client::builder()
        .watchdog_timeout(LEASE * 4)
        .open(&url)
        .unwrap()
}

#[test]
fn each_request_uses_the_current_address_of_the_name() {
    works_after_a_promotion(|_, lock, _| lock.unlock().unwrap());
    works_after_a_promotion(|_, lock, _| assert!(lock.try_lock().unwrap()));
    works_after_a_promotion(|client, _, _| assert!(client.lock("more").try_lock().unwrap()));
    works_after_a_promotion(|_, lock, _| assert!(lock.force_unlock().unwrap()));
    works_after_a_promotion(|client, _, _| {
        let semaphore = client.semaphore("permits");
        assert!(semaphore.try_set(2).unwrap());
        drop(semaphore.try_acquire(1).unwrap().unwrap());
    });
    works_after_a_promotion(|_, _, guard| {
        let replies = guard.write(|batch| {
            batch.set("data", "x");
        });
        assert_eq!(replies.unwrap().len(), 1);
    });
    works_after_a_promotion(|_, _, guard| {
        let script = "redis.call('GET', KEYS[1]) return redis.call('INCR', KEYS[1])";
        let reply = guard.eval(script, &["data"], &[]).unwrap();
        assert_eq!(reply, Reply::Int(1));
    });
}

#[test]
fn waiters_and_renewals_move_with_the_name() {
    let pair = Pair::start();
    let client = keeping_at(pair.name.addr());
    let kept = client.lock("kept");
    let kept = kept.guard().unwrap();
    let holder = client.lock("orders").owned().unwrap();
    let lock = client.lock("orders");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
            lock.unlock().unwrap();
        });
        somebody_waits(&pair.old, "orders");
        pair.take_over();
        eventually(LEASE * 4, "the waiter listens at the new master", || {
            let channels = pair.new.cmd(&["PUBSUB", "CHANNELS"]);
            matches!(channels, redis::Value::Array(channels) if !channels.is_empty())
        });
        holder.unlock().unwrap();
        ends_within(ms(750), || waiting.join().unwrap());
    });
    thread::sleep(LEASE * 5);
    assert!(kept.is_valid(), "it is renewed at the new master");
}

#[test]
fn a_node_of_a_cluster_is_refused_at_the_first_contact() {
    let node = RedisServer::with(&["--cluster-enabled", "yes"]);
    let slots: Vec<String> = (0..16_384).map(|slot: u32| slot.to_string()).collect();
    let mut words = vec!["CLUSTER", "ADDSLOTS"];
    words.extend(slots.iter().map(String::as_str));
    node.cmd(&words);
    eventually(ms(10_000), "the node serves", || {
        node.try_cmd(&["SET", "x", "y"]).is_ok()
    });
    let url = node.url();
    let clients = [
        quick().open(&url).unwrap(),
        quick().master_replicas([&url]).unwrap(),
    ];
    for client in clients {
        let lock = client.lock("orders");
        for error in [
            ends_within(ms(500), || fails(lock.lock(), Class::Config)),
            ends_within(ms(500), || fails(lock.try_lock(), Class::Config)),
        ] {
            let text = error.to_string();
            assert!(text.contains("Builder::cluster"), "{text}");
            assert!(text.contains(&node.port().to_string()), "{text}");
        }
    }
    let cluster = quick().cluster([&url]).unwrap();
    cluster.lock("orders").run(|_| ()).unwrap();
}
