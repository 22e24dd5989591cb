//! Servers that replace a node, or get another node's keys, without the grants that were not replicated.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use redlatch::{Client, Error, Redlock, RedlockBuilder};
use tempfile::TempDir;

use super::restarts::{MAX_LEASE, REMEMBERS, granted_only_after, until_somebody_tried};
use super::{NODE_TIMEOUT, SLACK, no_quorum, nodes_with_key};
use crate::support::{RedisServer, eventually};

/// An address that leads to one server first and to another one later.
struct Address {
    dir: TempDir,
}

impl Address {
    fn of(server: &RedisServer) -> Address {
        let address = Address {
            dir: tempfile::tempdir().unwrap(),
        };
        address.lead_to(server);
        address
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn url(&self) -> String {
        format!("redis+unix://{}", self.path().display())
    }

    fn lead_to(&self, server: &RedisServer) {
        let _ = std::fs::remove_file(self.path());
        symlink(server.unix_path(), self.path()).unwrap();
    }
}

fn server() -> RedisServer {
    RedisServer::with(&[&REMEMBERS[..], &["--repl-diskless-sync-delay", "0"]].concat())
}

/// Makes `server` a replica with all data of `master`, and then a master again.
fn copies(server: &RedisServer, master: &RedisServer) {
    server.cmd(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    eventually(SLACK * 4, "it has all keys", || {
        server.info("master_link_status").as_deref() == Some("up")
    });
    server.cmd(&["REPLICAOF", "NO", "ONE"]);
}

/// Waits until the server's uptime is at least this; it counts whole seconds.
fn grows_old(server: &RedisServer, seconds: u64) {
    eventually(SLACK * 4, "it is old enough", || {
        let up = server.info("uptime_in_seconds").unwrap();
        up.parse::<u64>().unwrap() >= seconds
    });
}

/// How a program opens the locks.
#[derive(Clone, Copy, Debug)]
struct Settings {
    is_canonical: bool,
    trusts: bool,
}

const SETTINGS: [Settings; 2] = [
    Settings {
        is_canonical: false,
        trusts: true,
    },
    Settings {
        is_canonical: true,
        trusts: false,
    },
];

impl Settings {
    fn to(self, urls: &[String]) -> RedlockBuilder {
        let nodes = urls.iter().map(|url| Client::open(url).unwrap());
        let builder = Redlock::builder()
            .nodes(nodes)
            .max_lease(MAX_LEASE)
            .node_timeout(NODE_TIMEOUT);
        let builder = if self.trusts {
            builder.trust_new_nodes()
        } else {
            builder
        };
        if self.is_canonical {
            builder.canonical()
        } else {
            builder
        }
    }

    /// A redlock that knows all servers and is connected to them.
    fn known(self, urls: &[String]) -> Redlock {
        let redlock = Settings {
            trusts: true,
            ..self
        };
        let redlock = redlock.to(urls).build().unwrap();
        redlock.lock("b").lock().unwrap();
        redlock.lock("b").unlock().unwrap();
        redlock
    }
}

/// A hold exists on the first two of three servers while `take_over` happens to the second one; another client, which
/// has contacted them before or not, is granted it only after the hold's end.
fn no_other_client_is_granted(
    way: Settings,
    is_newcomer: bool,
    take_over: impl Fn(&Address, &RedisServer, &RedisServer),
) {
    until_somebody_tried(|| {
        let (one, two, three, spare) = (server(), server(), server(), server());
        let address = Address::of(&two);
        let urls = [one.url(), address.url(), three.url()];
        copies(&spare, &two);
        if is_newcomer && !way.trusts {
            for server in [&one, &two, &three, &spare] {
                grows_old(server, 4);
            }
        }
        let known = (!is_newcomer).then(|| way.known(&urls));
        three.freeze();
        let holder = way.known(&urls);
        let guard = holder.lock("a").with_lease_time(MAX_LEASE).guard().unwrap();
        three.thaw();
        take_over(&address, &two, &spare);
        let other = known.unwrap_or_else(|| way.to(&urls).build().unwrap());
        granted_only_after(&guard, &other)
    });
}

fn by_the_replica(address: &Address, server: &RedisServer, replica: &RedisServer) {
    address.lead_to(replica);
    server.kill();
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_promoted_replica_grants_nothing_to_a_new_client() {
    for way in SETTINGS {
        no_other_client_is_granted(way, true, by_the_replica);
    }
}

#[test]
fn a_promoted_replica_grants_nothing_to_a_client_of_its_master() {
    for way in SETTINGS {
        no_other_client_is_granted(way, false, by_the_replica);
    }
}

#[test]
fn a_former_replica_grants_nothing_for_one_lease() {
    for way in SETTINGS {
        no_other_client_is_granted(way, false, |_, server, other| copies(server, other));
    }
}

#[test]
fn a_replica_has_no_vote() {
    let (one, two, three) = (server(), server(), server());
    let way = SETTINGS[0];
    let redlock = way.known(&[one.url(), two.url(), three.url()]);
    // It accepts writes, and discards them when it gets the keys of its master.
    two.cmd(&["CONFIG", "SET", "replica-read-only", "no"]);
    two.cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    one.freeze();
    let error = redlock.lock("a").try_lock().unwrap_err();
    let (counts, said) = no_quorum(&error);
    assert_eq!(counts, [1, 0, 2], "{error}");
    assert!(said[1].1.contains("is a replica"), "{error}");
    eventually(SLACK, "nothing is left", || {
        nodes_with_key(std::slice::from_ref(&three), "a") == 0
    });
    assert_eq!(nodes_with_key(std::slice::from_ref(&two), "a"), 0);
}

#[test]
fn a_cluster_is_no_node() {
    let part = RedisServer::with(&["--cluster-enabled", "yes"]);
    let (one, two) = (server(), server());
    let cluster = || Client::builder().cluster([part.url()]).unwrap();
    for node in [cluster(), Client::open(&part.url()).unwrap()] {
        let nodes = [&one, &two].map(|server| Client::open(&server.url()).unwrap());
        let error = Redlock::new([node].into_iter().chain(nodes)).unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
        assert!(error.to_string().contains("cluster"), "{error}");
        assert!(
            error.to_string().contains(&part.port().to_string()),
            "{error}"
        );
    }
    // Nor does an unreachable node.
    part.kill();
    let nodes = [&one, &two].map(|server| Client::open(&server.url()).unwrap());
    let error = Redlock::new([cluster()].into_iter().chain(nodes)).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
}

#[test]
fn the_error_and_the_check_report_new_servers() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let nodes = servers
        .iter()
        .map(|server| Client::open(&server.url()).unwrap());
    let redlock = Redlock::new(nodes).unwrap();
    let error = redlock.lock("a").try_lock().unwrap_err().to_string();
    assert!(error.contains("trust_new_nodes"), "{error}");
    let warnings = redlock.check().unwrap();
    for server in &servers {
        let told = warnings.iter().any(|warning| {
            *warning.node == *server.addr().to_string()
                && warning.message.contains("trust_new_nodes")
        });
        assert!(told, "{warnings:?}");
    }
}
