//! The votes of servers, as far as they are known without another question.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::stores::redis::tests::stub::voter::{handle, identity, outdate};
use crate::stores::redis::tests::stub::{Request, Route, StubServer, soon};
use crate::stores::redis::transport::Connector as _;

fn questions(server: &StubServer) -> usize {
    let is_question = |request: &&Request| request.is("INFO server");
    server.asked().iter().filter(is_question).count()
}

#[test]
fn a_server_is_known_once_it_was_asked() {
    let server = StubServer::start(|request| identity("a", request));
    let (mut connection, handle) = (Route::to(&server).connect(soon()).unwrap(), handle());
    assert!(!is_known(&mut connection, &handle));
    let told = vote_on(&mut connection, &handle, soon()).unwrap();
    assert_eq!((&*told.run, &*told.history), ("a", "history-of-a"));
    assert!(is_known(&mut connection, &handle));
    vote_on(&mut connection, &handle, soon()).unwrap();
    assert_eq!(questions(&server), 1);
}

#[test]
fn a_server_without_a_vote_is_known_as_well() {
    let server = StubServer::start(|request| identity("a", request));
    let (mut connection, handle) = (Route::to(&server).connect(soon()).unwrap(), handle());
    outdate(&handle, "b");
    // The node was another server before.
    let refused = vote_on(&mut connection, &handle, soon());
    assert!(matches!(refused, Err(CallError::NoVote(_))), "{refused:?}");
    assert!(is_known(&mut connection, &handle));
}

#[test]
fn a_server_that_was_another_one_meanwhile_is_asked_again() {
    let server = StubServer::start(|request| identity("a", request));
    let (mut connection, handle) = (Route::to(&server).connect(soon()).unwrap(), handle());
    vote_on(&mut connection, &handle, soon()).unwrap();
    outdate(&handle, "b");
    server.answer(|request| identity("b", request));
    let told = vote_of(&mut connection, &handle, soon()).unwrap();
    assert!(
        connection.identity().is_some_and(|it| &*it.run == "b"),
        "{told:?}"
    );
    assert_eq!(questions(&server), 2);
    outdate(&handle, "c");
    assert!(!is_known(&mut connection, &handle));
    assert!(!connection.is_identified());
}
