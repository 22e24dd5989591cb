use std::thread;

use super::*;
use crate::ground::error::Error;
use crate::ground::loss::LossCause;
use crate::store::{Granted, Refusal};
use crate::stores::redis::layout::Layout;

fn acquire(server: &StubServer, claim: &Claim) -> Outcome<Granted, Refusal> {
    server.store().acquire(claim, soon()).unwrap()
}

#[test]
fn a_refusal_tells_what_the_server_says_of_the_holder() {
    let server = saying(vec![
        Value::Int(0),
        Value::Int(THEN),
        Value::Int(250),
        bulk("other:7"),
        bulk("memo"),
        Value::Int(40),
    ]);
    let answer = acquire(&server, &claim(0));
    let Outcome::Refused(refusal) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(refusal.retry_after, Some(ms(250)));
    assert_eq!(refusal.holder.as_deref(), Some("other:7"));
    assert_eq!(refusal.memo.as_deref(), Some("memo"));
    assert_eq!(refusal.recheck_after, Some(ms(40)));
    assert!(refusal.leftover.is_none());
    let calls = calls(&server);
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0].keys(), ["lock"]);
}

#[test]
fn a_lock_without_an_end_has_no_time_to_ask_again() {
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
    assert_eq!(refusal.memo, None);
}

#[test]
fn a_grant_tells_the_token_and_the_next_one_is_drawn_above_it() {
    let server = StubServer::start(|request| {
        request.is_script().then_some(())?;
        let floor = request.args()[4].parse::<i64>().unwrap();
        Says::ints(&[1, THEN, floor + 41])
    });
    let store = server.store();
    let claim = claim_of(Kind::Fenced, 0);
    for (floor, token) in [(0, 41), (42, 83)] {
        let answer = store.acquire(&claim, soon()).unwrap();
        let Outcome::Done(granted) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(granted.fence, Some(token));
        assert!(granted.leftover.is_none() && granted.life.is_none());
        assert_eq!(calls(&server).last().unwrap().args()[4], floor.to_string());
    }
}

#[test]
fn a_token_below_one_that_was_seen_is_no_grant() {
    let server = answering(vec![
        Says::ints(&[1, THEN, 41]),
        Says::ints(&[1, THEN, 42]),
        Says::ints(&[1, THEN, 42]),
    ]);
    let store = server.store();
    let claim = claim_of(Kind::Fenced, 0);
    for _ in 0..2 {
        let answer = store.acquire(&claim, soon()).unwrap();
        assert!(matches!(answer, Outcome::Done(_)), "{answer:?}");
    }
    let answer = store.acquire(&claim, soon()).unwrap();
    let Outcome::Unknown { error, .. } = answer else {
        panic!("{answer:?}");
    };
    let is_told = matches!(
        error,
        Error::FenceRegressed {
            seen: 42,
            drawn: 42,
            ..
        }
    );
    assert!(is_told, "{error:?}");
}

#[test]
fn permits_last_as_long_as_the_server_says() {
    let server = saying(vec![Value::Int(5), Value::Int(THEN), Value::Int(700)]);
    let Outcome::Done(granted) = acquire(&server, &claim_of(Kind::Permits, 0)) else {
        panic!("it was granted");
    };
    assert_eq!((granted.life, granted.fence), (Some(ms(700)), None));
}

