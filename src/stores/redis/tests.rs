//! The store on one server, from within.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Instant;

use super::node::RedisNode;
use super::*;
use crate::ground::claim::Kind;
use crate::store::EXPIRY_SLACK;
use crate::stores::quorum::node::{Node as _, Pending};
use crate::support::{End, Fault, Proxy, RedisServer, ms};

fn store(url: &str) -> Arc<Redis> {
    let settings = stub::settings();
    Arc::new(Redis::open(url, &settings).unwrap())
}

fn soon() -> Instant {
    Instant::now() + ms(2000)
}

fn claim(name: &str, count: u32) -> Claim {
    Claim {
        kind: Kind::Reentrant,
        name: name.into(),
        visitor: VisitorId::new("client", 1, 1),
        count,
        lease: ms(60_000),
        inside: None,
        queueing: Default::default(),
    }
}

fn lock(claim: &Claim) -> LockId {
    LockId {
        kind: claim.kind,
        name: Arc::clone(&claim.name),
    }
}

#[test]
fn a_connection_for_renewals_that_comes_back_to_a_closed_client_is_closed() {
    let server = RedisServer::start();
    let node = store(&server.url()).as_node().unwrap();
    let connection = node.server.take_renewing(soon()).unwrap();
    node.server.close();
    node.server.put_renewing(connection);
    assert!(!node.server.has_renewing());
}

/// Gives the connection up that owes the answer to an acquisition.
fn given_up(give_up: fn(&RedisNode, &Claim)) {
    let server = RedisServer::start();
    let node = store(&server.url()).as_node().unwrap();
    let claim = claim("a", 0);
    let lost_until = || node.server.pool.lost_until(Some(&claim.visitor));
    // So that there is a connection.
    node.inspect(&lock(&claim), None, soon()).unwrap();
    server.freeze();
    let sent = node.carry_out(calls::Acquire::new(&claim), soon());
    assert!(matches!(sent, Pending::Sent(_)));
    drop(sent);
    assert_eq!(lost_until(), None, "its answer can still be read");
    give_up(&node, &claim);
    assert!(lost_until().is_some());
    server.thaw();
}

#[test]
fn a_request_behind_which_nothing_could_be_sent_in_time_may_still_come() {
    given_up(|node, claim| {
        let level = Claim {
            count: 2,
            ..claim.clone()
        };
        let late = node.send_release(&level, 1, Instant::now());
        assert!(matches!(late, Pending::Ready(_)));
    });
}

#[test]
fn a_request_at_the_end_of_its_client_may_still_come() {
    given_up(|node, _| node.server.pool.close());
}

#[test]
fn a_lost_request_is_of_no_account_once_it_cannot_come_any_more() {
    let server = RedisServer::start();
    let node = store(&server.url()).as_node().unwrap();
    let claim = claim("a", 0);
    let visitor = Some(&claim.visitor);
    let pool = &node.server.pool;
    let long_ago = Instant::now() - EXPIRY_SLACK - ms(10);
    pool.note_lost(visitor.cloned(), Some(7), long_ago);
    assert_eq!(pool.lost_until(visitor), None);
    pool.note_lost(visitor.cloned(), Some(8), Instant::now());
    assert_eq!(pool.lost_until(visitor), Some(8));
}

#[test]
fn the_error_of_a_withdrawal_names_its_own_lock() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let store = store(&proxy.url());
    proxy.next(1, Some(b"lock-c"), Fault::SwallowReply(End::Reset));
    let mut in_doubts = ["lock-a", "lock-b", "lock-c"].map(|name| claim(name, 0).in_doubt(0));
    let mut in_doubts: Vec<&mut InDoubt> = in_doubts.iter_mut().collect();
    let outcomes = store.resolve(&mut in_doubts, soon());
    let Some(Err(error)) = outcomes.last() else {
        panic!("{outcomes:?}");
    };
    assert!(
        outcomes.len() > 1 && !error.to_string().contains("lock-a"),
        "{error}"
    );
}
