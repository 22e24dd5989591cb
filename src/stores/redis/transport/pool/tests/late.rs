//! Answers that nobody waits for, and requests that may still arrive.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::ground::claim::Kind;
use crate::store::EXPIRY_SLACK;
use crate::stores::redis::layout::Layout;

fn visitor(number: u64) -> VisitorId {
    VisitorId::new("client", number, 1)
}

/// A connection on which a PING was sent whose answer nobody has read.
fn owing(scene: &Scene) -> Connection {
    let mut connection = scene.connection();
    connection.ask(PING, soon()).unwrap();
    connection
}

/// Leaves a connection that owes `due` answers to requests of the visitor with this number.
fn leave(scene: &Scene, connection: Connection, due: u32, of: Option<u64>, deadline: Instant) {
    let of = of.map(visitor);
    scene
        .pool
        .check_in_unread(connection, due, of, Some(70), deadline);
}

/// Collects until so many connections owe answers.
fn until_late(scene: &Scene, count: usize) {
    let patience = soon();
    while scene.pool.late() != count {
        assert!(Instant::now() < patience, "{} are late", scene.pool.late());
        scene.pool.collect();
    }
}

fn silent() -> Scene {
    Scene::of(8, |request| request.is("PING").then_some(Says::Nothing))
}

#[test]
fn a_connection_goes_back_to_the_others_once_its_late_answers_have_come() {
    let scene = Scene::plain();
    let mut connection = owing(&scene);
    connection.ask(PING, soon()).unwrap();
    leave(&scene, connection, 2, Some(1), soon());
    assert_eq!((scene.pool.late(), scene.pool.idle()), (1, 0));
    until_late(&scene, 0);
    assert_eq!(scene.pool.idle(), 1);
    let mut connection = scene.pool.take(soon()).unwrap();
    let pong = Value::SimpleString("PONG".into());
    assert_eq!(connection.call(PING, soon()), Ok(pong));
    assert_eq!(scene.pool.lost_until(Some(&visitor(1))), None);
}

#[test]
fn a_late_error_is_an_answer_and_may_say_that_scripts_were_forgotten() {
    for (error, is_forgotten) in [("NOSCRIPT none", true), ("ERR no", false)] {
        let scene = Scene::of(8, move |request| {
            request.is("PING").then(|| Says::Error(error.into()))
        });
        let script = &Layout::of(Kind::Reentrant).acquire;
        let mut connection = owing(&scene);
        connection.mark_loaded(script);
        assert!(connection.has_script(script));
        leave(&scene, connection, 1, None, soon());
        until_late(&scene, 0);
        let kept = scene.pool.take(soon()).unwrap();
        assert_eq!(kept.has_script(script), !is_forgotten, "{error}");
    }
}

#[test]
fn a_connection_owes_its_answer_until_its_time_is_over() {
    let scene = silent();
    leave(&scene, owing(&scene), 1, Some(1), soon());
    scene.pool.collect();
    assert_eq!((scene.pool.late(), scene.pool.idle()), (1, 0));
    leave(&scene, owing(&scene), 1, Some(2), Instant::now());
    until_late(&scene, 1);
    // It was closed, and what it was asked may still come.
    assert_eq!(scene.pool.idle(), 0);
    assert_eq!(scene.pool.lost_until(Some(&visitor(2))), Some(70));
    assert_eq!(scene.pool.lost_until(Some(&visitor(1))), None);
}

#[test]
fn a_connection_that_ends_before_its_answer_is_closed_at_once() {
    let scene = silent();
    leave(&scene, owing(&scene), 1, Some(1), soon());
    scene.server.cut_all();
    until_late(&scene, 0);
    assert_eq!(scene.pool.idle(), 0);
    assert_eq!(scene.pool.lost_until(Some(&visitor(1))), Some(70));
}

#[test]
fn the_end_of_a_pool_notes_what_was_not_answered() {
    let scene = silent();
    leave(&scene, owing(&scene), 1, Some(1), soon());
    scene.keep(&[false]);
    scene.pool.close();
    assert_eq!((scene.pool.late(), scene.pool.idle()), (0, 0));
    assert_eq!(scene.pool.lost_until(Some(&visitor(1))), Some(70));
    // What is left behind later is noted at once.
    leave(&scene, owing(&scene), 1, Some(2), soon());
    assert_eq!(scene.pool.late(), 0);
    assert_eq!(scene.pool.lost_until(Some(&visitor(2))), Some(70));
}

