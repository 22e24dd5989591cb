use super::*;
use crate::ground::error::Error;
use crate::ground::loss::LossCause;
use crate::store::{Granted, Refusal};

fn acquire(server: &StubServer, claim: &Claim) -> Outcome<Granted, Refusal> {
    server.store().acquire(claim, soon()).unwrap()
}

#[test]
fn a_lock_without_a_ttl_has_no_retry_time() {
    let server = saying(vec![
        Value::Int(0),
        Value::Int(THEN),
        Value::Int(-1),
        bulk(""),
    ]);
    let Outcome::Refused(refusal) = acquire(&server, &claim(0)) else {
        panic!("it was refused");
    };
    assert_eq!((refusal.retry_after, refusal.recheck_after), (None, None));
}

#[test]
fn a_missing_or_corrupt_count_is_reported() {
    let server = saying(vec![Value::Int(2), Value::Int(THEN), bulk("other:7")]);
    let answer = acquire(&server, &claim(1));
    let Outcome::Gone(LossCause::HeldBy(holder)) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(holder, "other:7");
    let server = saying(vec![Value::Int(4), Value::Int(THEN), bulk("many")]);
    let refused = server.store().acquire(&claim(1), soon()).unwrap_err();
    assert!(matches!(refused, Error::CorruptCount { .. }), "{refused:?}");
}

#[test]
fn only_a_re_entry_is_repeated_after_a_cut() {
    for (kind, count, sent) in [
        (Kind::Reentrant, 0, 1),
        (Kind::Fenced, 0, 1),
        (Kind::Reentrant, 1, 3),
        (Kind::Token, 0, 1),
    ] {
        let server = answering(vec![cut()]);
        let answer = acquire(&server, &claim_of(kind, count));
        let Outcome::Unknown {
            in_doubt, error, ..
        } = answer
        else {
            panic!("{kind:?}: {answer:?}");
        };
        assert!(until(&in_doubt) > THEN);
        assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
        assert_eq!(calls(&server).len(), sent, "{kind:?} {count}");
    }
}

#[test]
fn a_grant_keeps_the_unanswered_attempt_in_doubt() {
    let server = answering(vec![cut(), Some(Says::answer(Value::Int(1)))]);
    let Outcome::Done(granted) = acquire(&server, &claim(1)) else {
        panic!("it was granted");
    };
    assert!(granted.leftover.is_some());
    assert_eq!(calls(&server).len(), 2);
}

#[test]
fn a_hold_that_cannot_be_undone_is_in_doubt() {
    let (_server, store) = unreplicated(
        vec![
            Some(Says::answer(Value::Int(1))),
            Some(Says::error("ERR no")),
        ],
        none_has_it(),
    );
    let answer = store.acquire(&claim(0), soon()).unwrap();
    let Outcome::Unknown {
        in_doubt, error, ..
    } = answer
    else {
        panic!("{answer:?}");
    };
    assert!(matches!(error, Error::NotReplicated { .. }), "{error:?}");
    assert!(until(&in_doubt) > THEN);
}

#[test]
fn the_error_says_why_wait_was_refused() {
    let told = |words: &str| {
        let (_server, store) = unreplicated(
            vec![
                Some(Says::answer(Value::Int(1))),
                Some(Says::answer(Value::Int(0))),
            ],
            Says::error(words),
        );
        store.acquire(&claim(0), soon()).unwrap_err()
    };
    let error = told("ERR unknown command 'WAIT'");
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    let error = told("NOPERM this user has no permissions to run the 'wait' command");
    let Error::Permission { missing, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(missing, ["+wait"]);
    let error = told("ERR WAIT cannot be used with replica instances");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}
