use super::*;
use crate::ground::error::Error;
use crate::ground::loss::LossCause;
use crate::store::Granted;

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
fn a_hold_that_is_not_there_is_lost_unless_a_copy_handed_it_off() {
    let gone = || {
        let items = vec![Value::Int(2), Value::Int(THEN), bulk("other:1")];
        Some(Says::answer(Value::Array(items)))
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
fn a_hand_off_that_is_not_surely_put_back_is_in_doubt() {
    let done = || Some(Says::ints(&[1, THEN, 0]));
    // Neither that it could be put back nor that a copy before it did not run is known.
    for answers in [
        vec![done(), Some(Says::error("ERR no"))],
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
