//! The thread that looks after the master, and its checks one by one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;

use super::scene::{Does, Follows, Master, Scene, cut, ms, soon, until};
use super::watch::Check;
use super::*;
use crate::stores::redis::tests::stub::Says;

fn check(scene: &Scene) -> &'static str {
    match scene.client.shared.check() {
        Check::Settled => "settled",
        Check::Unsure => "unsure",
        Check::Unreached => "unreached",
    }
}

#[test]
fn a_check_of_a_master_that_nobody_knows_asks_nobody() {
    let scene = Scene::of(&[Master(0, 1), Master(0, 1), Master(0, 1)]);
    assert_eq!(check(&scene), "settled");
    assert_eq!(scene.asked(), [0, 0, 0]);
}

#[test]
fn a_master_that_all_name_is_left_in_peace() {
    let scene = Scene::settled(3);
    let before = scene.servers[0].connected();
    assert_eq!(check(&scene), "settled");
    assert_eq!(scene.asked(), [2, 2, 2]);
    assert_eq!(scene.servers[0].connected(), before);
    scene.tell(&[cut(), cut(), cut()]);
    assert_eq!(check(&scene), "settled");
    assert_eq!(scene.master(), Some(0));
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
fn a_check_leaves_a_master_that_was_replaced_by_one_that_is_not_reached() {
    let scene = Scene::settled(3);
    scene.does(1, Does::Other(Says::Cut));
    scene.tell(&[Master(1, 2), Master(1, 2), Master(1, 2)]);
    for _ in 0..2 {
        assert_eq!(check(&scene), "unreached");
        assert_eq!((scene.master(), scene.client.generation()), (None, 1));
    }
    scene.does(1, super::scene::Rules);
    assert_eq!(check(&scene), "settled");
    assert_eq!(scene.master(), Some(1));
}

#[test]
fn the_last_sentinel_of_a_check_gets_all_of_the_time_that_is_left() {
    let scene = Scene::settled(2);
    let new = scene.servers[1].address();
    scene.sentinels[1].answer(move |request| {
        let (host, port) = new.rsplit_once(':').unwrap();
        let address = Value::Array(vec![text(host), text(port)]);
        // A third of it is too short for that.
        let late = Says::Later(ms(600), Box::new(Says::Reply(address)));
        let details = Value::Array(vec![text("config-epoch"), text("2")]);
        match request.is("SENTINEL MASTER") {
            true => Some(Says::Reply(details)),
            false => request.is("SENTINEL").then_some(late),
        }
    });
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

#[test]
fn a_switch_that_a_sentinel_tells_of_is_followed_at_once() {
    let scene = Scene::settled(3);
    let begun = Instant::now();
    scene.client.connect(soon()).unwrap();
    until(|| scene.listened().iter().sum::<usize>() > 0);
    scene.tell(&[Master(1, 2), Master(1, 2), Master(1, 2)]);
    until(|| {
        for sentinel in &scene.sentinels {
            sentinel.publish("+switch-master", "m h 1 h 2");
        }
        thread::sleep(ms(20));
        scene.master() == Some(1)
    });
    // By itself the thread looks after ten seconds.
    assert!(begun.elapsed() < ms(9000));
    scene.client.close();
}

#[test]
fn a_sentinel_that_does_not_answer_is_left_for_the_next_one() {
    let scene = Scene::with(&[Master(0, 1), Master(0, 1)], ms(300));
    assert_eq!(scene.connect(), Ok(0));
    scene.mute();
    scene.client.connect(soon()).unwrap();
    until(|| {
        // It is in use all the time.
        scene.client.generation();
        scene.listened()[1] > 0
    });
    scene.client.close();
}

#[test]
fn a_client_that_nobody_uses_is_not_looked_after() {
    let scene = Scene::with(&[Master(0, 1), Master(0, 1), Master(0, 1)], ms(300));
    scene.client.connect(soon()).unwrap();
    let known_master = &scene.client.shared.known_master;
    until(|| known_master.generation() == 1);
    assert_eq!(scene.master(), None);
    let so_far = (scene.asked(), scene.listened());
    thread::sleep(ms(250));
    assert_eq!((scene.asked(), scene.listened()), so_far);
    // The next one that needs it wakes the thread.
    scene.client.connect(soon()).unwrap();
    until(|| scene.listened().iter().sum::<usize>() > so_far.1.iter().sum());
    assert_eq!(scene.master(), Some(0));
    scene.client.close();
}

#[test]
fn a_client_in_use_is_looked_after_all_the_time() {
    let scene = Scene::with(&[Master(0, 1), Master(0, 1), Master(0, 1)], ms(300));
    scene.client.connect(soon()).unwrap();
    until(|| {
        assert_eq!(scene.client.generation(), 0);
        scene.asked().iter().sum::<usize>() >= 3 * 8
    });
    scene.client.close();
}

#[test]
fn sentinels_that_cannot_be_listened_to_are_tried_after_growing_pauses() {
    let scene = Scene::of(&[Master(0, 1), Master(0, 1)]);
    scene.client.shared.connect(soon()).unwrap();
    for (at, sentinel) in scene.sentinels.iter().enumerate() {
        sentinel.answer(|request| request.is("SUBSCRIBE").then_some(Says::Cut));
        assert_eq!(scene.listened()[at], 0);
    }
    let _ = scene.client.connect(Instant::now());
    until(|| scene.listened().iter().all(|count| *count > 0));
    let end = Instant::now() + ms(300);
    until(|| {
        // It is in use all the time.
        scene.client.generation();
        Instant::now() >= end
    });
    let tries = scene.listened().iter().sum::<usize>();
    assert!(tries <= 12, "{tries}");
    scene.client.close();
}

#[test]
fn a_failover_of_which_too_few_tell_is_looked_at_again_after_growing_pauses() {
    let scene = Scene::of(&[Master(0, 1), Master(0, 1), Master(0, 1)]);
    scene.client.shared.connect(soon()).unwrap();
    scene.tell(&[Master(0, 1), Master(0, 1), Master(1, 2)]);
    // The answer to a PING is waited for longer than the next look.
    scene.mute();
    let before = scene.asked()[2];
    scene.client.connect(soon()).unwrap();
    until(|| scene.asked()[2] >= before + 2);
    thread::sleep(ms(1000));
    let checks = scene.asked()[2] - before;
    assert!((2..=5).contains(&checks), "{checks}");
    assert_eq!(scene.listened(), [1, 0, 0]);
    assert_eq!(scene.master(), Some(0));
    scene.client.close();
}
