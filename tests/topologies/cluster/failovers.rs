//! Failovers in a cluster: F41.

use super::*;

#[test]
#[ignore = "needs several servers: make topologies"]
fn holds_are_renewed_at_once_after_a_shard_failover() {
    let cluster = Cluster::start();
    let client = client(&cluster, LONG);
    let [kept, orders] = ["kept", "orders"].map(|stem| cluster.name_at(0, stem));
    for is_planned in [true, false] {
        let guard = client.lock(&kept).guard().unwrap();
        all_works(&client.lock(&orders));
        let old = cluster.owner_of(&kept);
        cluster.nodes[old].replicate(1, &kept);
        let (_, new) = if is_planned {
            cluster.failover(&kept)
        } else {
            cluster.lose_owner(&kept)
        };
        cluster.nodes[new].cmd(&["DEL", &kept]);
        assert!(client.lock(&orders).try_lock_for(AGREEMENT).unwrap());
        client.lock(&orders).unlock().unwrap();
        let loss = guard.lost().recv_timeout(SLACK);
        let cause = loss.map(|loss| loss.cause);
        assert_eq!(cause, Ok(LossCause::Gone), "{is_planned}");
        if is_planned {
            cluster.wait_until_healthy();
        }
    }
}

/// Holds a lock during the failover by `happens`, which returns the new master of its shard.
fn a_hold_goes_on(cluster: &Cluster, happens: impl FnOnce(&str) -> usize) {
    let (client, other) = (client(cluster, PATIENT), client(cluster, PATIENT));
    let name = cluster.name_at(1, "orders");
    let guard = client.lock(&name).guard().unwrap();
    cluster.nodes[1].replicate(1, &name);
    let new = happens(&name);
    assert!(guard.is_valid());
    assert!(!other.lock(&name).try_lock_for(ms(100)).unwrap());
    is_renewed(&guard);
    assert_eq!(cluster.nodes[new].int(&["EXISTS", &name]), 1);
    guard.unlock().unwrap();
    assert!(other.lock(&name).try_lock_for(SLACK).unwrap());
    other.lock(&name).unlock().unwrap();
    assert_eq!(cluster.nodes[new].int(&["EXISTS", &name]), 0);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_hold_survives_the_death_of_its_master() {
    let cluster = Cluster::start();
    a_hold_goes_on(&cluster, |name| cluster.lose_owner(name).1);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_hold_survives_a_planned_failover() {
    let cluster = Cluster::start();
    a_hold_goes_on(&cluster, |name| cluster.failover(name).1);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn grants_go_on_at_the_new_master() {
    let cluster = Cluster::start();
    let name = cluster.name_at(1, "orders");
    let lock = client(&cluster, LEASE).lock(&name);
    for is_planned in [true, false] {
        let (grants, over) = Grants::during(&lock, || {
            if is_planned {
                cluster.failover(&name);
            } else {
                cluster.lose_owner(&name);
            }
            Instant::now()
        });
        let first = grants.first_after(over);
        report(&format!(
            "cluster, {}: first grant {first:.1?} after the failover, {:.1?} without any",
            if is_planned { "planned" } else { "kill" },
            grants.longest_gap()
        ));
        assert!(first < Duration::from_secs(1) + SLACK, "{first:?}");
        if is_planned {
            cluster.wait_until_healthy();
        }
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_lock_that_was_not_replicated_is_reported_lost() {
    let cluster = Cluster::start();
    let (client, other) = (client(&cluster, PATIENT), client(&cluster, PATIENT));
    let name = cluster.name_at(1, "orders");
    all_works(&client.lock(&name));
    cluster.nodes[4].freeze();
    cluster.nodes[1].drop_replicas();
    let guard = client.lock(&name).guard().unwrap();
    cluster.nodes[1].kill();
    cluster.nodes[4].thaw();
    let holder = other.lock(&name).guard().unwrap();
    let loss = guard.lost().recv_timeout(PATIENT * 2 / 3).unwrap();
    // The renewal may have come before the next holder.
    let successor = LossCause::HeldBy(holder.visitor().to_string());
    assert!([LossCause::Gone, successor].contains(&loss.cause), "{loss}");
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(holder.is_valid());
    holder.unlock().unwrap();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_returning_old_master_gets_no_requests() {
    let cluster = Cluster::start();
    let name = cluster.name_at(1, "orders");
    let lock = client(&cluster, KEPT).lock(&name);
    all_works(&lock);
    let (old, new) = cluster.lose_owner(&name);
    cluster.nodes[old].restart();
    let start = Instant::now();
    while start.elapsed() < ms(3000) {
        all_works(&lock);
        let seed = Client::builder()
            .cluster([cluster.nodes[old].url()])
            .unwrap();
        let guard = seed.lock(&name).guard().unwrap();
        assert_eq!(cluster.nodes[new].int(&["EXISTS", &name]), 1);
        guard.unlock().unwrap();
        thread::sleep(ms(20));
    }
    assert_eq!(cluster.nodes[new].int(&["EXISTS", &name]), 0);
}
