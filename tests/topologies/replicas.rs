//! Locks on a master with replicas at fixed addresses: F20, F21, F31 and F35 of the table of faults, and grants that wait for
//! replicas.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error, LossCause};

use crate::backends::{Grants, KEPT, SLACK, all_works, channel, elsewhere, is_woken, timed};
use crate::report;
use crate::support::topology_fixtures::{AGREEMENT, Cluster, Replicas};
use crate::support::{RedisServer, eventually, ms, product};

/// A lease longer than any test.
const LONG: Duration = Duration::from_secs(60);

fn open(builder: Builder, set: &Replicas) -> Client {
    builder.master_replicas(set.urls()).unwrap()
}

fn client(set: &Replicas, lease: Duration) -> Client {
    open(Client::builder().watchdog_timeout(lease), set)
}

/// A client whose grants wait for this many replicas.
fn waiting_for(set: &Replicas, replicas: u32, lease: Duration) -> Client {
    let builder = Client::builder().watchdog_timeout(lease);
    open(builder.wait_replicas(replicas as _, ms(300)), set)
}

#[track_caller]
fn not_replicated<T: std::fmt::Debug>(result: Result<T, Error>, by: usize, of: usize) {
    match result.unwrap_err() {
        Error::NotReplicated {
            lock,
            acknowledged,
            wanted,
            ..
        } => {
            assert!(lock.contains("orders"), "{lock}");
            assert_eq!((acknowledged as usize, wanted as usize), (by, of));
        }
        error => panic!("{error:?}"),
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn the_master_is_found_at_any_position() {
    let set = Replicas::start(2);
    for first in 0..3 {
        let mut urls = set.urls();
        urls.rotate_left(first);
        let client = Client::builder().master_replicas(urls).unwrap();
        let guard = client.lock("orders").guard().unwrap();
        assert_eq!(set.nodes[0].int(&["EXISTS", "orders"]), 1);
        guard.unlock().unwrap();
    }
    let error = Client::builder()
        .master_replicas(&set.urls()[1..])
        .unwrap()
        .lock("orders")
        .try_lock()
        .unwrap_err();
    assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
    assert!(error.to_string().contains("master"), "{error}");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_master_that_became_a_replica_is_left() {
    let set = Replicas::start(2);
    let client = client(&set, Duration::from_secs(15));
    let lock = client.lock("orders");
    let guard = client.lock("kept").guard().unwrap();
    all_works(&lock);
    set.nodes[0].replicate(2, "kept");
    // The connection stays open: the server replies READONLY.
    let (grants, over) = Grants::during(&lock, || {
        thread::sleep(ms(100));
        set.switch_to(1);
        Instant::now()
    });
    let first = grants.first_after(over);
    report(&format!(
        "replicas: first grant {first:.1?} after the master was switched, {:.1?} without any",
        grants.longest_gap()
    ));
    assert!(first < SLACK, "{first:?}");
    let held = lock.guard().unwrap();
    assert_eq!(set.nodes[1].int(&["EXISTS", "orders"]), 1);
    held.unlock().unwrap();
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    assert_eq!(set.nodes[1].int(&["EXISTS", "kept"]), 0);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn waiters_follow_a_switched_master() {
    let set = Replicas::start(1);
    let (holder, waiter) = (client(&set, LONG), client(&set, LONG));
    is_woken(&holder.lock("orders"), &waiter.lock("orders"), || {
        thread::sleep(ms(200));
        set.nodes[0].replicate(1, "orders");
        set.switch_to(1);
        set.follow(0, 1);
        // The client has to send a request to find out.
        all_works(&waiter.lock("invoices"));
        all_works(&holder.lock("invoices"));
        eventually(SLACK, "the waiter listens at the new master", || {
            let (_, listeners): (String, u32) =
                set.nodes[1].ask(&["PUBSUB", "NUMSUB", &channel("orders")]);
            listeners > 0
        });
    });
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_dead_master_is_waited_for_until_another_is_promoted() {
    let set = Replicas::start(1);
    let client = client(&set, KEPT);
    let lock = client.lock("orders");
    all_works(&lock);
    set.nodes[0].kill();
    let error = lock.try_lock().unwrap_err();
    assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| all_works(&lock));
        thread::sleep(ms(700));
        assert!(!waiting.is_finished());
        set.promote(1);
        let (took, ()) = timed(|| waiting.join().unwrap());
        assert!(took < SLACK, "{took:?}");
    });
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_master_without_its_replicas_is_waited_for() {
    let set = Replicas::with(
        1,
        &[
            "--min-replicas-to-write",
            "1",
            "--min-replicas-max-lag",
            "1",
        ],
    );
    let client = client(&set, KEPT);
    let lock = client.lock("orders");
    all_works(&lock);
    set.nodes[1].freeze();
    eventually(SLACK * 2, "the master refuses", || {
        set.nodes[0].try_cmd(&["SET", "key", "1"]).is_err()
    });
    if product().is_before_7() {
        // Scripts can still write.
        return all_works(&lock);
    }
    let error = lock.try_lock().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
    let waited = elsewhere(|| {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| all_works(&lock));
            thread::sleep(ms(300));
            assert!(!waiting.is_finished());
            set.nodes[1].thaw();
            timed(|| waiting.join().unwrap()).0
        })
    });
    assert!(waited < SLACK * 2, "{waited:?}");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_replica_that_has_lost_its_master_is_no_master() {
    let set = Replicas::with(1, &["--replica-serve-stale-data", "no"]);
    let lock = client(&set, KEPT).lock("orders");
    all_works(&lock);
    set.nodes[0].kill();
    eventually(SLACK, "the replica has noticed", || {
        set.nodes[1]
            .try_cmd(&["GET", "key"])
            .is_err_and(|error| error.code() == Some("MASTERDOWN"))
    });
    // Some requests may be sent on a closed connection, with an unknown outcome.
    eventually(SLACK, "it is known that nobody is asked", || {
        let error = lock.try_lock().unwrap_err();
        assert!(error.is_retryable() || error.is_ambiguous(), "{error:?}");
        !error.is_ambiguous()
    });
    set.nodes[0].restart();
    all_works(&lock);
}

// F35

#[test]
#[ignore = "needs several servers: make topologies"]
fn without_wait_a_failover_may_lose_a_lock_and_reports_it() {
    let set = Replicas::start(1);
    let lease = Duration::from_secs(6);
    let (client, other) = (client(&set, lease), client(&set, lease));
    set.nodes[1].freeze();
    set.nodes[0].drop_replicas();
    let guard = client.lock("orders").guard().unwrap();
    set.nodes[0].kill();
    set.nodes[1].thaw();
    set.promote(1);
    let holder = other.lock("orders").guard().unwrap();
    let loss = guard.lost().recv_timeout(lease / 3 + SLACK).unwrap();
    // The renewal may have come before the next holder.
    let successor = LossCause::HeldBy(holder.visitor().to_string());
    assert!([LossCause::Gone, successor].contains(&loss.cause), "{loss}");
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(holder.is_valid());
    holder.unlock().unwrap();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_replicated_grant_survives_the_failover() {
    let set = Replicas::start(1);
    let lease = Duration::from_secs(10);
    let client = waiting_for(&set, 1, lease);
    let other = self::client(&set, lease).lock("orders");
    let guard = client.lock("orders").guard().unwrap();
    set.nodes[0].kill();
    set.promote(1);
    assert!(!other.try_lock_for(ms(300)).unwrap());
    assert!(guard.is_valid());
    // This server has no replicas, so the unlock is all that can be done there. It may have gone to the dead master
    // first, and then runs in the background.
    if let Err(error) = guard.unlock() {
        assert!(error.is_ambiguous(), "{error}");
    }
    assert!(other.try_lock_for(SLACK).unwrap());
}

// WAIT

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_grant_on_too_few_replicas_is_undone() {
    let set = Replicas::start(2);
    let lock = waiting_for(&set, 2, LONG).lock("orders");
    all_works(&lock);
    set.nodes[2].freeze();
    let (took, result) = timed(|| lock.try_lock());
    not_replicated(result, 1, 2);
    assert!(took >= ms(300), "it waits for the replica: {took:?}");
    assert!(took < ms(300) + SLACK, "{took:?}");
    for node in [0, 1] {
        eventually(SLACK, "nothing is left", || {
            set.nodes[node].int(&["EXISTS", "orders"]) == 0
        });
    }
    assert!(!lock.is_held_by_current_thread().unwrap());
    not_replicated(lock.try_lock_for(ms(200)), 1, 2);
    not_replicated(waiting_for(&set, 3, LONG).lock("orders").try_lock(), 1, 3);
    set.nodes[2].thaw();
    all_works(&lock);
    not_replicated(waiting_for(&set, 3, LONG).lock("orders").try_lock(), 2, 3);
    assert_eq!(set.nodes[0].int(&["EXISTS", "orders"]), 0);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn an_undone_grant_wakes_the_waiters() {
    let set = Replicas::start(1);
    let strict = waiting_for(&set, 1, LONG).lock("orders");
    let plain = client(&set, LONG).lock("orders");
    set.nodes[1].freeze();
    for _ in 0..5 {
        thread::scope(|scope| {
            let trying = scope.spawn(|| not_replicated(strict.try_lock(), 0, 1));
            thread::sleep(ms(100));
            // It may find the lock held, and must not wait for the end of a lease without a holder.
            let (took, ()) = timed(|| plain.lock().unwrap());
            assert!(took < SLACK, "{took:?}");
            plain.unlock().unwrap();
            trying.join().unwrap();
        });
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_re_entry_on_too_few_replicas_is_undone() {
    let set = Replicas::start(1);
    let client = waiting_for(&set, 1, LONG);
    let lock = client.lock("orders");
    let other = waiting_for(&set, 1, LONG).lock("orders");
    lock.lock().unwrap();
    lock.lock().unwrap();
    set.nodes[1].freeze();
    not_replicated(lock.try_lock(), 0, 1);
    assert_eq!(lock.hold_count().unwrap(), 2);
    let counts: Vec<String> = set.nodes[0].ask(&["HVALS", "orders"]);
    assert_eq!(counts, ["2"]);
    assert!(lock.is_valid());
    set.nodes[1].thaw();
    lock.lock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 3);
    for _ in 0..3 {
        assert!(!other.try_lock().unwrap());
        lock.unlock().unwrap();
    }
    assert!(other.try_lock().unwrap());
    other.unlock().unwrap();
    for node in &set.nodes {
        eventually(SLACK, "nothing is left", || {
            node.int(&["EXISTS", "orders"]) == 0
        });
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn renewals_on_no_replica_extend_nothing() {
    let set = Replicas::start(1);
    let lease = ms(3000);
    let client = waiting_for(&set, 1, lease);
    let guard = client.lock("orders").guard().unwrap();
    let start = Instant::now();
    while start.elapsed() < lease * 2 {
        assert!(guard.is_valid(), "after {:?}", start.elapsed());
        thread::sleep(ms(20));
    }
    set.nodes[1].freeze();
    let frozen = Instant::now();
    let left = guard.remaining_validity();
    let loss = guard.lost().recv_timeout(lease + SLACK).unwrap();
    let took = frozen.elapsed();
    assert!(
        matches!(loss.cause, LossCause::Unreachable { .. }),
        "{loss}"
    );
    assert!(took + ms(20) >= left, "{took:?} of {left:?}");
    assert!(took < left + SLACK, "{took:?} of {left:?}");
    assert!(!guard.is_valid());
    assert!(guard.unlock().unwrap_err().is_lost());
    set.nodes[1].thaw();
    all_works(&client.lock("orders"));
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_server_without_wait_is_reported() {
    let server = RedisServer::with(&["--rename-command", "WAIT", ""]);
    let client = Client::builder().wait_replicas(1, ms(100));
    let client = client.open(&server.url()).unwrap();
    let error = client.lock("orders").try_lock().unwrap_err();
    assert!(error.to_string().to_lowercase().contains("wait"), "{error}");
    eventually(SLACK, "nothing is left", || {
        server.int(&["EXISTS", "orders"]) == 0
    });
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn an_inner_unlock_that_was_carried_out_is_not_retryable() {
    let set = Replicas::start(1);
    let lock = waiting_for(&set, 1, LONG).lock("orders");
    lock.lock().unwrap();
    lock.lock().unwrap();
    set.nodes[1].freeze();
    let error = lock.unlock().unwrap_err();
    // The level is released; another unlock would release the outer one.
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(!error.is_retryable(), "{error}");
    assert!(error.is_ambiguous(), "{error}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    assert!(lock.is_valid());
    // The release of the whole hold does not wait for replicas.
    lock.unlock().unwrap();
    assert_eq!(set.nodes[0].int(&["EXISTS", "orders"]), 0);
    set.nodes[1].thaw();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_write_on_too_few_replicas_is_unknown() {
    let set = Replicas::start(1);
    let guard = waiting_for(&set, 1, LONG).lock("orders").guard().unwrap();
    let count = || {
        guard.write(|batch| {
            batch.incr_by("data", 1);
        })
    };
    assert_eq!(count().unwrap()[0].as_int(), Some(1));
    set.nodes[1].freeze();
    let error = count().unwrap_err();
    assert!(error.is_ambiguous() && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    assert_eq!(
        set.nodes[0].int(&["GET", "data"]),
        2,
        "it is not undone, nor repeated"
    );
    set.nodes[1].thaw();
    guard.unlock().unwrap();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn grants_in_a_cluster_wait_for_replicas_as_well() {
    let cluster = Cluster::start();
    let name = cluster.name_at(1, "orders");
    let client = Client::builder()
        .watchdog_timeout(LONG)
        .wait_replicas(1, ms(300))
        .cluster(cluster.urls())
        .unwrap();
    let lock = client.lock(&name);
    all_works(&lock);
    cluster.nodes[4].freeze();
    not_replicated(lock.try_lock(), 0, 1);
    assert_eq!(cluster.nodes[1].int(&["EXISTS", &name]), 0);
    let elsewhere = client.lock(&cluster.name_at(0, "orders"));
    all_works(&elsewhere);
    cluster.nodes[4].thaw();
    eventually(AGREEMENT, "it works again", || match lock.try_lock() {
        Ok(taken) => taken,
        Err(error) => {
            assert!(
                matches!(error, Error::NotReplicated { .. }) || error.is_retryable(),
                "{error}"
            );
            false
        }
    });
    lock.unlock().unwrap();
}
