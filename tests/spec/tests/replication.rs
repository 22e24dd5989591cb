//! Masters, replicas, and takeovers of the simulated server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{NOW, acquire, script, send, texts};
use redlatch_spec::{Config, Server};

const MASTER: (&str, u16) = ("10.0.0.1", 6379);
const REPLICA: (&str, u16) = ("10.0.0.2", 6379);

/// A master with one replica that has all of it, and a connection to each.
fn pair() -> (Server, Server) {
    let config = |seed| Config {
        seed,
        ..Config::default()
    };
    let mut master = Server::new(config(1), NOW);
    let mut replica = Server::new(config(2), NOW);
    replica.follow(MASTER.0, MASTER.1, Some(master.snapshot()));
    master.acknowledge(NOW, 2, REPLICA, 0);
    master.connect(1);
    replica.connect(1);
    (master, replica)
}

/// Carries over all that the replica lacks, and what it says to that.
fn replicate(now: i64, master: &mut Server, replica: &mut Server) -> Vec<(u64, String)> {
    let changes = master.changes_for(replica, usize::MAX).unwrap();
    let has = replica.replay(&changes);
    texts(master.acknowledge(now, 2, REPLICA, has))
}

#[test]
fn a_replica_has_what_it_was_told_and_refuses_writes() {
    let (mut master, mut replica) = pair();
    acquire(&mut master, NOW, "a:1:1");
    assert!(replica.look(NOW, "orders").is_none());
    replicate(NOW, &mut master, &mut replica);
    assert_eq!(replica.look(NOW, "orders"), master.look(NOW, "orders"));
    assert_eq!(
        send(&mut replica, NOW, 1, "ROLE")[0].1,
        "*5 $5 slave $8 10.0.0.1 :6379 $9 connected :1"
    );
    let role = "*3 $6 master :1 *1 *3 $8 10.0.0.2 $4 6379 $1 1";
    assert_eq!(send(&mut master, NOW, 1, "ROLE")[0].1, role);
    let later = NOW + 31_000_000;
    assert!(acquire(&mut replica, later, "b:1:1").starts_with("-READONLY You can't write"));
    let released = script(
        &mut replica,
        NOW,
        1,
        "reentrant/release",
        &["orders", "a:1:1", "c", "3"],
    );
    assert_eq!(
        released,
        "-READONLY You can't write against a read only replica."
    );
}

#[test]
fn a_replica_that_takes_over_has_another_history() {
    let (mut master, mut replica) = pair();
    acquire(&mut master, NOW, "a:1:1");
    let before = replica.replication_id().to_owned();
    assert_eq!(before, master.replication_id());
    replica.promote();
    assert!(replica.is_master() && replica.replication_id() != before);
    let told = send(&mut replica, NOW, 1, "INFO replication")[0].1.clone();
    assert!(told.contains("role:master") && told.contains(&format!("master_replid2:{before}")));
    // What it was not told it grants again; the old master goes on, and has to get all of it anew.
    assert!(acquire(&mut replica, NOW, "b:1:1").starts_with(':'));
    assert!(replica.changes_for(&master, usize::MAX).is_none());
    master.follow(REPLICA.0, REPLICA.1, Some(replica.snapshot()));
    assert_eq!(replica.look(NOW, "orders"), master.look(NOW, "orders"));
}

#[test]
fn wait_counts_the_replicas_that_have_it() {
    let (mut master, mut replica) = pair();
    assert_eq!(send(&mut master, NOW, 1, "WAIT 1 50")[0].1, ":1");
    acquire(&mut master, NOW, "a:1:1");
    assert_eq!(send(&mut master, NOW, 1, "WAIT 1 50"), []);
    assert_eq!(send(&mut master, NOW, 1, "PING"), []);
    assert_eq!(master.due(), Some(NOW + 50_000));
    let told = replicate(NOW + 10_000, &mut master, &mut replica);
    assert_eq!(told, [(1, ":1".to_owned()), (1, "+PONG".to_owned())]);

    acquire(&mut master, NOW, "b:1:1");
    script(
        &mut master,
        NOW,
        1,
        "reentrant/withdraw",
        &["orders", "a:1:1", "c", "3"],
    );
    send(&mut master, NOW, 1, "WAIT 1 50");
    assert!(master.tick(NOW + 49_999).is_empty());
    assert_eq!(texts(master.tick(NOW + 50_000)), [(1, ":0".to_owned())]);
    assert_eq!(master.due(), None);
    assert!(
        send(&mut replica, NOW, 1, "WAIT 1 1")[0]
            .1
            .starts_with("-ERR WAIT cannot")
    );
}

#[test]
fn a_master_without_enough_replicas_refuses() {
    let config = Config {
        least_replicas: 1,
        ..Config::default()
    };
    let mut master = Server::new(config, NOW);
    master.connect(1);
    assert!(acquire(&mut master, NOW, "a:1:1").starts_with("-NOREPLICAS"));
    master.acknowledge(NOW, 2, REPLICA, 0);
    assert!(acquire(&mut master, NOW, "a:1:1").starts_with(':'));
    master.lose_replica(2);
    assert!(acquire(&mut master, NOW, "b:1:1").starts_with("*2"));
}
