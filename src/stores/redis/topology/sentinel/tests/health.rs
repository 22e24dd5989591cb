//! What sentinels say of themselves.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::scene::{Master, Scene, Unknown, cut, soon};
use super::*;

/// The findings, each as its node, how bad it is and what it says.
fn found(scene: &Scene) -> Vec<(String, String)> {
    let found = scene.client.watchers(soon());
    let found = found.iter();
    found
        .map(|it| {
            (
                it.node.to_string(),
                format!("{}: {}", it.severity, it.message),
            )
        })
        .collect()
}

#[test]
fn sentinels_that_agree_are_told_to_be_well() {
    let scene = Scene::settled(3);
    let master = scene.servers[0].address();
    let words = format!("ok: 3 of 3 sentinels answer, and name {master}");
    assert_eq!(found(&scene), [(master, words)]);
}

#[test]
fn a_sentinel_that_is_of_no_use_is_told_by_its_name() {
    let scene = Scene::of(&[Master(0, 1), Unknown, cut(), Master(1, 1)]);
    let all = found(&scene);
    let of = |node: &str| {
        let mut found = all.iter();
        found.find(|(it, _)| it == node).map(|(_, words)| &**words)
    };
    let unknown = of(&scene.sentinels[1].address()).unwrap();
    assert_eq!(unknown, "danger: this sentinel knows no master m");
    let silent = of(&scene.sentinels[2].address()).unwrap();
    assert!(
        silent.starts_with("note: this sentinel did not answer: "),
        "{silent}"
    );
    let group = scene.client.node();
    let of_group: Vec<_> = all.iter().filter(|(node, _)| **node == *group).collect();
    let mut masters = [0, 1].map(|at| scene.servers[at].address());
    masters.sort();
    let differ = format!(
        "danger: the sentinels name different masters: {}",
        masters.join(", ")
    );
    let few = "danger: 2 of 4 sentinels answer, and a failover needs 3: if the master dies, nothing replaces it";
    let words: Vec<_> = of_group.iter().map(|(_, words)| &**words).collect();
    assert_eq!(words, [&*differ, few]);
}

#[test]
fn few_sentinels_are_told_by_their_number() {
    let told = |count: usize| {
        let scene = Scene::settled(count);
        let found = found(&scene);
        found.last().unwrap().1.clone()
    };
    let words = "named here: a client believes any of them that tells of a failover";
    assert_eq!(told(1), format!("note: one sentinel is {words}"));
    assert_eq!(told(2), format!("note: 2 sentinels are {words}"));
    assert!(told(4).starts_with("ok: 4 of 4"));
}
