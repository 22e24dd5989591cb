//! Unlock messages in a cluster, and which node publishes them.

use super::*;

/// The settings of sharded messages that the server permits.
fn shardings() -> &'static [bool] {
    match product().has_sharded_messages() {
        true => &[false, true],
        false => &[false],
    }
}

/// The subscribers, sharded and plain, while one client waits.
fn one_listener() -> (u32, u32) {
    match product().has_sharded_messages() {
        true => (1, 0),
        false => (0, 1),
    }
}

// The messages

#[test]
#[ignore = "needs several servers: make topologies"]
fn messages_are_sharded_by_default() {
    let cluster = Cluster::masters();
    let can_shard = product().has_sharded_messages();
    for sharded in [None, Some(true), Some(false)] {
        if sharded == Some(true) && !can_shard {
            continue;
        }
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
                let expected = if sharded == Some(false) || !can_shard {
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
    for &sharded in shardings() {
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
        // A client stays subscribed slightly longer than it waits; these have not waited yet.
        let (holder, waiter) = (client(&cluster, LONG), client(&cluster, LONG));
        is_woken(&holder.lock(&name), &waiter.lock(&name), || {
            eventually(SLACK, "the waiter listens", || {
                listeners(&cluster, &name) == one_listener()
            });
            cluster.nodes[cluster.owner_of(&name)].replicate(1, &name);
            let (_, new) = if is_planned {
                cluster.failover(&name)
            } else {
                cluster.lose_owner(&name)
            };
            eventually(SLACK * 2, "the waiter listens at the new master", || {
                let question = match product().has_sharded_messages() {
                    true => "SHARDNUMSUB",
                    false => "NUMSUB",
                };
                let (_, listeners): (String, u32) =
                    cluster.nodes[new].ask(&["PUBSUB", question, &channel(&name)]);
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
                        listeners(&cluster, name) == one_listener()
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