#[test]
fn a_count_that_is_gone_or_corrupt_is_told() {
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
fn a_count_that_is_another_one_is_taken_up() {
    let server = answering(vec![
        Some(Says::Answer(Value::Array(vec![
            Value::Int(4),
            Value::Int(THEN),
            bulk("3"),
        ]))),
        Says::int(1),
    ]);
    let answer = acquire(&server, &claim(1));
    assert!(matches!(answer, Outcome::Done(_)), "{answer:?}");
    let known: Vec<_> = calls(&server)
        .iter()
        .map(|call| call.args()[2..4].join(" to "))
        .collect();
    assert_eq!(known, ["1 to 2", "3 to 2"]);
}

#[test]
fn an_answer_of_no_known_form_is_an_error() {
    for items in [
        vec![],
        vec![Value::Int(0), Value::Int(THEN)],
        vec![Value::Int(9), Value::Int(THEN), Value::Int(5)],
        vec![Value::Int(0), Value::Int(THEN), bulk("5")],
    ] {
        let server = saying(items);
        let told = server.store().acquire(&claim(0), soon());
        assert!(matches!(told, Err(Error::Unexpected { .. })), "{told:?}");
    }
}

#[test]
fn a_first_acquisition_is_sent_once_and_a_re_entry_again_when_it_was_cut() {
    for (kind, count, sent) in [
        (Kind::Reentrant, 0, 1),
        (Kind::Fenced, 0, 1),
        (Kind::Reentrant, 1, 3),
        (Kind::Token, 0, 3),
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
fn a_grant_behind_an_unanswered_copy_leaves_that_copy() {
    let server = answering(vec![cut(), Says::int(1)]);
    let Outcome::Done(granted) = acquire(&server, &claim(1)) else {
        panic!("it was granted");
    };
    assert!(granted.leftover.is_some());
    assert_eq!(calls(&server).len(), 2);
}

#[test]
fn a_refusal_behind_an_unanswered_copy_leaves_that_copy() {
    let refused = Some(Says::Answer(Value::Array(vec![
        Value::Int(0),
        Value::Int(THEN),
        Value::Int(250),
        bulk("other:7"),
    ])));
    let server = answering(vec![cut(), refused]);
    let Outcome::Refused(refusal) = acquire(&server, &claim_of(Kind::Token, 0)) else {
        panic!("it was refused");
    };
    assert!(refusal.leftover.is_some());
}

#[test]
fn the_late_copy_of_a_token_is_kept_until_a_withdrawal_comes_behind_it() {
    let server = answering(vec![cut(), Says::int(1), Says::int(0)]);
    let store = server.store();
    let claim = claim_of(Kind::Token, 0);
    let granted = store.acquire(&claim, soon()).unwrap();
    thread::sleep(ms(2));
    let Outcome::Done(Granted {
        leftover: Some(late),
        ..
    }) = granted
    else {
        panic!("{granted:?}");
    };
    let not_after = until(&late);
    let released = store.release(&claim, 0, soon()).unwrap();
    let Outcome::Done(released) = released else {
        panic!("{released:?}");
    };
    let leftover = released.leftover.unwrap();
    assert_eq!(leftover.not_after(0), Some(not_after));
    assert!(leftover.ends > late.ends, "the lease may have begun anew");
    let other = VisitorId::new("client", 1, 2);
    assert!(store.is_behind_late_copies(&other, 0));
    assert!(!store.is_behind_late_copies(&claim.visitor, not_after - 1));
    assert!(!store.is_behind_late_copies(&claim.visitor, not_after));
    assert!(store.is_behind_late_copies(&claim.visitor, not_after + 1));
    assert!(
        store.is_behind_late_copies(&claim.visitor, 0),
        "it is forgotten"
    );
}

#[test]
fn a_late_copy_is_forgotten_once_its_lease_is_over() {
    let server = answering(vec![cut(), Says::int(1)]);
    let store = server.store();
    let mut short = claim_of(Kind::Token, 0);
    short.lease = ms(1);
    let granted = store.acquire(&short, soon()).unwrap();
    assert!(matches!(granted, Outcome::Done(_)), "{granted:?}");
    assert_eq!(store.late_copies.lock().len(), 1);
    store.late_copies.lock()[0].1.ends = crate::ground::clock::BootInstant::now();
    assert!(store.late_copy_of(&short).is_none());
    assert!(store.late_copies.lock().is_empty());
    // A hash has none that could come behind its end.
    let server = answering(vec![cut(), Says::int(1)]);
    let store = server.store();
    store.acquire(&claim(1), soon()).unwrap();
    assert!(store.late_copies.lock().is_empty());
    assert!(store.late_copy_of(&claim(1)).is_none());
}

#[test]
fn a_hold_that_too_few_replicas_have_is_given_back() {
    let (server, store) = unreplicated(vec![Says::int(1), Says::int(0)], none_has_it());
    let refused = store.acquire(&claim(0), soon()).unwrap_err();
    let is_told = matches!(
        refused,
        Error::NotReplicated {
            acknowledged: 0,
            wanted: 1,
            ..
        }
    );
    assert!(is_told, "{refused:?}");
    let layout = Layout::of(Kind::Reentrant);
    let calls = calls(&server);
    assert_eq!(calls[0][1], hash_of(&layout.acquire));
    assert_eq!(calls[1][1], hash_of(&layout.release));
    assert_eq!(calls.len(), 2);
    let waits = server.asked().iter().filter(|it| it.is("WAIT")).count();
    assert_eq!(waits, 1, "the release needs no replica");
}

#[test]
fn a_re_entry_that_too_few_replicas_have_is_put_back_to_its_count() {
    let (server, store) = unreplicated(vec![Says::int(1)], none_has_it());
    let answer = store.acquire(&claim(2), soon()).unwrap();
    let Outcome::Unknown { error, .. } = answer else {
        panic!("{answer:?}");
    };
    assert!(matches!(error, Error::NotReplicated { .. }), "{error:?}");
    let calls = calls(&server);
    let layout = Layout::of(Kind::Reentrant);
    assert_eq!(calls[1][1], hash_of(&layout.release_level));
    assert_eq!(calls[1].args()[2..4], ["3".to_owned(), "2".to_owned()]);
    let waits = server.asked().iter().filter(|it| it.is("WAIT")).count();
    assert_eq!(waits, 1, "what is put back needs no replica");
}

#[test]
fn a_hold_that_cannot_be_given_back_is_in_doubt() {
    let (_server, store) = unreplicated(vec![Says::int(1), Says::error("ERR no")], none_has_it());
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
fn the_error_says_why_replicas_cannot_be_asked() {
    let told = |words: &str| {
        let (_server, store) = unreplicated(
            vec![Says::int(1), Says::int(0)],
            Says::Error(words.to_owned()),
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

#[test]
fn a_hold_that_enough_replicas_have_is_granted() {
    let (server, store) = unreplicated(vec![Says::int(1)], Says::Reply(Value::Int(1)));
    let answer = store.acquire(&claim(0), soon()).unwrap();
    assert!(matches!(answer, Outcome::Done(_)), "{answer:?}");
    assert_eq!(calls(&server).len(), 1);
}
