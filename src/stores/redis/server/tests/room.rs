//! Renewals where there is no room for a connection of their own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

/// Has the server take no further connection.
fn fill(scene: &Scene) {
    scene.server.answer(|request| {
        let full = Says::Error("ERR max number of clients reached".into());
        request.is("TIME").then_some(full)
    });
}

#[test]
fn renewals_wait_for_a_connection_that_is_in_use() {
    let scene = scene();
    scene.warm();
    let pool = &scene.node.server.pool;
    let in_use = pool.take(soon()).unwrap();
    fill(&scene);
    std::thread::scope(|scope| {
        let renewing = scope.spawn(|| scene.take());
        scene.server.until_asked(|request| request.is("TIME"));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!renewing.is_finished());
        pool.keep(in_use);
        let lent = renewing.join().unwrap();
        assert!(lent.is_lent);
        scene.put(lent);
    });
    assert_eq!((scene.has_renewing(), scene.idle()), (false, 1));
    // None is in use.
    drop(pool.take(soon()));
    let refused = scene.node.server.take_renewing(soon());
    assert!(matches!(refused, Err(CallError::Server(_))));
}

#[test]
fn a_connection_that_stays_with_renewals_is_not_in_use() {
    let scene = scene();
    scene.warm();
    scene
        .server
        .answer(|request| request.is("TIME").then_some(Says::Nothing));
    let deadline = Instant::now() + Duration::from_millis(200);
    scene.put(scene.node.server.take_renewing(deadline).unwrap());
    assert!(scene.has_renewing());
    fill(&scene);
    let pool = &scene.node.server.pool;
    let outcome = pool.with(Instant::now() + Duration::from_secs(60), |_| Ok(()));
    assert!(matches!(outcome, Err(CallError::Server(_))), "{outcome:?}");
}

#[test]
fn renewals_wait_for_a_connection_that_is_in_use_whatever_keeps_new_ones_away() {
    let refused = || Says::Error("WRONGPASS invalid username-password pair".into());
    for says in [refused, || Says::Nothing] {
        let scene = &scene();
        scene.warm();
        let pool = &scene.node.server.pool;
        let in_use = pool.take(soon()).unwrap();
        scene
            .server
            .answer(move |request| request.is("TIME").then(says));
        std::thread::scope(|scope| {
            let deadline = Instant::now() + Duration::from_secs(4);
            let renewing = scope.spawn(move || scene.node.server.take_renewing(deadline));
            std::thread::sleep(Duration::from_millis(2_500));
            assert!(!renewing.is_finished());
            pool.keep(in_use);
            let lent = renewing.join().unwrap().unwrap();
            assert!(lent.is_lent);
        });
    }
}
