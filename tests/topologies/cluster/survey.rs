//! `list` and `inspect` on a cluster, also while slots move.

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
