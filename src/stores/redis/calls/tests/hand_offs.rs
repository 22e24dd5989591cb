use super::*;
use crate::ground::error::Error;
use crate::ground::loss::LossCause;
use crate::store::Granted;
use crate::stores::redis::layout::Layout;

fn heir(from: &Claim) -> Claim {
    Claim {
        visitor: VisitorId::new("client", 2, 2),
        lease: ms(9_000),
        ..from.clone()
    }
}

fn hand_off(store: &Redis, kind: Kind) -> Result<Outcome<Granted>> {
    let from = claim_of(kind, 1);
    store.hand_off(&from, &heir(&from), soon())
}

fn granted(answer: Result<Outcome<Granted>>) -> Granted {
    match answer.unwrap() {
        Outcome::Done(granted) => granted,
        other => panic!("{other:?}"),
    }
}

fn in_doubt(answer: Result<Outcome<Granted>>) -> (InDoubt, InDoubt, Error) {
    let Ok(Outcome::Unknown {
        in_doubt,
        successor: Some(successor),
        error,
    }) = answer
    else {
        panic!("{answer:?}");
    };
    (in_doubt, *successor, error)
}

#[test]
fn a_hand_off_names_the_successor_and_its_lease() {
    let server = answering(vec![Says::ints(&[1, THEN, 0])]);
    let granted = granted(hand_off(&server.store(), Kind::Reentrant));
    assert!(!granted.others_wait && granted.leftover.is_none() && granted.fence.is_none());
    let call = &calls(&server)[0];
    let from = claim(1);
    let to = heir(&from);
    assert_eq!(call[1], hash_of(&Layout::of(from.kind).transfer));
    assert_eq!(call.args()[0], from.visitor.as_str());
    assert_eq!(call.args()[1..3], [to.visitor.as_str(), "9000"]);
}

#[test]
fn a_hand_off_tells_whether_others_may_wait() {
    for (listeners, others_wait) in [(0, false), (1, true), (-1, true)] {
        let server = answering(vec![Says::ints(&[1, THEN, listeners])]);
        let granted = granted(hand_off(&server.store(), Kind::Reentrant));
        assert_eq!(granted.others_wait, others_wait, "{listeners}");
    }
}

#[test]
fn a_hand_off_draws_a_token_above_all_that_were_seen() {
    let server = answering(vec![
        Says::ints(&[1, THEN, 0, 41]),
        Says::ints(&[1, THEN, 0, 42]),
        Says::ints(&[1, THEN, 0, 42]),
    ]);
    let store = server.store();
    for token in [41, 42] {
        let granted = granted(hand_off(&store, Kind::Fenced));
        assert_eq!(granted.fence, Some(token));
    }
    let (from, successor, error) = in_doubt(hand_off(&store, Kind::Fenced));
    assert!(matches!(error, Error::FenceRegressed { .. }), "{error:?}");
    assert_eq!(from.not_after(0), Some(0));
    assert_eq!(successor.visitor, VisitorId::new("client", 2, 2));
    assert!(until(&successor) > THEN);
    let floors: Vec<_> = calls(&server)
        .iter()
        .map(|call| call.args()[4].clone())
        .collect();
    assert_eq!(floors, ["0", "42", "43"]);
}

#[test]
fn a_hold_that_is_not_there_is_lost_unless_a_copy_handed_it_off() {
    let gone = || {
        let items = vec![Value::Int(2), Value::Int(THEN), bulk("other:1")];
        Some(Says::Answer(Value::Array(items)))
    };
    let answer = hand_off(&answering(vec![gone()]).store(), Kind::Reentrant).unwrap();
    let Outcome::Gone(LossCause::HeldBy(holder)) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(holder, "other:1");
    let server = answering(vec![cut(), gone()]);
    let (from, successor, error) = in_doubt(hand_off(&server.store(), Kind::Reentrant));
    assert!(
        error.to_string().contains("neither hold is there"),
        "{error}"
    );
    assert_eq!(from.not_after(0), Some(0));
    assert!(until(&successor) > THEN);
    assert_eq!(calls(&server).len(), 2);
}

#[test]
fn a_hand_off_of_no_known_form_is_an_error() {
    for items in [
        vec![],
        vec![Value::Int(1), Value::Int(THEN)],
        vec![Value::Int(1), Value::Int(THEN), bulk("1")],
        vec![Value::Int(2), Value::Int(THEN)],
        vec![Value::Int(9), Value::Int(THEN), Value::Int(0)],
    ] {
        let told = hand_off(&saying(items).store(), Kind::Reentrant);
        assert!(matches!(told, Err(Error::Unexpected { .. })), "{told:?}");
    }
}

#[test]
fn a_hand_off_that_came_too_late_is_sent_anew() {
    let server = answering(vec![Says::ints(&[3, THEN]), Says::ints(&[1, THEN, 0])]);
    granted(hand_off(&server.store(), Kind::Reentrant));
    assert_eq!(calls(&server).len(), 2);
}

#[test]
fn a_hand_off_that_no_replica_has_is_put_back_with_the_lease_that_it_has_now() {
    let answers = vec![Says::ints(&[1, THEN, 0]), Says::ints(&[1, THEN, 0])];
    let (server, store) = unreplicated(answers, none_has_it());
    let error = hand_off(&store, Kind::Reentrant).unwrap_err();
    assert!(matches!(error, Error::NotReplicated { .. }), "{error:?}");
    let calls = calls(&server);
    assert_eq!(calls.len(), 2);
    let from = claim(1);
    let heir = heir(&from);
    let back = [heir.visitor.as_str(), from.visitor.as_str(), "9000"];
    assert_eq!(calls[1].args()[..3], back);
    let waits = server.asked().iter().filter(|it| it.is("WAIT")).count();
    assert_eq!(waits, 1, "what is put back needs no replica");
}

#[test]
fn a_hand_off_that_is_not_surely_put_back_is_in_doubt() {
    let done = || Says::ints(&[1, THEN, 0]);
    // Neither that it could be put back nor that a copy before it did not run is known.
    for answers in [
        vec![done(), Says::error("ERR no")],
        vec![cut(), done(), done()],
    ] {
        let (_server, store) = unreplicated(answers, none_has_it());
        let (from, successor, error) = in_doubt(hand_off(&store, Kind::Reentrant));
        assert!(error.to_string().contains("too few replicas"), "{error}");
        assert_eq!(from.not_after(0), Some(0));
        assert!(until(&successor) > THEN);
    }
    // The copy that puts it back may come later.
    let (_server, store) = unreplicated(vec![done(), cut()], none_has_it());
    let (from, ..) = in_doubt(hand_off(&store, Kind::Reentrant));
    assert!(until(&from) > THEN);
}

#[test]
fn a_hand_off_without_an_answer_leaves_both_holds_in_doubt() {
    let server = answering(vec![cut()]);
    let (from, successor, error) = in_doubt(hand_off(&server.store(), Kind::Reentrant));
    assert!(
        matches!(
            error,
            Error::Unknown {
                operation: "hand-over",
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(from.visitor, claim(1).visitor);
    assert!(until(&successor) > THEN);
    assert_eq!(calls(&server).len(), 2);
}

#[test]
fn a_hand_off_leaves_the_late_copy_of_the_hold_that_is_given_away() {
    let server = answering(vec![cut(), Says::int(1), Says::ints(&[1, THEN, 0])]);
    let store = server.store();
    let from = claim_of(Kind::Token, 0);
    store.acquire(&from, soon()).unwrap();
    let granted = granted(hand_off(&store, Kind::Token));
    assert_eq!(granted.leftover.unwrap().visitor, from.visitor);
}
