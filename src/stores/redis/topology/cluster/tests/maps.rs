//! Which master has which slot, and how that is found out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::mpsc;
use std::thread;

use super::scene::{Scene, soon, until};
use super::*;
use crate::stores::redis::tests::stub::Says;

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
fn nobody_asks_for_the_map_while_another_one_does() {
    let scene = Scene::of(1, 1, ALL);
    let (open, gate) = mpsc::channel();
    scene.on(0, move |request| {
        if request.is("CLUSTER SLOTS") {
            let _ = gate.recv_timeout(Duration::from_secs(20));
        }
        None
    });
    thread::scope(|scope| {
        let refresh = || scene.cluster.refresh(soon());
        let first = scope.spawn(refresh);
        until(|| scene.maps_told(0) == 1);
        let hasty = scene
            .cluster
            .refresh(Instant::now() + Duration::from_millis(10));
        let words = "the slots of the cluster are not known yet";
        assert_eq!(hasty, Err(CallError::NotSent(words.into())));
        let second = scope.spawn(refresh);
        // Longer than it would be asked for once.
        thread::sleep(Duration::from_millis(200));
        open.send(()).unwrap();
        assert_eq!(
            (first.join().unwrap(), second.join().unwrap()),
            (Ok(()), Ok(()))
        );
    });
    assert_eq!(scene.maps_told(0), 1);
    assert!(!scene.cluster.map.lock().is_being_refreshed);
}

#[test]
fn somebody_else_is_asked_if_the_map_is_soon_in_doubt_again() {
    for (ago, asked) in [(0, [1, 1]), (6, [2, 0])] {
        let scene = Scene::of(2, 1, ALL);
        scene.tell_with_replicas(ALL, &[1]);
        scene.cluster.refresh(soon()).unwrap();
        assert_eq!([scene.maps_told(0), scene.maps_told(1)], [1, 0]);
        scene.cluster.map.lock().told_at = Some(Instant::now() - Duration::from_secs(ago));
        scene.refresh().unwrap();
        assert_eq!([scene.maps_told(0), scene.maps_told(1)], asked, "{ago} s");
    }
}

#[test]
fn a_node_that_fails_leaves_the_question_to_the_next_and_is_asked_last() {
    let scene = Scene::of(2, 2, ALL);
    let failed = |at: usize| {
        let map = scene.cluster.map.lock();
        let mut sources = map.sources.iter();
        let it = sources
            .find(|it| *it.address.node == *scene.name(at))
            .unwrap();
        (it.has_failed, it.asked_at.is_some())
    };
    assert_eq!((failed(0), failed(1)), ((false, false), (false, false)));
    scene.on(0, |request| {
        request.is("CLUSTER SLOTS").then_some(Says::Cut)
    });
    scene.cluster.refresh(soon()).unwrap();
    assert_eq!((failed(0), failed(1)), ((true, true), (false, true)));
    scene.refresh().unwrap();
    assert_eq!((scene.maps_told(0), scene.maps_told(1)), (1, 2));
    // What a server says is told before that another one cannot be reached.
    scene.on(0, |request| match request.is("CLUSTER SLOTS") {
        true => Says::error("NOPERM no"),
        false => None,
    });
    scene.on(1, |request| {
        request.is("CLUSTER SLOTS").then_some(Says::Cut)
    });
    let said = format!("{}: NOPERM no", scene.name(0));
    assert_eq!(scene.refresh(), Err(CallError::Server(said)));
}

#[test]
fn the_last_node_gets_all_of_the_time_that_is_left() {
    let scene = Scene::of(2, 2, ALL);
    scene.on(0, |request| {
        request.is("CLUSTER SLOTS").then_some(Says::Cut)
    });
    // A third of it is too short for that.
    let late = Duration::from_millis(600);
    scene.on(1, move |request| {
        let answer = Says::Error("ERR unknown subcommand".into());
        request
            .is("PUBSUB")
            .then(|| Says::Later(late, Box::new(answer)))
    });
    let by = Instant::now() + Duration::from_millis(1500);
    assert_eq!(scene.cluster.refresh(by), Ok(()));
}

#[test]
fn whether_messages_are_sharded_is_found_out_once() {
    let array = || Says::Reply(Value::Array(Vec::new()));
    for is_sharded in [true, false] {
        let scene = Scene::of(1, 1, ALL);
        scene.on(0, move |request| {
            (is_sharded && request.is("PUBSUB SHARDNUMSUB")).then(array)
        });
        scene.cluster.refresh(soon()).unwrap();
        assert_eq!(scene.shard(0).node.pool.is_sharded(), is_sharded);
        scene.refresh().unwrap();
        assert_eq!((scene.maps_told(0), scene.count(0, "PUBSUB")), (2, 1));
    }
    let scene = Scene::of(1, 1, ALL);
    scene.on(0, |request| request.is("PUBSUB").then_some(Says::Cut));
    assert!(matches!(scene.refresh(), Err(CallError::NotSent(_))));
    let scene = Scene::with(1, 1, ALL, |settings| settings.sharded = Some(true));
    scene.cluster.refresh(soon()).unwrap();
    assert!(scene.shard(0).node.pool.is_sharded());
    assert_eq!(scene.count(0, "PUBSUB"), 0);
}

#[test]
fn a_master_that_is_none_any_more_is_left_and_the_others_go_on() {
    let scene = Scene::of(3, 1, &[(0, 99, 0), (100, 199, 1)]);
    scene.cluster.refresh(soon()).unwrap();
    let (stays, goes) = (scene.shard(0), scene.shard(1));
    scene.cluster.map.lock().moved.insert(5, Arc::clone(&goes));
    scene.refresh().unwrap();
    assert_eq!(scene.taken_over(), 0, "it is the same map");
    assert_eq!(scene.index(scene.cluster.present(5)), Some(0));
    scene.tell_with_replicas(&[(0, 99, 0), (100, 199, 2)], &[1]);
    scene.refresh().unwrap();
    assert_eq!(scene.taken_over(), 1);
    assert!(Arc::ptr_eq(&scene.shard(0), &stays));
    assert_eq!(scene.index(scene.cluster.present(105)), Some(2));
    let left = |count| {
        let map = scene.cluster.map.lock();
        assert_eq!((map.shards.len(), map.retired.len()), (2, count));
        let nodes = map.sources.iter().map(|it| it.address.node.to_string());
        nodes.collect::<Vec<_>>()
    };
    assert_eq!(left(1), [scene.name(0), scene.name(2), scene.name(1)]);
    // Its thread has ended, for it never began.
    scene.refresh().unwrap();
    left(0);
}

#[test]
fn a_master_that_is_left_is_kept_until_its_thread_has_ended() {
    let scene = Scene::of(2, 1, &[(0, 99, 0), (100, 199, 1)]);
    scene.cluster.refresh(soon()).unwrap();
    let goes = scene.shard(1);
    // It does not end while it connects.
    scene.on(1, |request| request.is("CLIENT").then_some(Says::Nothing));
    let _heard = goes.node.subscriber.listen(&"channel".into(), true);
    until(|| scene.servers[1].connected() > 0);
    scene.tell(&[(0, 199, 0)]);
    // So that it is not asked for the map itself.
    scene.cluster.map.lock().told_at = None;
    scene.refresh().unwrap();
    scene.cluster.map.lock().told_at = None;
    scene.refresh().unwrap();
    assert_eq!(scene.cluster.map.lock().retired.len(), 1);
    scene.servers[1].cut_all();
    until(|| goes.node.subscriber.is_over());
    scene.refresh().unwrap();
    assert_eq!(scene.cluster.map.lock().retired.len(), 0);
}
