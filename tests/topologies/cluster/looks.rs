//! The look of an operator at the locks of a cluster, also while slots move.

use super::*;

fn names(client: &Client) -> Vec<String> {
    let locks = client.locks("").map(|info| info.unwrap());
    let mut names: Vec<_> = locks.map(|info| info.name.to_string()).collect();
    names.sort();
    names
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn the_locks_of_all_masters_are_listed_with_their_holders() {
    let cluster = Cluster::masters();
    let client = client(&cluster, LONG);
    let held = [0, 1, 2].map(|node| cluster.name_at(node, "orders"));
    let guards = held
        .each_ref()
        .map(|name| client.lock(name).guard().unwrap());
    let mut expected = held.to_vec();
    expected.sort();
    assert_eq!(names(&self::client(&cluster, LONG)), expected);
    for info in client.locks("").map(|info| info.unwrap()) {
        let at = held.iter().position(|name| **name == *info.name).unwrap();
        assert_eq!(&*info.node, cluster.nodes[at].addr().to_string());
        assert_eq!(info.holders[0].pid, Some(std::process::id()));
    }
    drop(guards);
    assert_eq!(names(&client), Vec::<String>::new());
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_lock_in_a_slot_that_stays_half_moved_is_described_where_it_is() {
    let cluster = Cluster::masters();
    let client = client(&cluster, LONG);
    let name = cluster.name_at(0, "orders");
    let lock = client.fenced_lock(&name);
    let guard = lock.guard().unwrap();
    let visitor = guard.visitor().as_str().to_owned();
    let is_described = |at: &str| {
        for lock in [
            client.fenced_lock(&name),
            self::client(&cluster, LONG).lock(&name),
        ] {
            let info = lock.describe().unwrap();
            assert_eq!(info.holders.len(), 1, "{at}: {info:?}");
            assert_eq!(info.holders[0].visitor, visitor, "{at}");
        }
        assert_eq!(names(&client), [&*name], "{at}");
    };
    let migration = cluster.begin_migration(&name, 1);
    is_described("at its old master");
    let free = client.lock(&format!("{{{name}}}free")).describe().unwrap();
    assert!(free.holders.is_empty(), "{free:?}");
    migration.move_keys();
    is_described("at its new master");
    assert!(
        !client
            .fenced_lock(&name)
            .force_unlock_of("somebody:1:1")
            .unwrap()
    );
    migration.finish();
    is_described("with its slot");
    assert!(client.fenced_lock(&name).force_unlock_of(&visitor).unwrap());
    assert!(guard.unlock().unwrap_err().is_lost());
}
