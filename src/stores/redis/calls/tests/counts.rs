use super::*;
use crate::ground::error::Error;
use crate::store::{CountOp, CountStep, EXPIRY_SLACK};
use crate::stores::redis::layout::Layout;

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
fn each_operation_says_its_word_its_number_and_its_life() {
    for (step, word, amount, life) in [
        (CountStep::Get, "get", 0, 0),
        (CountStep::SetIfMissing(5, Some(ms(70))), "set", 5, 70),
        (CountStep::SetIfMissing(5, None), "set", 5, 0),
        (CountStep::CountDown, "down", 0, 0),
        (CountStep::Add(-3), "add", -3, 0),
        (CountStep::AddIfThere(4), "add_if_there", 4, 0),
        (CountStep::Drain, "drain", 0, 0),
        (CountStep::Forget, "forget", 0, 0),
        (CountStep::Delete, "delete", 0, 0),
        (CountStep::Replace(6), "replace", 6, 0),
        (CountStep::Taken, "taken", 0, 0),
        (CountStep::GiveBack, "give_back", 0, 0),
        (CountStep::Lease, "lease", 0, 0),
        (CountStep::SetLease(ms(80)), "set_lease", 80, 0),
    ] {
        let server = answering(vec![Says::ints(&[1, THEN, -8])]);
        assert_eq!(count_at(&server, step).unwrap(), -8);
        let call = &calls(&server)[0];
        let args = call.args();
        assert_eq!(
            [&args[0], &args[1], &args[4]],
            [word, &amount.to_string(), &life.to_string()]
        );
        let remembered: u64 = args[3].parse().unwrap();
        let least = 2 * EXPIRY_SLACK;
        assert!(
            (least..=least + ms(3000)).contains(&ms(remembered)),
            "{remembered}"
        );
        assert_eq!(args[5], VisitorId::new("client", 3, 9).as_str());
        // A question leaves no answer behind.
        let has_answer = call.keys().iter().any(|key| key.contains("once"));
        assert_eq!(has_answer, !step.is_question(), "{step:?}");
        assert_eq!(call.keys().len(), if step.is_question() { 2 } else { 3 });
    }
}

#[test]
fn an_answer_of_a_count_is_read_by_its_first_number() {
    let server = answering(vec![Says::ints(&[3, THEN]), Says::ints(&[1, THEN, 4])]);
    assert_eq!(count_at(&server, CountStep::Drain).unwrap(), 4);
    assert_eq!(calls(&server).len(), 2);
    let told = count_at(&answering(vec![Says::ints(&[4, THEN])]), CountStep::Add(9));
    let Err(Error::InvalidPermits { permits: 9, .. }) = told else {
        panic!("{told:?}");
    };
    for numbers in [&[1, THEN][..], &[8, THEN, 1], &[]] {
        let told = count_at(&answering(vec![Says::ints(numbers)]), CountStep::Get);
        assert!(matches!(told, Err(Error::Unexpected { .. })), "{told:?}");
    }
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
    let server = answering(vec![Says::int(0)]);
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
fn the_length_of_a_queue_is_a_number() {
    let fair = counter(Kind::Fair);
    for (answer, length) in [
        (Says::int(7), Some(7)),
        (Says::int(0), Some(0)),
        (Says::int(-1), None),
        (Says::ints(&[7]), None),
    ] {
        let server = answering(vec![answer]);
        assert_eq!(server.store().waiters(&fair, soon()).ok(), length);
        assert_eq!(
            calls(&server)[0][1],
            hash_of(Layout::of(Kind::Fair).waiters.as_ref().unwrap())
        );
    }
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
    assert!(force(vec![Says::ints(&[1, THEN])]).0.unwrap());
    assert!(!force(vec![Says::ints(&[0, THEN])]).0.unwrap());
    assert!(!force(vec![Says::ints(&[2, THEN])]).0.unwrap());
    let (freed, asked) = force(vec![Says::ints(&[3, THEN]), Says::ints(&[1, THEN])]);
    assert_eq!((freed.unwrap(), asked), (true, 2));
    let (told, _) = force(vec![Says::ints(&[])]);
    assert!(matches!(told, Err(Error::Unexpected { .. })), "{told:?}");
    let (told, asked) = force(vec![cut()]);
    let Err(Error::Unknown { operation, .. }) = told else {
        panic!("{told:?}");
    };
    assert_eq!((operation, asked), ("forced release", 1));
}
