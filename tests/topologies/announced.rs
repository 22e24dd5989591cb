//! Announced addresses that are reached by a map, through failovers and redirections.

use std::collections::HashMap;
use std::time::Duration;

use redlatch::{Builder, Client};

use crate::backends::{SLACK, all_works, is_renewed, timed};
use crate::support::Proxy;
use crate::support::topology_fixtures::sentinels::NAME;
use crate::support::topology_fixtures::{Cluster, Node, Sentinels};

/// A lease that survives a failover, even on a busy machine.
const PATIENT: Duration = Duration::from_secs(15);

/// A proxy for each node, which the map leads to.
struct NodeProxies {
    gates: Vec<Proxy>,
    ports: HashMap<u16, u16>,
}

impl NodeProxies {
    fn to(nodes: &[Node]) -> NodeProxies {
        let gates: Vec<_> = nodes.iter().map(|node| Proxy::to(node.addr())).collect();
        let ports = nodes.iter().zip(&gates);
        let ports = ports.map(|(node, gate)| (node.port(), gate.addr().port()));
        NodeProxies {
            ports: ports.collect(),
            gates,
        }
    }

    fn builder(&self) -> Builder {
        let ports = self.ports.clone();
        Client::builder()
            .watchdog_timeout(PATIENT)
            .map_address(move |host, port| (host.to_owned(), ports[&port]))
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_failover_by_sentinel_is_followed_through_the_map() {
    let set = Sentinels::start();
    let gates = NodeProxies::to(&set.nodes);
    let client = gates.builder().sentinel(NAME, set.urls()).unwrap();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    set.nodes[set.master()].replicate(2, "orders");
    let (_, new) = set.failover();
    is_renewed(&guard);
    guard.unlock().unwrap();
    all_works(&client.lock("invoices"));
    gates.gates[new].refuse();
    let fresh = gates.builder().sentinel(NAME, set.urls()).unwrap();
    let (took, result) = timed(|| fresh.lock("orders").try_lock());
    let text = result.unwrap_err().to_string();
    let port = set.nodes[new].port().to_string();
    assert!(
        text.contains(&port) && text.contains("the sentinel 127"),
        "{text}"
    );
    assert!(took < Duration::from_secs(2) + SLACK, "{took:?}");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn moving_slots_are_followed_through_the_map() {
    let cluster = Cluster::masters();
    let gates = NodeProxies::to(&cluster.nodes);
    let client = gates.builder().cluster([cluster.nodes[0].url()]).unwrap();
    let name = cluster.name_at(1, "orders");
    let lock = client.lock(&name);
    let guard = lock.guard().unwrap();
    // ASK while it moves, then MOVED.
    let migration = cluster.begin_migration(&name, 2);
    assert!(client.lock(&format!("a{{{name}}}")).try_lock().unwrap());
    migration.move_keys();
    is_renewed(&guard);
    migration.finish();
    guard.unlock().unwrap();
    all_works(&lock);
    gates.gates[2].refuse();
    let fresh = gates.builder().cluster([cluster.nodes[0].url()]).unwrap();
    fresh.lock(&name).try_lock().unwrap_err();
}
