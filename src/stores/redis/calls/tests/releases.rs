use super::*;
use crate::ground::error::Error;
use crate::ground::loss::LossCause;
use crate::store::Released;
use crate::stores::redis::layout::Layout;
use crate::stores::redis::topology::Topology;

fn release(server: &StubServer, keep: u32) -> Outcome<Released> {
    server.store().release(&claim(3), keep, soon()).unwrap()
}

fn done(answer: Outcome<Released>) -> Released {
    match answer {
        Outcome::Done(released) => released,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_release_tells_whether_somebody_heard_it() {
    for (heard, others_wait) in [(0, false), (1, true), (7, true), (-1, false)] {
        let released = done(release(&answering(vec![Says::int(heard)]), 0));
        assert_eq!(released.others_wait, others_wait, "{heard}");
        assert!(released.turns.is_none() && released.leftover.is_none());
    }
}

#[test]
fn a_release_whose_message_failed_is_done() {
    let server = saying(vec![Value::Int(1), bulk("NOPERM")]);
    let released = done(release(&server, 0));
    assert!(!released.others_wait);
}

#[test]
fn a_hold_that_is_not_there_was_lost_unless_a_copy_took_it() {
    let gone = |holder| Says::Answer(Value::Array(vec![Value::Int(0), bulk(holder)]));
    let answer = release(&answering(vec![Some(gone(""))]), 0);
    assert!(
        matches!(answer, Outcome::Gone(LossCause::Gone)),
        "{answer:?}"
    );
    let answer = release(&answering(vec![Some(gone("other:1"))]), 0);
    let Outcome::Gone(LossCause::HeldBy(holder)) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(holder, "other:1");
    let server = answering(vec![cut(), Some(gone(""))]);
    let released = done(release(&server, 0));
    assert!(!released.others_wait && released.leftover.is_none());
    assert_eq!(calls(&server).len(), 2);
}

#[test]
fn a_release_of_no_known_form_is_an_error() {
    for items in [vec![], vec![Value::Int(0)], vec![Value::Int(7), bulk("")]] {
        let told = saying(items).store().release(&claim(1), 0, soon());
        assert!(matches!(told, Err(Error::Unexpected { .. })), "{told:?}");
    }
}

#[test]
fn a_release_without_an_answer_is_in_doubt() {
    let server = answering(vec![cut()]);
    let answer = release(&server, 0);
    let Outcome::Unknown { error, .. } = answer else {
        panic!("{answer:?}");
    };
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    assert_eq!(calls(&server).len(), 2, "it is sent once more");
}

#[test]
fn an_acquisition_that_may_still_come_keeps_a_release_from_saying_it_was_lost() {
    let server = saying(vec![Value::Int(0), bulk("")]);
    let store = server.store();
    let claim = claim(1);
    // So that there is a connection.
    store.acquire(&claim, soon()).ok();
    let Topology::One(node) = &store.topology else {
        unreachable!();
    };
    let visitor = Some(claim.visitor.clone());
    node.pool.note_lost(visitor, Some(FAR), Instant::now());
    let answer = store.release(&claim, 0, soon()).unwrap();
    let Outcome::Unknown {
        in_doubt, error, ..
    } = answer
    else {
        panic!("{answer:?}");
    };
    assert_eq!(in_doubt.not_after(0), Some(FAR));
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[test]
fn a_quiet_release_names_no_channel_in_a_cluster_alone() {
    let claim = claim(1);
    let server = answering(vec![Says::int(0)]);
    let store = server.store();
    store.release_quietly(&claim, soon()).unwrap();
    let release = Release::new(&claim);
    let channel = Layout::of(claim.kind).channel.of("lock").into_owned();
    assert_eq!(calls(&server)[0].args()[1], channel);
    release.quiet(true).run(&store, soon()).unwrap();
    assert_eq!(calls(&server)[1].args()[1], "");
    // Where messages are sharded they go to one node.
    let call = Release::new(&claim).quiet(true);
    assert!(call.call().is_quiet && !call.call().for_shards(true).is_quiet);
    assert!(call.call().for_shards(false).is_quiet);
}

#[test]
fn levels_are_given_back_from_one_count_to_another() {
    let server = answering(vec![Says::int(1)]);
    let released = done(release(&server, 1));
    assert!(released.leftover.is_none() && !released.others_wait);
    let call = &calls(&server)[0];
    assert_eq!(call[1], hash_of(&Layout::of(Kind::Reentrant).release_level));
    assert_eq!(call.args()[1..4], ["30000", "3", "1"].map(str::to_owned));
}

#[test]
fn levels_given_back_behind_an_unanswered_copy_leave_that_copy() {
    let server = answering(vec![cut(), Says::int(1)]);
    let released = done(release(&server, 1));
    assert!(until(&released.leftover.unwrap()) > THEN);
}

#[test]
fn levels_of_a_hold_that_is_gone_are_no_error() {
    let server = saying(vec![Value::Int(2), Value::Int(THEN), bulk("")]);
    let answer = release(&server, 1);
    assert!(
        matches!(answer, Outcome::Gone(LossCause::Gone)),
        "{answer:?}"
    );
}

#[test]
fn levels_that_no_replica_has_are_in_doubt() {
    let (_server, store) = unreplicated(vec![Says::int(1)], none_has_it());
    let answer = store.release(&claim(2), 1, soon()).unwrap();
    let Outcome::Unknown { error, .. } = answer else {
        panic!("{answer:?}");
    };
    let text = error.to_string();
    assert!(text.contains("0 of the 1 replicas"), "{text}");
}

#[test]
fn levels_without_an_answer_are_in_doubt() {
    let answer = release(&answering(vec![cut()]), 1);
    let Outcome::Unknown { in_doubt, .. } = answer else {
        panic!("{answer:?}");
    };
    assert!(until(&in_doubt) > THEN);
}

#[test]
fn the_turns_of_others_are_counted_from_the_message_before_the_release() {
    let server = answering(vec![Says::int(3)]);
    let store = server.store();
    let claim = claim(1);
    let parker = Arc::default();
    let subscription = store.subscribe(&id_of(&claim), None, 0, &parker);
    server.until(|server| store.messages(&claim).is_some() && server.connected() > 0);
    let released = done(store.release(&claim, 0, soon()).unwrap());
    // One of the three is this client itself.
    assert!(released.others_wait && released.turns.is_some());
    assert_eq!(store.others_of(&claim, 3), 2);
    assert_eq!(store.others_of(&claim, 0), 0);
    server.answer(|request| request.is_script().then(|| Says::int(1)).flatten());
    let released = done(store.release(&claim, 0, soon()).unwrap());
    assert!(!released.others_wait);
    server.answer(|request| request.is_script().then(|| Says::int(0)).flatten());
    let released = done(store.release(&claim, 0, soon()).unwrap());
    assert!(
        !released.others_wait && released.turns.is_none(),
        "nobody heard it"
    );
    drop(subscription);
}

#[test]
fn a_waiter_here_that_wants_several_locks_stands_in_no_queue_for_one() {
    let server = answering(vec![Says::int(1)]);
    let store = server.store();
    let claim = claim(1);
    let subscriptions = [0, 1, 2].map(|source| {
        let parker = Arc::default();
        store.subscribe(&id_of(&claim), None, source, &parker)
    });
    server.until(|_| store.messages(&claim).is_some());
    assert_eq!(store.others_of(&claim, 1), 2);
    assert_eq!(store.others_of(&claim, 3), 4);
    drop(subscriptions);
}

#[test]
fn the_second_copy_of_a_release_leaves_the_late_copy_of_its_token() {
    let gone = Says::Answer(Value::Array(vec![Value::Int(0), bulk("")]));
    let server = answering(vec![cut(), Says::int(1), cut(), Some(gone)]);
    let store = server.store();
    let claim = claim_of(Kind::Token, 0);
    store.acquire(&claim, soon()).unwrap();
    let released = done(store.release(&claim, 0, soon()).unwrap());
    assert!(released.leftover.is_some());
}

#[test]
fn all_who_hear_a_message_are_others_where_nobody_listens_here() {
    let server = answering(vec![Says::int(3)]);
    let store = server.store();
    assert_eq!(store.others_of(&claim(1), 3), 3);
    assert!(store.messages(&claim(1)).is_none());
}
