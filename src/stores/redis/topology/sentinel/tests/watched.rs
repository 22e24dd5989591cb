//! The thread that looks after the master, and its checks one by one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::scene::{Follows, Master, Scene, cut};
use super::watch::Check;
use super::*;

fn check(scene: &Scene) -> &'static str {
    match scene.client.shared.check() {
        Check::Settled => "settled",
        Check::Unsure => "unsure",
        Check::Unreached => "unreached",
    }
}

#[test]
fn a_check_follows_a_later_failover_of_which_enough_tell() {
    let scene = Scene::settled(3);
    scene.tell(&[Master(1, 2), Master(1, 2), Master(0, 1)]);
    assert_eq!(check(&scene), "settled");
    assert_eq!((scene.master(), scene.client.generation()), (Some(1), 1));
    // The one that is behind says nothing new.
    assert_eq!(check(&scene), "settled");
    scene.tell(&[Master(1, 2), Master(1, 2), Master(1, 3)]);
    assert_eq!(check(&scene), "unsure");
    assert_eq!(scene.master(), Some(1));
}

#[test]
fn a_check_believes_one_sentinel_alone_where_the_master_is_none() {
    let scene = Scene::settled(3);
    scene.tell(&[Master(1, 2), cut(), cut()]);
    assert_eq!(check(&scene), "unsure");
    assert_eq!(scene.master(), Some(0));
    scene.does(0, Follows);
    assert_eq!(check(&scene), "settled");
    assert_eq!(scene.master(), Some(1));
}

#[test]
fn only_the_message_of_this_master_is_about_it() {
    let scene = Scene::of(&[Master(0, 1)]);
    let is_ours = |parts: &[&str]| {
        let parts = parts.iter().map(|part| text(part)).collect();
        scene.client.shared.concerns_us(&Value::Array(parts))
    };
    assert!(is_ours(&["message", "+switch-master", "m h 1 h 2"]));
    assert!(!is_ours(&["message", "+switch-master", "other h 1 h 2"]));
    assert!(!is_ours(&["message", "+switch-master", "mm m"]));
    assert!(!is_ours(&["subscribe", "+switch-master", "m h 1 h 2"]));
    assert!(!is_ours(&["message", "m h 1 h 2"]));
    assert!(!scene.client.shared.concerns_us(&text("m")));
}