#[test]
fn a_visitor_gets_the_connection_that_owes_it_an_answer() {
    let scene = silent();
    leave(&scene, owing(&scene), 3, None, soon());
    leave(&scene, owing(&scene), 2, Some(2), soon());
    leave(&scene, owing(&scene), 1, Some(1), soon());
    let check_out = |of: Option<u64>| {
        let of = of.map(visitor);
        let checked_out = scene.pool.check_out(of.as_ref(), |_| true);
        checked_out.unwrap()
    };
    // One without a name has no order to keep.
    assert!(check_out(None).is_none());
    assert!(check_out(Some(3)).is_none());
    let second = check_out(Some(2)).unwrap();
    assert_eq!((second.replies_due, second.due_until), (2, Some(70)));
    assert_eq!(second.not_after, None);
    assert_eq!(scene.pool.late(), 2);
    assert!(check_out(Some(2)).is_none());
    scene.keep(&[false, true, false]);
    scene.pool.note_lost(Some(visitor(5)), Some(90), soon());
    let visitor = visitor(5);
    let right = scene.pool.check_out(Some(&visitor), is_marked);
    let right = right.unwrap().unwrap();
    assert!(right.connection.needs_text);
    assert_eq!((right.replies_due, right.due_until), (0, None));
    assert_eq!(right.not_after, Some(90));
    assert_eq!(scene.pool.idle(), 2);
}

#[test]
fn a_check_out_reads_the_late_answers_first() {
    let scene = Scene::plain();
    let connection = owing(&scene);
    leave(&scene, connection, 1, None, soon());
    scene.server.until_asked(|request| request.is("PING"));
    let patience = soon();
    while scene.pool.check_out(None, |_| true).unwrap().is_none() {
        assert!(Instant::now() < patience, "its answer has come");
    }
    assert_eq!(scene.pool.late(), 0);
}

#[test]
fn a_pool_is_warm_for_a_visitor_where_a_right_connection_is_ready_or_owes_it_an_answer() {
    let scene = silent();
    let is_warm = |of: Option<u64>, is_right: fn(&Connection) -> bool| {
        let of = of.map(visitor);
        scene.pool.is_warm(of.as_ref(), is_right)
    };
    assert!(!is_warm(Some(1), |_| true));
    leave(&scene, owing(&scene), 1, None, soon());
    assert!(!is_warm(None, |_| true) && !is_warm(Some(1), |_| true));
    leave(&scene, owing(&scene), 1, Some(1), soon());
    assert!(is_warm(Some(1), |_| true));
    assert!(!is_warm(Some(2), |_| true) && !is_warm(Some(1), is_marked));
    scene.keep(&[false]);
    assert!(is_warm(Some(2), |_| true) && is_warm(None, |_| true));
    assert!(!is_warm(Some(2), is_marked));
    scene.keep(&[true]);
    assert!(is_warm(Some(2), is_marked));
}

#[test]
fn a_connection_that_comes_back_unused_is_kept_only_if_it_owes_nothing() {
    let scene = silent();
    for due in [0, 1] {
        let of_connection = |connection| CheckedOut {
            connection,
            permit: scene.pool.permit(soon()).unwrap(),
            replies_due: due,
            due_until: Some(60),
            not_after: None,
        };
        let checked_out = of_connection(scene.connection());
        let of = visitor(1);
        scene
            .pool
            .check_in(checked_out, &Ok(Value::Nil), Some(&of), soon());
        assert_eq!(scene.pool.idle(), 1, "{due}");
        let lost = (due > 0).then_some(60);
        assert_eq!(scene.pool.lost_until(Some(&of)), lost);
    }
}

#[test]
fn the_last_lost_request_of_a_visitor_counts_until_it_was_refused_surely() {
    let scene = Scene::plain();
    let (one, other) = (visitor(1), visitor(2));
    let lose = |of: &VisitorId, not_after, deadline| {
        scene
            .pool
            .note_lost(Some(of.clone()), Some(not_after), deadline);
    };
    assert_eq!(scene.pool.lost_until(Some(&one)), None);
    lose(&one, 5, soon());
    lose(&one, 9, soon());
    lose(&one, 7, soon());
    lose(&other, 20, soon());
    assert_eq!(scene.pool.lost_until(Some(&one)), Some(9));
    assert_eq!(scene.pool.lost_until(Some(&other)), Some(20));
    assert_eq!(scene.pool.lost_until(None), None);
    assert_eq!(scene.pool.lost_until(Some(&visitor(3))), None);
    scene.pool.note_lost(None, Some(1), soon());
    scene.pool.note_lost(Some(one.clone()), None, soon());
    assert_eq!(scene.pool.lost.lock().len(), 4);
    // It is kept for the slack behind its deadline, and forgotten with the next one that is noted.
    let slack = EXPIRY_SLACK;
    let long_ago = Instant::now() - slack - Duration::from_millis(1);
    let third = visitor(3);
    lose(&third, 3, long_ago);
    assert_eq!(scene.pool.lost_until(Some(&third)), None);
    assert_eq!(scene.pool.lost.lock().len(), 5);
    lose(&third, 4, Instant::now());
    assert_eq!(scene.pool.lost_until(Some(&third)), Some(4));
    assert_eq!(scene.pool.lost.lock().len(), 5);
}
