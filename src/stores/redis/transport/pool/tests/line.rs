//! Who comes first of those who find no room for one more connection, and what they leave to others.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::room::{full, waits};
use super::*;
use crate::stores::redis::transport::room::{Place, Turn};

#[test]
fn a_request_may_try_behind_a_renewal_that_waits() {
    let scene = Scene::of(8, |_| None);
    scene.keep(&[false]);
    let pool = &scene.pool;
    // It hangs.
    let _in_use = pool.take(soon()).unwrap();
    std::thread::scope(|threads| {
        let renewing = threads.spawn(|| pool.wait_for_room(true, (full(), None), soon()));
        waits(&scene, 1);
        assert_eq!(pool.with(soon(), |_| Ok(())), Ok(()));
        assert!(renewing.join().unwrap().is_ok());
    });
}

#[test]
fn a_request_whose_try_has_failed_stands_behind_a_renewal_that_came_meanwhile() {
    let room: Arc<Room> = Arc::default();
    let _in_use = room.enter();
    let turn = |place: &mut Place<'_>| {
        let now = Instant::now();
        place.turn(soon(), now + Duration::from_millis(20))
    };
    let mut request = room.join(false, &full(), None);
    assert!(matches!(turn(&mut request), Some(Turn::Take)));
    assert!(matches!(
        turn(&mut request),
        Some(Turn::Try { are_others: true })
    ));
    let mut renewals = [(); 2].map(|()| room.join(true, &full(), None));
    request.go_back(&full());
    let [first, second] = &mut renewals;
    assert!(turn(&mut request).is_none() && turn(second).is_none());
    assert!(matches!(turn(first), Some(Turn::Take)));
}

#[test]
fn a_try_that_was_too_short_does_not_hide_why_there_is_no_room() {
    let scene = &Scene::plain();
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(full());
    let _in_use = scene.pool.take(soon()).unwrap();
    std::thread::scope(|threads| {
        let by = Instant::now() + Duration::from_millis(800);
        let waiting = threads.spawn(move || scene.pool.with(by, |_| Ok(())));
        waits(scene, 1);
        *scene.way.takes.lock() = Duration::from_millis(400);
        *scene.way.fault.lock() = None;
        assert_eq!(waiting.join().unwrap(), Err(full()));
    });
}

#[test]
fn one_that_makes_a_connection_ready_leaves_the_others_its_permit() {
    let scene = Scene::of(1, |_| None);
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(full());
    let pool = &scene.pool;
    let in_use = pool.take(soon()).unwrap();
    std::thread::scope(|threads| {
        let ready = || pool.make_ready(soon(), |_| Ok(()));
        let ready = [threads.spawn(ready), threads.spawn(ready)];
        waits(&scene, 2);
        assert!(pool.permit(Instant::now()).is_ok());
        pool.keep(in_use);
        for one in ready {
            assert_eq!(one.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn one_who_looks_around_needs_no_permit_and_leaves_no_connection_too_many() {
    let scene = Scene::of(1, |_| None);
    let pool = &scene.pool;
    let looked = pool.beside(soon(), |_| {
        assert_eq!(
            pool.with(Instant::now() + Duration::from_secs(5), |_| Ok(())),
            Ok(())
        );
        Ok(())
    });
    assert_eq!((looked, pool.idle()), (Ok(()), 1));
    let worked = pool.with(soon(), |_| {
        pool.beside(Instant::now() + Duration::from_secs(5), |_| Ok(()))
    });
    assert_eq!((worked, pool.idle()), (Ok(()), 1));
    drop(pool.take(soon()));
    assert_eq!((pool.beside(soon(), |_| Ok(())), pool.idle()), (Ok(()), 1));
}
