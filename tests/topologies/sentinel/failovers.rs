//! Failovers by Sentinel, and old masters that return: F35 to F37.

use super::*;

/// Holds a lock during the failover by `happens`, from one node to another.
fn a_hold_goes_on(set: &Sentinels, happens: impl FnOnce() -> (usize, usize)) {
    let client = client(set, PATIENT);
    let lock = client.lock("orders");
    let other = self::client(set, PATIENT).lock("orders");
    let guard = lock.guard().unwrap();
    set.nodes[set.master()].replicate(2, "orders");
    happens();
    // A busy machine may cause another failover, so the master is looked up each time.
    let at_master = |words: &[&str]| set.nodes[set.master()].int(words);
    assert!(guard.is_valid());
    assert!(!other.try_lock_for(ms(100)).unwrap());
    is_renewed(&guard);
    assert!(at_master(&["PTTL", "orders"]) > 0);
    assert!(lock.is_held_by_current_thread().unwrap());
    guard.unlock().unwrap();
    assert!(other.try_lock_for(SLACK).unwrap());
    other.unlock().unwrap();
    assert_eq!(at_master(&["EXISTS", "orders"]), 0);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_hold_survives_the_death_of_the_master() {
    let set = Sentinels::start();
    a_hold_goes_on(&set, || set.lose_master());
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_hold_survives_a_planned_failover() {
    let set = Sentinels::start();
    a_hold_goes_on(&set, || set.failover());
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn grants_go_on_at_the_new_master() {
    let set = Sentinels::start();
    let lock = client(&set, LEASE).lock("orders");
    for is_planned in [false, true] {
        let (grants, over) = Grants::during(&lock, || {
            if is_planned {
                set.failover();
            } else {
                set.lose_master();
            }
            Instant::now()
        });
        let first = grants.first_after(over);
        report(&format!(
            "sentinel, {}: first grant {first:.1?} after the failover, {:.1?} without any",
            if is_planned { "planned" } else { "kill" },
            grants.longest_gap()
        ));
        assert!(first < Duration::from_secs(1) + SLACK, "{first:?}");
        if !is_planned {
            set.rejoin(0);
            set.wait_until_settled();
        }
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn waiters_are_notified_of_an_unlock_at_the_new_master() {
    let set = Sentinels::start();
    let (holder, waiter) = (client(&set, LONG), client(&set, LONG));
    for is_planned in [true, false] {
        is_woken(&holder.lock("orders"), &waiter.lock("orders"), || {
            set.nodes[set.master()].replicate(2, "orders");
            let (_, new) = if is_planned {
                set.failover()
            } else {
                set.lose_master()
            };
            eventually(SLACK * 2, "the waiter listens at the new master", || {
                let (_, listeners): (String, u32) =
                    set.nodes[new].ask(&["PUBSUB", "NUMSUB", &channel("orders")]);
                listeners > 0
            });
        });
        if is_planned {
            set.wait_until_settled();
        }
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_lock_that_was_not_replicated_is_reported_lost() {
    let set = Sentinels::start();
    let lease = Duration::from_secs(30);
    let client = client(&set, lease);
    let other = self::client(&set, lease).lock("orders");
    for replica in &set.nodes[1..] {
        replica.freeze();
    }
    set.nodes[0].drop_replicas();
    // The replicas count as missing after a second.
    let guard = client.lock("orders").guard().unwrap();
    set.nodes[0].kill();
    for replica in &set.nodes[1..] {
        replica.thaw();
    }
    set.wait_for_master_after(0);
    let lost = guard.lost();
    let holder = other.guard().unwrap();
    // The renewal comes after a third of the lease; the holder of this long lease need not wait for its end.
    let loss = lost.recv_timeout(lease * 2 / 3).unwrap();
    // The renewal may have come before the next holder.
    let successor = LossCause::HeldBy(holder.visitor().to_string());
    assert!([LossCause::Gone, successor].contains(&loss.cause), "{loss}");
    assert!(!guard.is_valid());
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(holder.is_valid());
    holder.unlock().unwrap();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_returning_old_master_gets_no_requests() {
    let set = Sentinels::start();
    let old_client = client(&set, KEPT);
    let kept = old_client.lock("kept").guard().unwrap();
    set.nodes[0].replicate(2, "kept");
    let (old, new) = set.lose_master();
    set.nodes[old].restart();
    // The sentinels demote it after two or ten seconds; here it stays a master.
    set.nodes[old].cmd(&["ACL", "SETUSER", "default", "-slaveof", "-replicaof"]);
    let monitor = Monitor::start(&set.nodes[old]);
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(10) {
        for client in [&client(&set, KEPT), &old_client] {
            let (holder, waiter) = (client.lock("orders"), old_client.lock("orders"));
            all_works(&holder);
            if rounds % 4 == 0 {
                hand_over(&holder, &waiter, || {});
            }
        }
        rounds += 1;
        thread::sleep(ms(50));
    }
    assert!(set.nodes[old].is_master());
    let heard = monitor.lines();
    report(&format!(
        "sentinel: an old master was back for {rounds} rounds without it"
    ));
    assert!(rounds > 3, "too short to prove anything");
    assert!(!heard.is_empty(), "nobody has looked");
    let ours: Vec<_> = heard
        .iter()
        .filter(|line| {
            let line = line.to_lowercase();
            !line.contains("__sentinel__")
                && ["eval", "subscribe", "publish", "orders", "kept"]
                    .iter()
                    .any(|word| line.contains(word))
        })
        .collect();
    assert!(ours.is_empty(), "{ours:#?}");
    assert!(kept.is_valid() || set.nodes[new].int(&["EXISTS", "kept"]) == 0);
}

/// Unlocks a lock that the old master may have granted, and that the new one may not have.
#[track_caller]
fn is_unlocked_or_lost(lock: &Lock) {
    if let Err(error) = lock.unlock() {
        assert!(error.is_lost(), "{error}");
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_partitioned_master_is_left_though_it_answers() {
    let set = Sentinels::options().watcher().start();
    let builder = || {
        Client::builder()
            .watchdog_timeout(PATIENT)
            .credentials("default", "canary-data")
    };
    let client = open(builder(), &set);
    let guard = client.lock("kept").guard().unwrap();
    all_works(&client.lock("orders"));
    set.nodes[0].replicate(2, "kept");
    set.cut_off(0);
    let new = set.wait_for_master_after(0);
    let over = Instant::now();
    assert!(set.nodes[0].is_master());
    // Its connections are open and work; only the sentinels' event ends them.
    eventually(PATIENT / 3 + SLACK, "the new master is used", || {
        let lock = client.lock("orders");
        lock.lock().unwrap();
        let is_there = set.nodes[new].int(&["EXISTS", "orders"]) == 1;
        is_unlocked_or_lost(&lock);
        is_there
    });
    report(&format!(
        "sentinel: a master that was cut off was left {:.1?} after the failover",
        over.elapsed()
    ));
    is_renewed(&guard);
    guard.unlock().unwrap();
    // A second failover by the sentinels is not the client's fault.
    if set.master() == new {
        let keys: Vec<_> = set.nodes.iter().map(|node| node.keys("*")).collect();
        let logs: Vec<_> = set
            .sentinels
            .iter()
            .map(|sentinel| sentinel.log())
            .collect();
        assert_eq!(
            set.nodes[new].int(&["EXISTS", "kept"]),
            0,
            "{keys:?} {new} {logs:#?}"
        );
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn messages_of_sentinels_are_enough_to_leave_a_master() {
    let set = Sentinels::options().watcher().start();
    // A third of this lease is longer than the test.
    let client = open(
        Client::builder()
            .watchdog_timeout(Duration::from_secs(600))
            .credentials("default", "canary-data"),
        &set,
    );
    let lock = client.lock("orders");
    all_works(&lock);
    eventually(SLACK, "it listens to a sentinel", || {
        set.sentinels
            .iter()
            .any(|sentinel| sentinel.listeners() > 0)
    });
    set.cut_off(0);
    let new = set.wait_for_master_after(0);
    eventually(SLACK, "the new master is used", || {
        lock.lock().unwrap();
        let is_there = set.nodes[new].int(&["EXISTS", "orders"]) == 1;
        is_unlocked_or_lost(&lock);
        is_there
    });
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn holds_are_renewed_at_once_after_a_failover() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let (client, sentinels) = sentinels_reporting(LONG, [(&old, 1), (&old, 1), (&old, 1)]);
    let holds = ["a", "b", "c"].map(|name| client.lock(name).guard().unwrap());
    let fixed = client.lock("fixed").with_lease_time(LONG).guard().unwrap();
    let watch = Monitor::start(&new);
    for sentinel in &sentinels {
        sentinel.name(new.addr(), 2);
    }
    old.cmd(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    // Every request goes to the new master, which has none of the holds. Their renewal is 20 seconds away.
    all_works(&client.lock("orders"));
    // A hold with a fixed lease is notified, too.
    for hold in holds.iter().chain([&fixed]) {
        let loss = hold.lost().recv_timeout(SLACK).unwrap();
        assert_eq!(loss.cause, LossCause::Gone);
    }
    // One request for all of them, and one for each missing hold.
    let asked = watch.lines_containing("\"EVAL");
    let renewals: Vec<_> = asked.iter().filter(|it| it.contains("\"b\"")).collect();
    assert_eq!(renewals.len(), 2, "{renewals:#?}");
    for name in ["\"a\"", "\"c\""] {
        assert!(renewals[0].contains(name), "{renewals:#?}");
    }
}
