use super::*;
use crate::ground::error::Error;
use crate::ground::loss::LossCause;
use crate::store::{ConditionAnswer, ConditionOp, ConditionStep, PLACE_LIFE};
use crate::stores::redis::layout::CONDITION;

/// What became of a step, and the calls for it.
fn step_at(
    server: &StubServer,
    step: ConditionStep<'_>,
) -> (Result<Outcome<ConditionAnswer>>, Vec<Request>) {
    let (lock, condition) = (id_of(&claim(1)), Arc::from("room"));
    let ticket = VisitorId::new("client", 1, 7);
    let op = ConditionOp {
        lock: &lock,
        condition: &condition,
        visitor: &ticket,
        step,
    };
    let answer = server.store().condition(&op, soon());
    (answer, calls(server))
}

fn answer_to(step: ConditionStep<'_>, items: Vec<Value>) -> Result<Outcome<ConditionAnswer>> {
    step_at(&saying(items), step).0
}

fn ints(numbers: &[i64]) -> Vec<Value> {
    numbers.iter().map(|number| Value::Int(*number)).collect()
}

#[test]
fn each_step_says_its_word() {
    let hold = VisitorId::new("client", 1, 1);
    for (step, word, of_hold) in [
        (ConditionStep::Enlist(&hold), "enlist", hold.as_str()),
        (ConditionStep::Look, "look", ""),
        (ConditionStep::Leave, "leave", ""),
    ] {
        let server = saying(ints(&[0, THEN]));
        let (answer, calls) = step_at(&server, step);
        assert!(
            matches!(answer, Ok(Outcome::Done(ConditionAnswer::Waits))),
            "{answer:?}"
        );
        let args = calls[0].args();
        assert_eq!(calls[0][1], hash_of(&CONDITION.look));
        assert_eq!(args[1..3], [word, of_hold]);
        assert_eq!(args[3], PLACE_LIFE.as_millis().to_string());
        assert!(args[4].contains("{lock}:room"), "{args:?}");
    }
}

#[test]
fn a_signal_tells_how_many_it_has_reached() {
    let server = saying(ints(&[1, THEN, 2]));
    let (answer, calls) = step_at(&server, ConditionStep::Signal(5));
    assert!(
        matches!(answer, Ok(Outcome::Done(ConditionAnswer::Signalled(2)))),
        "{answer:?}"
    );
    assert_eq!(calls[0][1], hash_of(&CONDITION.signal));
    assert_eq!(calls[0].args()[1], "5");
}

#[test]
fn the_answers_to_a_place_are_told_apart() {
    let done = |numbers: &[i64]| match answer_to(ConditionStep::Look, ints(numbers)) {
        Ok(Outcome::Done(answer)) => answer,
        other => panic!("{other:?}"),
    };
    assert!(matches!(done(&[0, THEN]), ConditionAnswer::Waits));
    assert!(matches!(done(&[1, THEN]), ConditionAnswer::Woken));
    assert!(matches!(done(&[1, THEN, 3]), ConditionAnswer::Woken));
    assert!(matches!(done(&[4, THEN]), ConditionAnswer::Left));
    let lost = vec![Value::Int(2), Value::Int(THEN), bulk("other:1")];
    let gone = answer_to(ConditionStep::Signal(1), lost);
    let Ok(Outcome::Gone(LossCause::HeldBy(holder))) = gone else {
        panic!("{gone:?}");
    };
    assert_eq!(holder, "other:1");
    let gone = answer_to(ConditionStep::Leave, ints(&[2, THEN]));
    assert!(
        matches!(gone, Ok(Outcome::Gone(LossCause::Gone))),
        "{gone:?}"
    );
}

#[test]
fn an_answer_that_does_not_fit_the_step_is_an_error() {
    for (step, numbers) in [
        (ConditionStep::Signal(1), &[1, THEN][..]),
        (ConditionStep::Look, &[9, THEN]),
        (ConditionStep::Look, &[]),
    ] {
        let told = answer_to(step, ints(numbers));
        assert!(matches!(told, Err(Error::Unexpected { .. })), "{told:?}");
    }
}

#[test]
fn a_step_that_came_too_late_is_sent_anew() {
    let server = answering(vec![Says::ints(&[3, THEN]), Says::ints(&[0, THEN])]);
    let (answer, calls) = step_at(&server, ConditionStep::Look);
    assert!(answer.is_ok() && calls.len() == 2, "{answer:?}");
}

#[test]
fn a_signal_that_may_have_run_twice_does_not_tell_how_many_it_reached() {
    let told = |first: Option<Says>, most: u32, count: i64| {
        let answers = vec![first, Says::ints(&[1, THEN, count])];
        let server = answering(answers);
        step_at(&server, ConditionStep::Signal(most)).0
    };
    for (most, count) in [(1, 0), (2, 1), (2, 0)] {
        let answer = told(cut(), most, count);
        let Err(error) = answer else {
            panic!("{answer:?}");
        };
        assert!(error.to_string().contains("sent twice"), "{error}");
    }
    // The only one was reached by the second copy or by both.
    let answer = told(cut(), 1, 1);
    assert!(matches!(
        answer,
        Ok(Outcome::Done(ConditionAnswer::Signalled(1)))
    ));
    // The first copy came too late, and so did nothing.
    let answer = told(Says::ints(&[3, THEN]), 2, 0);
    assert!(matches!(
        answer,
        Ok(Outcome::Done(ConditionAnswer::Signalled(0)))
    ));
}

#[test]
fn a_step_without_an_answer_leaves_a_place_in_doubt() {
    let hold = VisitorId::new("client", 1, 1);
    for (step, was_told) in [
        (ConditionStep::Enlist(&hold), false),
        (ConditionStep::Look, true),
        (ConditionStep::Leave, true),
    ] {
        let is_look = matches!(step, ConditionStep::Look);
        let (answer, calls) = step_at(&answering(vec![cut()]), step);
        let Ok(Outcome::Unknown {
            in_doubt, error, ..
        }) = answer
        else {
            panic!("{answer:?}");
        };
        let place = in_doubt.place.as_ref().unwrap();
        assert_eq!((&*place.condition, place.was_told), ("room", was_told));
        assert!(until(&in_doubt) > THEN);
        assert_eq!(matches!(error, Error::Unreachable { .. }), is_look);
        assert_eq!(calls.len(), 2);
    }
    let (answer, _) = step_at(&answering(vec![cut()]), ConditionStep::Signal(1));
    let Err(Error::Unknown { operation, .. }) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(operation, "signal");
}
