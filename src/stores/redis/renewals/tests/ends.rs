//! The connection after a renewal, the one that is made before, and the renewals of a quorum.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::mpsc;

use super::batch::Expected;
use super::*;
use crate::ground::claim::LockId;
use crate::stores::quorum::node::{Node as _, Purpose};
use crate::stores::redis::tests::stub::Route;
use crate::stores::redis::tests::stub::voter::{handle, identity, outdate};

/// A server that answers as soon as the sender is dropped.
fn held_back() -> (StubServer, mpsc::Sender<()>) {
    let (open, gate) = mpsc::channel::<()>();
    let server = server(move |_, _| {
        let _ = gate.recv();
        renewed()
    });
    (server, open)
}

#[test]
fn a_new_connection_without_an_answer_in_time_is_kept_for_the_next_renewal() {
    let mut patience = (1..10).map(|it| within(it * 50));
    let kept = patience.find_map(|deadline| {
        let (server, open) = held_back();
        let store = server.store();
        assert!(!why(&store.renew(&claims(1), deadline)).is_empty());
        // On a busy machine the time may be too short for anything.
        (node(&store).has_renewing()).then_some((server, open, store))
    });
    let (server, open, store) = kept.unwrap();
    drop(open);
    // The late answer comes first.
    let outcomes = store.renew(&claims(1), soon());
    assert!(are_renewed(&outcomes), "{outcomes:?}");
    assert_eq!((server.connected(), sizes(&server)), (1, vec![1, 1]));
    assert!(node(&store).has_renewing());
}

#[test]
fn an_old_connection_without_an_answer_in_time_is_of_no_use() {
    let server = server(|call, _| if call == 0 { renewed() } else { Says::Nothing });
    let store = server.store();
    assert!(are_renewed(&store.renew(&claims(1), soon())));
    let outcomes = store.renew(&claims(1), within(50));
    assert!(!why(&outcomes).is_empty());
    assert!(!node(&store).has_renewing());
}

#[test]
fn a_connection_that_was_cut_is_of_no_use() {
    let server = server(|_, _| Says::Cut);
    let store = server.store();
    let outcomes = store.renew(&claims(1), soon());
    assert!(why(&outcomes).contains("was closed"), "{outcomes:?}");
    assert!(!node(&store).has_renewing());
    assert_eq!(sizes(&server), [1]);
}

#[test]
fn a_connection_to_a_server_that_takes_no_writes_is_of_no_use() {
    let server = server(|_, _| error("READONLY You can't write against a read only replica."));
    let route = Route::to(&server);
    let store = route.store();
    let outcomes = store.renew(&claims(1), soon());
    assert!(why(&outcomes).starts_with("READONLY"), "{outcomes:?}");
    assert!(!node(&store).has_renewing());
    assert_eq!(route.suspected(), [0]);
}

#[test]
fn a_server_that_is_not_there_is_looked_for_once() {
    let server = server(|_, _| renewed());
    let route = Route::to(&server);
    route.fail(true);
    let outcomes = route.store().renew(&claims(1), soon());
    assert_eq!(why(&outcomes), "there is no server");
    assert_eq!(route.tries().len(), 1);
}

#[test]
fn the_answer_to_a_part_has_its_number_and_no_other_one_has() {
    let part = Expected::Part {
        part: 3,
        number: 7,
        by_text: false,
    };
    assert_eq!(part.number(), Some(7));
    assert_eq!(Expected::Nothing.number(), None);
    let replicas = Expected::Replicas(Replication {
        replicas: 1,
        timeout: Duration::ZERO,
    });
    assert_eq!(replicas.number(), None);
}

fn lock() -> LockId {
    LockId {
        kind: Kind::Reentrant,
        name: "lock-0".into(),
    }
}

#[test]
fn the_script_is_known_before_the_first_renewal() {
    let server = server(|_, _| renewed());
    let store = server.store();
    store.prepare_renewal(&lock(), soon());
    assert!(node(&store).has_renewing());
    assert!(are_renewed(&store.renew(&claims(1), soon())));
    let expected = [("EVAL".to_owned(), 0), ("EVALSHA".to_owned(), 1)];
    assert_eq!(calls(&server), expected);
    assert_eq!(server.connected(), 1);
}

#[test]
fn a_script_that_could_not_be_made_known_has_its_text_sent_with_it() {
    let server = server(|call, _| match call {
        0 => error("NOSCRIPT No matching script."),
        _ => renewed(),
    });
    let store = server.store();
    store.prepare_renewal(&lock(), soon());
    assert!(are_renewed(&store.renew(&claims(1), soon())));
    assert_eq!(calls(&server)[1..], [("EVAL".to_owned(), 1)]);
}

#[test]
fn what_cannot_be_sent_makes_no_script_known() {
    let server = server(|_, _| renewed());
    let mut connection = node(&server.store()).take_renewing(soon()).unwrap();
    assert!(!makes_known(
        Kind::Reentrant,
        &mut connection,
        Instant::now()
    ));
    assert!(makes_known(Kind::Reentrant, &mut connection, soon()));
}

/// A node of a quorum at a server that renews, which tells who it is.
fn voting(answers: impl Fn() -> Says + Send + 'static) -> (RedisNode, StubServer) {
    let server = StubServer::start(move |request| match request.is_script() {
        true => Some(answers()),
        false => identity("a", request),
    });
    (server.store().as_node().unwrap(), server)
}

#[test]
fn a_node_of_a_quorum_renews_over_a_connection_that_is_there() {
    let (node, server) = voting(renewed);
    let (handle, claims) = (handle(), claims(2));
    let unsent = node.send_renew(&claims, &handle, soon());
    assert!(matches!(unsent, Pending::NotConnected));
    assert!(
        node.connect(&handle, Purpose::Renewal, soon())
            .unwrap()
            .is_ok()
    );
    let Pending::Sent(sent) = node.send_renew(&claims, &handle, soon()) else {
        panic!("it was not sent");
    };
    assert!(sent.source().is_some());
    let outcomes = sent.receive(soon()).unwrap().unwrap();
    assert!(
        outcomes.len() == 2 && are_renewed(&outcomes),
        "{outcomes:?}"
    );
    assert_eq!((server.connected(), sizes(&server)), (1, vec![2]));
    assert!(node.is_ready(Purpose::Renewal));
}

#[test]
fn a_node_without_a_vote_renews_nothing() {
    let (node, server) = voting(renewed);
    let (handle, claims) = (handle(), claims(1));
    outdate(&handle, "b");
    let joined = node.connect(&handle, Purpose::Renewal, soon());
    assert!(matches!(joined, Ok(Err(_))), "{joined:?}");
    let Pending::Ready(Ok(outcomes)) = node.send_renew(&claims, &handle, soon()) else {
        panic!("it was sent, or there was no connection");
    };
    assert!(why(&outcomes).contains("no vote"), "{outcomes:?}");
    assert!(sizes(&server).is_empty());
    assert!(node.is_ready(Purpose::Renewal), "it may have one later");
}

#[test]
fn a_node_of_a_quorum_keeps_no_connection_that_owes_an_answer() {
    let (node, _server) = voting(|| Says::Nothing);
    let (handle, claims) = (handle(), claims(1));
    assert!(
        node.connect(&handle, Purpose::Renewal, soon())
            .unwrap()
            .is_ok()
    );
    let Pending::Sent(sent) = node.send_renew(&claims, &handle, soon()) else {
        panic!("it was not sent");
    };
    let outcomes = sent.receive(within(20)).unwrap().unwrap();
    assert!(!why(&outcomes).is_empty());
    assert!(!node.server.has_renewing());
}
