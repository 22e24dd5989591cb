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

fn no_reply() -> CallError {
    CallError::NoReply {
        reason: "lost".into(),
        timed_out: true,
    }
}

#[test]
fn a_request_goes_to_the_master_of_its_slot() {
    let scene = Scene::of(2, 2, &[(0, 8191, 0), (8192, 16383, 1)]);
    let whole = format!("the cluster of {}, {}", scene.name(0), scene.name(1));
    assert_eq!(*scene.cluster.whole_name(), *whole);
    assert_eq!(*scene.cluster.name("a"), *whole);
    for (at, lock) in LOCKS.iter().enumerate() {
        let node = scene.cluster.with(lock, soon(), |node, _| Ok(node.name()));
        assert_eq!(*node.unwrap(), *scene.name(at));
        assert_eq!(*scene.cluster.name(lock), *scene.name(at));
    }
    // The map was told once, and nothing is in doubt.
    assert_eq!(scene.maps_told(0) + scene.maps_told(1), 1);
    assert_eq!(scene.cluster.shards().len(), 2);
    assert_eq!(scene.taken_over(), 0);
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
fn a_master_is_in_doubt_after_what_may_be_its_own_fault() {
    for (fault, is_doubtful) in [
        (no_reply(), true),
        (CallError::Untrusted("whose".into()), true),
        (CallError::Server("ERR no".into()), false),
        (CallError::Exhausted(1), false),
    ] {
        let scene = Scene::halves();
        let mut tries = 0;
        let outcome: Result<(), _> = scene.cluster.with("b", soon(), |_, _| {
            tries += 1;
            Err(fault.clone())
        });
        assert_eq!((outcome, tries), (Err(fault.clone()), 1));
        assert_eq!(scene.shard(0).is_doubtful(), is_doubtful, "{fault:?}");
        assert!(!scene.shard(1).is_doubtful());
    }
    let scene = ready();
    let by = Instant::now() + Duration::from_millis(30);
    let readonly = || CallError::Server("READONLY it is a replica".into());
    let outcome: Result<(), _> = scene.cluster.with("b", by, |_, _| {
        until(|| Instant::now() >= by);
        Err(readonly())
    });
    assert_eq!(outcome, Err(readonly()));
    assert!(scene.shard(0).is_doubtful());
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

#[test]
fn each_master_gets_its_part_of_the_time_in_the_order_of_their_names() {
    let scene = Scene::halves();
    let mut parts = Vec::new();
    let begun = Instant::now();
    let told = scene
        .cluster
        .each(begun + Duration::from_secs(40), &mut |node, _, by| {
            parts.push(by.saturating_duration_since(begun).as_secs());
            Ok(node.name())
        });
    let mut names = [scene.name(0), scene.name(1)];
    names.sort();
    let expected = names.map(|name| (Arc::from(&*name), Ok(Arc::from(&*name))));
    assert_eq!(told, expected);
    assert!((18..=25).contains(&parts[0]) && parts[1] >= 35, "{parts:?}");
}

#[test]
fn a_cluster_that_nobody_tells_of_is_one_fault() {
    let scene = Scene::of(2, 2, &[]);
    let told = scene.cluster.each(soon(), &mut |_, _, _| Ok(()));
    let [(name, Err(CallError::NotSent(_)))] = &*told else {
        panic!("{told:?}");
    };
    assert_eq!(*name, scene.cluster.whole_name());
    let next = scene
        .cluster
        .at_next(&[], true, soon(), &mut |_, _, _| Ok(()));
    let Some((name, Err(CallError::NotSent(_)))) = &next else {
        panic!("{next:?}");
    };
    assert_eq!(*name, scene.cluster.whole_name());
}

#[test]
fn masters_are_taken_one_after_the_other_by_name() {
    let scene = Scene::halves();
    let mut names = [scene.name(0), scene.name(1)].map(|name| Arc::<str>::from(&*name));
    names.sort();
    let [first, second] = &names;
    let mut calls = 0;
    let mut next = |done: &[Arc<str>], begins| {
        scene
            .cluster
            .at_next(done, begins, soon(), &mut |node, _, name| {
                calls += 1;
                assert_eq!(node.name(), *name);
                Ok(calls)
            })
    };
    assert_eq!(next(&[], false), Some((Arc::clone(first), Ok(1))));
    assert_eq!(
        next(&[Arc::clone(first)], false),
        Some((Arc::clone(second), Ok(2)))
    );
    assert_eq!(
        next(&[Arc::clone(second)], false),
        Some((Arc::clone(first), Ok(3)))
    );
    assert_eq!(next(&names, false), None);
    let told = || scene.maps_told(0) + scene.maps_told(1);
    assert_eq!(told(), 1);
    scene.later();
    assert_eq!(next(&names, false), None);
    assert_eq!(told(), 1);
    assert_eq!(next(&names, true), None);
    assert_eq!(told(), 2);
}

#[test]
fn a_master_that_fails_is_looked_up_again_if_that_may_help() {
    let scene = Scene::halves();
    scene.later();
    let mut tries = 0;
    let told = scene.cluster.at_next(&[], false, soon(), &mut |_, _, _| {
        tries += 1;
        match tries {
            1 => Err(CallError::Server("LOADING it is".into())),
            _ => Ok(tries),
        }
    });
    assert_eq!(told.unwrap().1, Ok(2));
    assert_eq!(scene.maps_told(0) + scene.maps_told(1), 2);
    let mut tries = 0;
    let told = scene
        .cluster
        .at_next::<()>(&[], false, soon(), &mut |_, _, _| {
            tries += 1;
            Err(no_reply())
        });
    assert_eq!((told.unwrap().1, tries), (Err(no_reply()), 1));
    // Nor is it where the time is over.
    let scene = ready();
    let by = Instant::now() + Duration::from_millis(20);
    let told = scene.cluster.at_next::<()>(&[], false, by, &mut |_, _, _| {
        until(|| Instant::now() >= by);
        Err(CallError::Server("LOADING it is".into()))
    });
    assert!(told.unwrap().1.is_err());
}

#[test]
fn a_closed_cluster_goes_on_with_connections_that_it_does_not_keep() {
    let scene = Scene::halves();
    assert_eq!(ping(&scene, "b"), Ok(pong()));
    assert_eq!(scene.shard(0).node.pool.idle(), 1);
    scene.cluster.close();
    assert_eq!(scene.shard(0).node.pool.idle(), 0);
    assert!(!scene.shard(0).node.pool.keeps());
    assert_eq!(ping(&scene, "b"), Ok(pong()));
    assert_eq!(scene.shard(0).node.pool.idle(), 0);
    // So it is with masters found later.
    let mut map = scene.cluster.map.lock();
    let new = scene.cluster.shard(&mut map, "127.0.0.1", 1);
    assert!(!new.node.pool.keeps());
    assert_eq!(scene.count(0, "PING"), 2);
}
