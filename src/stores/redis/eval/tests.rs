#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::*;
use crate::ground::claim::{Kind, LockId};
use crate::store::{Outcome, Store as _};
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Acquire, Operation as _};
use crate::stores::redis::tests::stub::{GRANTED, Request, Says, StubServer, claim, soon, within};
use crate::stores::redis::topology::Topology;

fn look(store: &Redis) -> bool {
    let lock = LockId {
        kind: Kind::Reentrant,
        name: "lock".into(),
    };
    store.inspect(&lock, None, soon()).is_ok()
}

fn refusing(error: &'static str) -> StubServer {
    StubServer::start(move |request| match request.is("EVALSHA") {
        true => Some(Says::error(error)),
        false if request.is("EVAL") => Some(Says::ints(&[0, 0, -2])),
        false => None,
    })
}

fn commands(server: &StubServer) -> Vec<String> {
    let asked = server.asked();
    asked.iter().map(|request| request[0].clone()).collect()
}

#[test]
fn an_unknown_script_is_sent_as_text() {
    let server = refusing("NOSCRIPT No matching script.");
    let store = server.store();
    assert!(look(&store));
    assert_eq!(commands(&server), ["EVALSHA", "EVAL"]);
    let asked = server.asked();
    assert_eq!(asked[0].last(), asked[1].last(), "it is one request");
    // The client sends the hash for the next request, because the server may know the script by then.
    assert!(look(&store));
    assert_eq!(commands(&server)[2..], ["EVALSHA", "EVAL"]);
}

#[test]
fn a_forbidden_evalsha_is_not_retried() {
    let server = refusing("NOPERM User x has no permissions to run the 'evalsha' command");
    let store = server.store();
    assert!(look(&store) && look(&store));
    assert_eq!(commands(&server), ["EVALSHA", "EVAL", "EVAL"]);
}

#[test]
fn other_errors_are_returned() {
    let server = refusing("ERR odd");
    let store = server.store();
    assert!(!look(&store) && !look(&store));
    assert_eq!(commands(&server), ["EVALSHA", "EVALSHA"]);
}

/// A client with `wait_replicas` of 1, and a server with this reply to `WAIT`.
fn replicated(waited: Option<Says>) -> (StubServer, Arc<Redis>) {
    let server = StubServer::start(move |request: &Request| match request.is("WAIT") {
        true => waited.clone(),
        false if request.is_script() => Some(Says::answer(Value::Int(GRANTED))),
        false => None,
    });
    let store = server.store_with(|settings| {
        settings.replication = Some(Replication {
            replicas: 1,
            timeout: Duration::from_millis(20),
        });
    });
    (server, store)
}

#[test]
fn a_connection_is_reused_after_wait_replied() {
    let (server, store) = replicated(Some(Says::reply(Value::Int(1))));
    for _ in 0..2 {
        let outcome = store.acquire(&claim("lock"), soon()).unwrap();
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }
    assert_eq!(commands(&server), ["EVALSHA", "WAIT", "EVALSHA", "WAIT"]);
    assert_eq!(server.connected(), 1);
}

/// Returns the acknowledgment for this reply to `WAIT`, and whether the connection became unusable. `None` if no time was
/// left.
fn acknowledged(waited: Says, deadline: Instant) -> Option<(ReplicaAck, bool)> {
    let (_server, store) = replicated(Some(waited));
    let Topology::One(node) = &store.topology else {
        panic!("it is a cluster");
    };
    let claim = claim("lock");
    let acquire = Acquire::new(&claim, 0);
    let mut call = acquire.call();
    store.complete(&mut call);
    let mut connection = node.pool.connector.connect(soon()).unwrap();
    let limit = Limit::default();
    let pool = &node.pool;
    let replied = pool.eval(&mut connection, &call, limit, deadline);
    let (reply, replica_ack) = replied.ok()?;
    assert_eq!(reply, Value::Int(GRANTED));
    Some((replica_ack?, connection.is_unusable))
}

#[test]
fn a_connection_without_reply_to_wait_is_spent() {
    let told = |count| acknowledged(Says::reply(Value::Int(count)), soon());
    assert_eq!(told(1), Some((ReplicaAck::Enough, false)));
    assert_eq!(told(0), Some((ReplicaAck::TooFew(0), false)));
    let mut patience = (1..10).map(|it| within(it * 50));
    let silent = patience.find_map(|deadline| acknowledged(Says::nothing(), deadline));
    assert_eq!(silent, Some((ReplicaAck::NoAnswer, true)));
}
