//! Which master has which slot, and how that is found out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::scene::{Scene, soon};
use super::*;

const ALL: &[scene::Slots] = &[(0, 16383, 0)];

#[test]
fn a_slot_is_in_the_range_from_its_first_to_its_last() {
    let scene = Scene::of(2, 1, &[(30, 40, 1), (10, 20, 0)]);
    scene.cluster.refresh(soon()).unwrap();
    for (slot, at) in [
        (0, None),
        (9, None),
        (10, Some(0)),
        (15, Some(0)),
        (20, Some(0)),
        (21, None),
        (29, None),
        (30, Some(1)),
        (40, Some(1)),
        (41, None),
        (16383, None),
    ] {
        assert_eq!(scene.index(scene.cluster.present(slot)), at, "{slot}");
    }
}

#[test]
fn a_slot_that_no_server_has_is_asked_for_at_any() {
    let scene = Scene::of(1, 1, &[(10, 20, 0)]);
    let any = scene.cluster.master(5, soon());
    assert_eq!(scene.index(any.ok()), Some(0));
    // Unless none is known.
    let scene = Scene::of(1, 1, ALL);
    scene.hold();
    let none = scene.cluster.master(5, soon()).err();
    let words = "no node of the cluster serves slot 5";
    assert_eq!(none, Some(CallError::NotSent(words.into())));
}

#[test]
fn the_map_is_asked_for_once_in_a_moment_and_its_trouble_is_told_meanwhile() {
    let scene = Scene::of(1, 1, ALL);
    scene.cluster.refresh(soon()).unwrap();
    scene.hold();
    assert_eq!(scene.cluster.refresh(soon()), Ok(()));
    assert_eq!(scene.maps_told(0), 1);
    scene.cluster.map.lock().asked_at = Some(Instant::now() - Duration::from_millis(101));
    assert_eq!(scene.cluster.refresh(soon()), Ok(()));
    assert_eq!(scene.maps_told(0), 2);
    scene.tell(&[]);
    let trouble = scene.refresh();
    let words = format!("{}: it knows of no slots", scene.name(0));
    assert_eq!(trouble, Err(CallError::NotSent(words.into())));
    scene.hold();
    assert_eq!(scene.cluster.refresh(soon()), trouble);
    assert_eq!(scene.maps_told(0), 3);
    scene.tell(ALL);
    assert_eq!(scene.refresh(), Ok(()));
    scene.hold();
    assert_eq!(scene.cluster.refresh(soon()), Ok(()));
}

#[test]
fn only_a_master_in_doubt_has_the_map_asked_for_and_is_used_if_nobody_tells_one() {
    let scene = Scene::of(2, 1, &[(0, 99, 0), (100, 199, 1)]);
    let fault = Scene::of(1, 1, &[]).cluster.master(5, soon()).err();
    assert!(matches!(fault, Some(CallError::NotSent(_))), "{fault:?}");
    for _ in 0..2 {
        scene.later();
        assert_eq!(scene.index(scene.cluster.master(5, soon()).ok()), Some(0));
    }
    let told = || scene.maps_told(0) + scene.maps_told(1);
    assert_eq!(told(), 1);
    scene.shard(0).suspect();
    scene.later();
    assert_eq!(scene.index(scene.cluster.master(105, soon()).ok()), Some(1));
    assert_eq!(told(), 1);
    assert_eq!(scene.index(scene.cluster.master(5, soon()).ok()), Some(0));
    assert_eq!(told(), 2);
    assert!(!scene.shard(0).is_doubtful(), "the new map says so, too");
    scene.shard(0).suspect();
    scene.tell(&[]);
    scene.later();
    assert_eq!(scene.index(scene.cluster.master(5, soon()).ok()), Some(0));
}
