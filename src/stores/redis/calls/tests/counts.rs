use super::*;
use crate::ground::error::Error;
use crate::store::{CountOp, CountStep};

fn counter(kind: Kind) -> LockId {
    id_of(&claim_of(kind, 0))
}

fn count_at(server: &StubServer, step: CountStep) -> Result<i64> {
    let (counter, permit) = (counter(Kind::PermitIds), VisitorId::new("client", 3, 9));
    let op = CountOp {
        counter: &counter,
        request: VisitorId::new("client", 1, 7),
        permit: Some(&permit),
        step,
    };
    server.store().count(&op, soon())
}

#[test]
fn a_question_without_an_answer_leaves_nothing_unknown() {
    for step in [CountStep::Get, CountStep::Taken, CountStep::Lease] {
        let server = answering(vec![cut()]);
        let told = count_at(&server, step);
        assert!(matches!(told, Err(Error::Unreachable { .. })), "{told:?}");
        assert_eq!(calls(&server).len(), 2);
    }
    let told = count_at(&answering(vec![cut()]), CountStep::Drain);
    let Err(Error::Unknown { operation, .. }) = told else {
        panic!("{told:?}");
    };
    assert_eq!(operation, "drain");
}

#[test]
fn a_lock_is_no_count_and_a_latch_has_no_queue() {
    let server = answering(vec![Some(Says::answer(Value::Int(0)))]);
    let store = server.store();
    let lock = counter(Kind::Reentrant);
    let op = CountOp {
        counter: &lock,
        request: VisitorId::new("client", 1, 7),
        permit: None,
        step: CountStep::Get,
    };
    let told = store.count(&op, soon());
    assert!(matches!(told, Err(Error::Unsupported { .. })), "{told:?}");
    assert!(store.waiters(&lock, soon()).is_err());
    assert!(server.asked().is_empty());
}

#[test]
fn a_look_tells_whether_a_lock_is_held_how_often_and_for_how_long() {
    let claim = claim(1);
    let look = |items: Vec<Value>, visitor: Option<&VisitorId>| {
        let server = saying(items);
        let seen = server.store().inspect(&id_of(&claim), visitor, soon());
        seen.map(|seen| (seen.is_locked, seen.count, seen.remaining))
    };
    let items = |exists, count, ttl| vec![Value::Int(exists), bulk(count), Value::Int(ttl)];
    let own = Some(&claim.visitor);
    assert_eq!(
        look(items(1, "3", 90), own).unwrap(),
        (true, 3, Some(ms(90)))
    );
    assert_eq!(
        look(items(1, "3", 90), None).unwrap(),
        (true, 0, Some(ms(90)))
    );
    assert_eq!(look(items(1, "", -1), own).unwrap(), (true, 0, None));
    assert_eq!(look(items(0, "", -2), own).unwrap(), (false, 0, None));
    assert_eq!(
        look(items(2, "", 0), None).unwrap(),
        (false, 0, Some(ms(0)))
    );
    assert_eq!(
        look(items(1, "x", 9), None).unwrap(),
        (true, 0, Some(ms(9)))
    );
    let corrupt = look(items(1, "x", 9), own);
    assert!(
        matches!(corrupt, Err(Error::CorruptCount { .. })),
        "{corrupt:?}"
    );
    let short = look(vec![Value::Int(1), bulk("1")], own);
    assert!(matches!(short, Err(Error::Unexpected { .. })), "{short:?}");
}

#[test]
fn a_forced_release_tells_whether_it_freed_something() {
    let force = |answers| {
        let server = answering(answers);
        let freed = server.store().force_release(&id_of(&claim(1)), soon());
        (freed, calls(&server).len())
    };
    assert!(force(vec![Some(Says::ints(&[1, THEN]))]).0.unwrap());
    assert!(!force(vec![Some(Says::ints(&[0, THEN]))]).0.unwrap());
    assert!(!force(vec![Some(Says::ints(&[2, THEN]))]).0.unwrap());
    let (freed, asked) = force(vec![
        Some(Says::ints(&[3, THEN])),
        Some(Says::ints(&[1, THEN])),
    ]);
    assert_eq!((freed.unwrap(), asked), (true, 2));
    let (told, _) = force(vec![Some(Says::ints(&[]))]);
    assert!(matches!(told, Err(Error::Unexpected { .. })), "{told:?}");
    let (told, asked) = force(vec![cut()]);
    let Err(Error::Unknown { operation, .. }) = told else {
        panic!("{told:?}");
    };
    assert_eq!((operation, asked), ("forced release", 1));
}
