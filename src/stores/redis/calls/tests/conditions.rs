use super::*;
use crate::ground::error::Error;
use crate::store::{ConditionAnswer, ConditionOp, ConditionStep};

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

#[test]
fn a_signal_that_may_have_run_twice_does_not_tell_how_many_it_reached() {
    let told = |first: Option<Says>, most: u32, count: i64| {
        let answers = vec![first, Some(Says::ints(&[1, THEN, count]))];
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
    let answer = told(Some(Says::ints(&[3, THEN])), 2, 0);
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
