use super::*;
use crate::ground::error::Error;
use crate::ground::loss::LossCause;
use crate::store::{Left, Released};

fn release(server: &StubServer, keep: u32) -> Outcome<Released> {
    let left = match keep {
        0 => Left::Nothing,
        keep => Left::Levels(keep),
    };
    server.store().release(&claim(3), left, soon()).unwrap()
}

fn done(answer: Outcome<Released>) -> Released {
    match answer {
        Outcome::Done(released) => released,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_hold_is_lost_unless_released_before() {
    let gone = |holder| Says::answer(Value::Array(vec![Value::Int(0), bulk(holder)]));
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
    assert!(released.others == 0 && released.leftover.is_none());
    assert_eq!(calls(&server).len(), 2);
}

#[test]
fn an_unanswered_release_is_in_doubt() {
    let server = answering(vec![cut()]);
    let answer = release(&server, 0);
    let Outcome::Unknown { error, .. } = answer else {
        panic!("{answer:?}");
    };
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    assert_eq!(calls(&server).len(), 2, "it is sent once more");
}

#[test]
fn a_level_release_keeps_the_unanswered_attempt_in_doubt() {
    let server = answering(vec![cut(), Some(Says::answer(Value::Int(1)))]);
    let released = done(release(&server, 1));
    assert!(until(&released.leftover.unwrap()) > THEN);
}

#[test]
fn an_unanswered_level_release_is_in_doubt() {
    let answer = release(&answering(vec![cut()]), 1);
    let Outcome::Unknown { in_doubt, .. } = answer else {
        panic!("{answer:?}");
    };
    assert!(until(&in_doubt) > THEN);
}
