//! The connection over which a sentinel is asked.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::scene::{Master, Scene, Told, soon, until};
use super::*;
use crate::stores::redis::tests::stub::Says;

fn ask(scene: &Scene) -> Result<Option<Named>, CallError> {
    scene.client.shared.order()[0].ask("m", soon())
}

fn connected(scene: &Scene) -> usize {
    scene.sentinels[0].connected()
}

#[test]
fn a_connection_to_a_sentinel_is_kept_until_it_is_closed() {
    let scene = Scene::of(&[Master(0, 4)]);
    for _ in 0..3 {
        let named = ask(&scene).unwrap().unwrap();
        assert_eq!((named.node(), named.epoch), (scene.servers[0].address(), 4));
    }
    assert_eq!(connected(&scene), 1);
    // One that the sentinel has closed is replaced.
    scene.sentinels[0].cut_all();
    assert!(ask(&scene).unwrap().is_some());
    assert_eq!(connected(&scene), 2);
    scene.client.close();
    for count in 3..=4 {
        assert!(ask(&scene).unwrap().is_some());
        assert_eq!(connected(&scene), count);
    }
}

#[test]
fn a_sentinel_is_asked_over_a_fresh_connection_where_the_kept_one_fails() {
    let scene = Scene::of(&[Master(0, 4)]);
    ask(&scene).unwrap();
    scene.tell(&[Told::Other(Says::Cut)]);
    assert!(matches!(ask(&scene), Err(CallError::NotSent(_))));
    assert_eq!(connected(&scene), 2);
    scene.tell(&[Master(1, 5)]);
    assert_eq!(ask(&scene).unwrap().map(|it| it.epoch), Some(5));
}

#[test]
fn the_end_of_a_client_closes_what_it_keeps_to_its_sentinels() {
    let scene = Scene::of(&[Master(0, 1), Master(0, 1), Master(0, 1)]);
    scene.client.connect(soon()).unwrap();
    until(|| scene.listened().iter().sum::<usize>() == 1);
    scene.client.close();
    let held = |it: &Arc<Sentinel>| it.holds();
    assert!(!scene.client.shared.order().iter().any(held));
    assert!(scene.client.shared.state.lock().writer.is_none());
    assert!(
        !scene.client.shared.wake(),
        "nobody looks after it any more"
    );
    // It is found all the same.
    scene.client.connect(soon()).unwrap();
}
