//! Requests, wherever their slots are.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::scene::{PING, Scene, pong, redirect, soon, until};
use super::*;

/// A lock in the slots of the first server of two, and one in those of the second.
const LOCKS: [&str; 2] = ["b", "a"];

fn ping(scene: &Scene, lock: &str) -> Result<Value, CallError> {
    scene
        .cluster
        .with(lock, soon(), |_, connection| connection.call(PING, soon()))
}

/// Two servers with a connection to each, and a map that stands.
fn ready() -> Scene {
    let scene = Scene::halves();
    for lock in LOCKS {
        assert_eq!(ping(&scene, lock), Ok(pong()));
    }
    scene.hold();
    scene
}

#[test]
fn a_slot_that_has_moved_is_asked_for_where_it_is_from_then_on() {
    for (count, is_new) in [(2, 0), (3, 1)] {
        let scene = Scene::of(count, 2, &[(0, 8191, 0), (8192, 16383, 1)]);
        scene.cluster.refresh(soon()).unwrap();
        let to = scene.name(count - 1);
        scene.on(0, move |request| match request.is("PING") {
            true => redirect("MOVED", "b", &to),
            false => None,
        });
        for _ in 0..2 {
            assert_eq!(ping(&scene, "b"), Ok(pong()));
        }
        assert_eq!(
            (scene.count(0, "PING"), scene.count(count - 1, "PING")),
            (1, 2)
        );
        assert_eq!(scene.count(count - 1, "ASKING"), 0);
        let slot = keys::slot("b");
        assert_eq!(scene.index(scene.cluster.present(slot)), Some(count - 1));
        assert_eq!(scene.index(scene.cluster.present(slot + 1)), Some(0));
        // The one that has lost it may have lost more.
        assert!(scene.shard(0).is_doubtful() && !scene.shard(1).is_doubtful());
        assert_eq!(scene.taken_over(), is_new);
    }
}

#[test]
fn a_slot_on_the_move_is_asked_for_elsewhere_once() {
    let scene = Scene::halves();
    let to = scene.name(1);
    scene.on(0, move |request| match request.is("PING") {
        true => redirect("ASK", "b", &to),
        false => None,
    });
    for asked in 1..=2 {
        assert_eq!(ping(&scene, "b"), Ok(pong()));
        assert_eq!(
            (scene.count(0, "PING"), scene.count(1, "ASKING")),
            (asked, asked)
        );
    }
    assert!(!scene.shard(0).is_doubtful());
    // The word is not said before the requests of others.
    assert_eq!(ping(&scene, "a"), Ok(pong()));
    assert_eq!((scene.count(1, "PING"), scene.count(1, "ASKING")), (3, 2));
}

#[test]
fn a_redirection_without_a_host_is_to_that_of_the_one_that_says_so() {
    let scene = Scene::halves();
    let address = scene.name(1);
    let (_, port) = address.rsplit_once(':').unwrap();
    let to = format!(":{port}");
    scene.on(0, move |request| match request.is("PING") {
        true => redirect("MOVED", "b", &to),
        false => None,
    });
    assert_eq!(ping(&scene, "b"), Ok(pong()));
    assert_eq!(scene.count(1, "PING"), 1);
}

#[test]
fn a_redirection_with_a_host_is_to_that_one() {
    let scene = Scene::halves();
    let to = scene.name(1).replace("127.0.0.1", "localhost");
    let name = to.clone();
    scene.on(0, move |request| match request.is("PING") {
        true => redirect("MOVED", "b", &to),
        false => None,
    });
    assert_eq!(ping(&scene, "b"), Ok(pong()));
    assert_eq!(*scene.cluster.name("b"), *name);
}

#[test]
fn a_request_that_is_redirected_too_often_waits_for_the_nodes_to_agree() {
    let scene = ready();
    let (mut tries, by) = (0, Instant::now() + Duration::from_millis(100));
    let moved = format!("MOVED {} {}", keys::slot("b"), scene.name(1));
    let outcome: Result<(), _> = scene.cluster.with("b", by, |_, _| {
        tries += 1;
        if tries > 5 {
            until(|| Instant::now() >= by);
        }
        Err(CallError::Server(moved.clone()))
    });
    let said = format!("TRYAGAIN redirected too often: {moved}");
    assert_eq!((outcome, tries), (Err(CallError::Server(said)), 6));
}

#[test]
fn what_was_not_executed_is_tried_again() {
    let scene = Scene::halves();
    let mut tries = 0;
    let outcome = scene.cluster.with("b", soon(), |_, _| {
        tries += 1;
        match tries {
            1 => Err(CallError::Server("LOADING it is".into())),
            _ => Ok(tries),
        }
    });
    assert_eq!(outcome, Ok(2));
}
