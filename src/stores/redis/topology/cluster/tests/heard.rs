//! Channels, each heard at the master of its slot.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::channels::ChannelInterest;
use super::scene::{Scene, soon, until};
use super::*;
use crate::stores::redis::tests::stub::bulk;

/// A channel in the slots of the first server of two.
const CHANNEL: &str = "b";

fn listen(scene: &Scene) -> (ChannelInterest, bool) {
    scene.cluster.listen(&CHANNEL.into(), true)
}

fn until_heard(scene: &Scene) {
    until(|| scene.cluster.messages(CHANNEL).is_some());
}

fn wanted(scene: &Scene) -> usize {
    let map = scene.cluster.channels.lock();
    map.waiters_of(CHANNEL)
}

#[test]
fn a_channel_is_heard_at_the_master_of_its_slot_as_long_as_somebody_waits() {
    let scene = Scene::halves();
    assert!(scene.cluster.messages(CHANNEL).is_none());
    let (one, is_live) = listen(&scene);
    assert!(!is_live, "nothing is confirmed yet");
    until_heard(&scene);
    let messages = scene.shard(0).node.subscriber.messages(CHANNEL).unwrap();
    let told = scene.cluster.messages(CHANNEL).unwrap();
    assert!(Arc::ptr_eq(&told, &messages));
    let (other, is_live) = listen(&scene);
    assert!(is_live);
    assert_eq!(
        (scene.count(0, "SUBSCRIBE b"), scene.count(1, "SUBSCRIBE")),
        (1, 0)
    );
    assert_eq!(wanted(&scene), 2);
    drop(one);
    assert_eq!(wanted(&scene), 1);
    assert!(scene.cluster.messages(CHANNEL).is_some());
    drop(other);
    assert_eq!(wanted(&scene), 0);
    assert!(scene.cluster.messages(CHANNEL).is_none());
    scene.cluster.close();
}

#[test]
fn a_channel_whose_slot_is_not_known_is_heard_once_it_is() {
    let scene = Scene::of(1, 1, &[(0, 16383, 0)]);
    let (_interest, is_live) = listen(&scene);
    assert!(!is_live);
    scene.cluster.refresh(soon()).unwrap();
    until_heard(&scene);
    scene.cluster.close();
}

#[test]
fn a_channel_goes_with_its_slot() {
    let scene = Scene::halves();
    let _interest = listen(&scene);
    until_heard(&scene);
    scene.tell(&[(0, 8191, 1), (8192, 16383, 0)]);
    scene.refresh().unwrap();
    until(|| scene.count(1, "SUBSCRIBE b") == 1);
    until(|| {
        let heard = scene.shard(1).node.subscriber.messages(CHANNEL);
        let told = scene.cluster.messages(CHANNEL);
        heard
            .zip(told)
            .is_some_and(|(heard, told)| Arc::ptr_eq(&heard, &told))
    });
    // At the one before nobody waits for it any more.
    scene.tell(&[(0, 16383, 1)]);
    scene.refresh().unwrap();
    assert_eq!(scene.count(1, "SUBSCRIBE b"), 1);
    scene.cluster.close();
}

#[test]
fn nobody_listens_for_a_closed_client() {
    let scene = Scene::of(1, 1, &[(0, 16383, 0)]);
    let (_before, _) = listen(&scene);
    scene.cluster.close();
    let (_behind, is_live) = listen(&scene);
    assert!(!is_live);
    scene.cluster.refresh(soon()).unwrap();
    let _later = listen(&scene);
    let channels = scene.cluster.channels.lock();
    assert!(!channels.is_heard(CHANNEL));
}

#[test]
fn the_end_of_a_client_ends_the_threads_of_all_its_masters() {
    let scene = Scene::halves();
    let _interest = listen(&scene);
    until_heard(&scene);
    let [first, second] = [scene.shard(0), scene.shard(1)];
    let _other = second.node.subscriber.listen(&"x".into(), true);
    scene.tell(&[(0, 16383, 0)]);
    assert!(!first.node.subscriber.is_over() && !second.node.subscriber.is_over());
    scene.refresh().unwrap();
    // The one that is left ends, too.
    scene.cluster.close();
    assert!(first.node.subscriber.is_over() && second.node.subscriber.is_over());
    assert!(scene.cluster.map.lock().is_closed);
}

#[test]
fn a_server_that_gives_a_sharded_channel_up_is_in_doubt() {
    let scene = Scene::with(1, 1, &[(0, 16383, 0)], |settings| {
        settings.sharded = Some(true);
    });
    scene.cluster.refresh(soon()).unwrap();
    let _interest = listen(&scene);
    until_heard(&scene);
    assert_eq!(scene.count(0, "SSUBSCRIBE b"), 1);
    assert!(!scene.shard(0).is_doubtful());
    let left = Value::Array(vec![bulk("sunsubscribe"), bulk(CHANNEL), Value::Int(0)]);
    scene.servers[0].push(&left);
    until(|| scene.shard(0).is_doubtful());
    scene.cluster.close();
}
