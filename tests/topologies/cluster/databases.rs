//! Numbered databases, which Valkey 9 supports in a cluster.

use super::*;

/// A cluster with four databases, where the server supports it.
fn with_databases() -> Option<Cluster> {
    let product = product();
    let has_them = product.is_valkey && product.version >= (9, 0);
    has_them.then(|| Cluster::with(false, Access::default(), &["--cluster-databases", "4"]))
}

fn in_database(cluster: &Cluster, number: u32) -> Client {
    let urls = cluster.urls();
    let urls = urls.iter().map(|url| format!("{url}/{number}"));
    Client::builder()
        .watchdog_timeout(LEASE)
        .cluster(urls)
        .unwrap()
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn redirections_keep_the_database() {
    let Some(cluster) = with_databases() else {
        report("SKIPPED: the server has no numbered databases in a cluster");
        return;
    };
    let (client, other) = (in_database(&cluster, 3), in_database(&cluster, 0));
    let name = cluster.name_at(1, "orders");
    let lock = client.lock(&name);
    all_works(&lock);
    let guard = lock.guard().unwrap();
    assert!(cluster.nodes[1].told("db3").is_some());
    assert!(other.lock(&name).try_lock().unwrap(), "another database");
    other.lock(&name).force_unlock().unwrap();
    is_renewed(&guard);
    guard.unlock().unwrap();
    // ASK, for a missing key, and then MOVED.
    let migration = cluster.begin_migration(&name, 2);
    let guard = lock.guard().unwrap();
    assert!(cluster.nodes[2].told("db3").is_some());
    migration.finish();
    is_renewed(&guard);
    drop(guard);
    is_woken(&lock, &in_database(&cluster, 3).lock(&name), || ());
    all_works(&lock);
    for node in &cluster.nodes {
        assert_eq!((node.told("db0"), node.told("db3")), (None, None));
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn the_server_judges_the_database() {
    // Redis supports only database 0.
    let cluster = with_databases().unwrap_or_else(Cluster::masters);
    let client = in_database(&cluster, 7);
    let (took, result) = timed(|| client.lock("orders").lock());
    let error = result.unwrap_err();
    assert!(took < SLACK, "{took:?}");
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    for word in ["database 7", "cluster-databases"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let urls = cluster.urls();
    let mixed = [format!("{}/1", urls[0]), urls[1].clone()];
    let error = Client::builder().cluster(mixed).unwrap_err();
    assert!(error.to_string().contains("several databases"), "{error}");
}
