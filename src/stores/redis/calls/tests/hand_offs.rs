use super::*;
use crate::ground::error::Error;
use crate::ground::loss::LossCause;
use crate::store::{Left, Released};

fn heir(from: &Claim) -> Claim {
    Claim {
        visitor: VisitorId::new("client", 2, 2),
        lease: ms(9_000),
        ..from.clone()
    }
}

fn hand_off(store: &Redis, kind: Kind) -> Result<Outcome<Released>> {
    let from = claim_of(kind, 1);
    store.release(&from, Left::Successor(&heir(&from)), soon())
}

fn in_doubt(answer: Result<Outcome<Released>>) -> (InDoubt, Error) {
    let Ok(Outcome::Unknown { in_doubt, error }) = answer else {
        panic!("{answer:?}");
    };
    (in_doubt, error)
}

#[test]
fn a_missing_hold_is_lost_unless_handed_off_before() {
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
    let (from, error) = in_doubt(hand_off(&server.store(), Kind::Reentrant));
    assert!(error.to_string().contains("neither hold exists"), "{error}");
    assert!(until(&from) > THEN);
    assert_eq!(calls(&server).len(), 2);
}

#[test]
fn an_unanswered_hand_off_leaves_both_holds_in_doubt() {
    let server = answering(vec![cut()]);
    let (from, error) = in_doubt(hand_off(&server.store(), Kind::Reentrant));
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
    assert!(until(&from) > THEN);
    assert_eq!(calls(&server).len(), 2);
}

#[test]
fn no_hand_off_with_wait_replicas() {
    let (_server, store) = unreplicated(vec![nothing()], none_has_it());
    assert!(!store.facts().hands_off);
    assert!(answering(vec![nothing()]).store().facts().hands_off);
}
