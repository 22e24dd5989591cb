use super::*;
use crate::ground::batch::{Batch, Work};
use crate::ground::clock::BootInstant;
use crate::ground::error::Error;
use crate::ground::reply::Reply;
use crate::store::Guarded;

fn batch() -> Batch {
    let mut batch = Batch::default();
    batch.set("stock", "3").get("stock");
    batch
}

fn guarded_until(
    store: &Redis,
    valid: Duration,
    deadline: Instant,
) -> Result<Outcome<Vec<Reply>, Duration>> {
    let (claim, batch) = (claim(1), batch());
    let work = Guarded {
        claim: &claim,
        work: Work::Commands(&batch),
        valid_until: BootInstant::now() + valid,
    };
    store.guarded(&work, deadline)
}

fn guarded(server: &StubServer) -> Result<Outcome<Vec<Reply>, Duration>> {
    guarded_until(&server.store(), ms(60_000), soon())
}

fn fenced(server: &StubServer) -> Result<Vec<Reply>> {
    let batch = batch();
    let resource = Arc::from("order");
    server
        .store()
        .write_fenced(&resource, 7, Work::Commands(&batch), soon())
}

fn done(replies: Vec<Value>) -> Option<Says> {
    let items = vec![Value::Int(1), Value::Int(THEN), Value::Array(replies)];
    Some(Says::answer(Value::Array(items)))
}

fn failed(index: i64, replies: Vec<Value>) -> StubServer {
    saying(vec![
        Value::Int(7),
        Value::Int(THEN),
        Value::Int(index),
        bulk("ERR it is no number"),
        Value::Array(replies),
    ])
}

#[test]
fn the_command_that_failed_is_told_with_the_replies_before_it() {
    let error = guarded(&failed(1, vec![Value::Okay])).unwrap_err();
    let Error::CommandFailed {
        index: 1,
        reason,
        done,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(reason.contains("no number"), "{reason}");
    assert_eq!(done, [Reply::Bytes(b"OK".to_vec())]);
}

#[test]
fn work_without_an_answer_is_sent_once_and_its_outcome_unknown() {
    let server = answering(vec![cut()]);
    let told = guarded(&server);
    let Err(Error::Unknown {
        operation, visitor, ..
    }) = told
    else {
        panic!("{told:?}");
    };
    assert_eq!((operation, visitor.is_some()), ("guarded write", true));
    assert_eq!(calls(&server).len(), 1);
    let told = fenced(&answering(vec![cut()]));
    let Err(Error::Unknown {
        operation, visitor, ..
    }) = told
    else {
        panic!("{told:?}");
    };
    assert_eq!((operation, visitor.is_some()), ("fenced write", false));
}

#[test]
fn an_answer_that_cannot_be_read_does_not_say_that_nothing_was_done() {
    for items in [
        vec![],
        vec![Value::Int(1), Value::Int(THEN)],
        vec![Value::Int(9), Value::Int(THEN), Value::Int(0)],
        // A hold has no fence.
        vec![Value::Int(8), Value::Int(THEN), bulk("9")],
    ] {
        let told = guarded(&saying(items));
        assert!(matches!(told, Err(Error::Unknown { .. })), "{told:?}");
    }
}

#[test]
fn work_too_late_for_its_validity_waits_for_a_renewal() {
    let late = || answering(vec![Some(Says::ints(&[3, THEN]))]);
    // Its end is nearer than that of the call: it may be prolonged meanwhile.
    for (valid, least, most) in [(ms(60_000), ms(20), ms(20)), (ms(0), ms(0), ms(0))] {
        let server = late();
        let deadline = Instant::now() + ms(90_000);
        let told = guarded_until(&server.store(), valid, deadline);
        let Ok(Outcome::Refused(pause)) = told else {
            panic!("{told:?}");
        };
        assert!((least..=most).contains(&pause), "{pause:?}");
        // The first answer put the clock right.
        assert_eq!(calls(&server).len(), 2);
    }
    // The validity is long: the clocks differ in some other way.
    let server = late();
    let told = guarded_until(&server.store(), ms(90_000), soon());
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    assert_eq!(calls(&server).len(), 4);
}

#[test]
fn work_is_refused_after_the_end_of_the_validity() {
    let expiry = |valid| {
        let server = answering(vec![done(vec![])]);
        guarded_until(&server.store(), valid, Instant::now() + ms(60_000)).unwrap();
        let call = calls(&server).pop().unwrap();
        // The last argument is the number of the request.
        call[call.len() - 2].parse::<i64>().unwrap()
    };
    let (short, long) = (expiry(ms(10_000)), expiry(ms(90_000)));
    // One is that of the validity, the other that of the call with what is granted beyond it.
    assert!((50_000..80_000).contains(&(long - short)), "{short} {long}");
}

#[test]
fn a_fence_that_is_too_old_is_told_with_the_newer_one() {
    let told = fenced(&saying(vec![Value::Int(8), Value::Int(THEN), bulk("12")]));
    let is_told = matches!(
        told,
        Err(Error::Stale {
            fence: 7,
            newer: 12,
            ..
        })
    );
    assert!(is_told, "{told:?}");
    let told = fenced(&saying(vec![Value::Int(8), Value::Int(THEN), bulk("x")]));
    assert!(matches!(told, Err(Error::Unknown { .. })), "{told:?}");
    // A fence is no hold that could be gone.
    let told = fenced(&saying(vec![Value::Int(2), Value::Int(THEN), bulk("")]));
    assert!(matches!(told, Err(Error::Unknown { .. })), "{told:?}");
}

#[test]
fn a_script_that_does_not_compile_is_the_first_command_that_failed() {
    let refused = "ERR Error compiling script (new function): user_script:3: unexpected";
    let told = guarded(&answering(vec![Some(Says::error(refused))]));
    let is_told = matches!(told, Err(Error::CommandFailed { index: 0, .. }));
    assert!(is_told, "{told:?}");
}

#[test]
fn keys_of_another_slot_are_named_when_the_server_refuses_them() {
    let refused = "CROSSSLOT Keys in request don't hash to the same slot";
    let told = guarded(&answering(vec![Some(Says::error(refused))]));
    let Err(Error::CrossSlot { key, .. }) = told else {
        panic!("{told:?}");
    };
    assert_eq!(key, "stock");
}

#[test]
fn a_refusal_names_the_keys_of_the_data_and_that_of_the_fence() {
    let refused = "NOPERM No permissions to access a key";
    let reason = |error: Error| match error {
        Error::Permission { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let of_hold = reason(guarded(&answering(vec![Some(Says::error(refused))])).unwrap_err());
    assert!(of_hold.ends_with("(of stock, stock)"), "{of_hold}");
    let of_fence = reason(fenced(&answering(vec![Some(Says::error(refused))])).unwrap_err());
    let names_all = of_fence.ends_with("(of stock, stock, redlatch_fence:{order})");
    assert!(names_all, "{of_fence}");
}
