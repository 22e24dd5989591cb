//! The search for the master.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::scene::{Does, Follows, Master, Rules, Scene, Told, Unknown, cut};
use super::*;
use crate::stores::redis::tests::stub::Says;

#[test]
fn a_later_failover_is_followed_once_enough_sentinels_tell_of_it() {
    let scene = Scene::settled(3);
    scene.tell(&[Master(1, 2), Master(0, 1), Master(0, 1)]);
    assert_eq!(scene.connect(), Ok(0), "one alone is not enough");
    assert_eq!(
        (scene.asked(), scene.order()),
        (vec![2, 2, 1], vec![1, 2, 0])
    );
    scene.tell(&[Master(1, 2), Master(1, 2), Master(1, 2)]);
    assert_eq!(scene.connect(), Ok(1));
    assert_eq!(scene.client.generation(), 1);
    // Back again by most of them, without a later one.
    scene.tell(&[Master(0, 1), Master(0, 1), Master(0, 1)]);
    assert_eq!(scene.connect(), Ok(0));
    assert_eq!(scene.client.generation(), 2);
}

#[test]
fn a_new_master_is_used_where_the_one_before_is_still_named_by_the_first() {
    let scene = Scene::settled(3);
    scene.does(0, Does::Other(Says::cut()));
    scene.tell(&[Master(0, 1), Master(1, 2), Master(1, 2)]);
    assert_eq!(scene.connect(), Ok(1));
}

#[test]
fn a_master_that_still_answers_is_used_where_one_sentinel_alone_tells_otherwise() {
    let scene = Scene::settled(3);
    scene.tell(&[Master(1, 2), cut(), cut()]);
    assert_eq!(scene.connect(), Ok(0));
}

/// A master known last that is missed, and sentinels of which the first one alone tells of a later failover.
fn lone(does: Does, others: &Told) -> (Result<usize, CallError>, Scene) {
    let scene = Scene::settled(3);
    scene.does(0, does);
    scene.tell(&[Master(1, 2), others.clone(), others.clone()]);
    (scene.connect(), scene)
}

#[test]
fn one_sentinel_alone_is_believed_where_the_master_known_last_is_none() {
    let (master, scene) = lone(Does::Other(Says::cut()), &cut());
    assert_eq!(master, Ok(1));
    assert_eq!(
        scene
            .client
            .shared
            .believed
            .lock()
            .as_ref()
            .map(|it| it.epoch),
        Some(2)
    );
    assert_eq!(lone(Follows, &cut()).0, Ok(1));
    assert_eq!(lone(Follows, &Unknown).0, Ok(1));
}

#[test]
fn one_sentinel_alone_is_not_believed_where_the_master_has_answered_or_others_name_it() {
    // Somebody has to hear that the password is wrong.
    let refusing = Does::Other(Says::error("NOAUTH no"));
    let (fault, scene) = lone(refusing, &cut());
    let said = format!("{}: NOAUTH no", scene.servers[0].address());
    assert_eq!(fault, Err(CallError::Server(said)));
    let (fault, scene) = lone(Does::Other(Says::cut()), &Master(0, 1));
    let fault = fault.err().unwrap();
    let [old, new] = [0, 1].map(|at| scene.servers[at].address());
    let words = format!(
        "{old}: the connection was closed before the reply; one sentinel names {new} since failover 2, but is not \
         believed: others name {old}"
    );
    assert_eq!(fault, CallError::NotSent(words.into()));
    let scene = Scene::settled(3);
    scene.does(0, Follows);
    scene.does(1, Follows);
    scene.tell(&[Master(1, 2), cut(), cut()]);
    let fault = scene.connect().err().unwrap();
    let both = fault
        .reason()
        .matches("which a sentinel calls master, is a slave ()")
        .count();
    assert_eq!(both, 2, "{fault:?}");
}

#[test]
fn where_no_sentinel_is_of_use_it_is_said_why() {
    let scene = Scene::of(&[Unknown]);
    let fault = scene.connect().err().unwrap();
    let node = scene.sentinels[0].address();
    let words = format!("the sentinel {node}: it knows no master m");
    assert_eq!(fault, CallError::NotSent(words.into()));
    let refusing = Told::Other(Says::error("NOAUTH no"));
    let scene = Scene::of(&[Master(0, 1), Master(0, 1), refusing]);
    scene.does(0, Follows);
    let fault = scene.connect().err().unwrap();
    // The details may be refused, but not the name.
    assert!(
        matches!(&fault, CallError::Server(it) if it.ends_with(": NOAUTH no")),
        "{fault:?}"
    );
    let scene = Scene::of(&[]);
    let fault = scene.connect().err();
    assert_eq!(fault, Some(CallError::NotSent("no sentinel to ask".into())));
}

#[test]
fn a_master_that_was_replaced_is_left_although_the_new_one_is_not_reached() {
    let scene = Scene::settled(3);
    scene.does(1, Does::Other(Says::cut()));
    scene.tell(&[Master(1, 2), Master(1, 2), Master(1, 2)]);
    assert!(scene.connect().is_err());
    assert_eq!((scene.master(), scene.client.generation()), (None, 1));
    scene.does(1, Rules);
    assert_eq!(scene.connect(), Ok(1));
}
