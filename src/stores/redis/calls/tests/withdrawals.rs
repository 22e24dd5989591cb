use super::*;
use crate::stores::redis::topology::Topology;

fn doubt(thread: u64, not_after: i64) -> InDoubt {
    let claim = Claim {
        visitor: VisitorId::new("client", thread, 1),
        ..claim(0)
    };
    claim.in_doubt(not_after)
}

fn resolve(store: &Redis, doubts: &mut [InDoubt]) -> Vec<Result<bool>> {
    let mut doubts: Vec<&mut InDoubt> = doubts.iter_mut().collect();
    store.resolve(&mut doubts, soon())
}

fn settled(outcomes: Vec<Result<bool>>) -> Vec<bool> {
    outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap())
        .collect()
}

#[test]
fn a_withdrawal_settles_what_comes_before_its_time_alone() {
    for (now, settles) in [(THEN - 1, false), (THEN, false), (THEN + 1, true)] {
        // The first of them goes alone, the others go together.
        let server = answering(vec![Some(Says::ints(&[5, now]))]);
        let mut doubts = [doubt(1, THEN), doubt(2, THEN), doubt(3, THEN)];
        let outcomes = resolve(&server.store(), &mut doubts);
        assert_eq!(settled(outcomes), [settles; 3], "{now}");
    }
}

#[test]
fn a_cut_among_many_is_told_with_the_answers_before_it() {
    let answer = || Some(Says::ints(&[5, FAR]));
    let server = answering(vec![answer(), answer(), cut()]);
    let mut doubts = [doubt(1, THEN), doubt(2, THEN), doubt(3, THEN)];
    doubts[2].name = "third".into();
    let outcomes = resolve(&server.store(), &mut doubts);
    let [Ok(true), Ok(true), Err(error)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(error.to_string().contains("third"), "{error}");
}

#[test]
fn a_copy_on_a_connection_that_was_cut_may_come_behind_a_withdrawal() {
    let server = answering(vec![Some(Says::ints(&[5, THEN]))]);
    let store = server.store();
    let mut doubts = [doubt(1, 0), doubt(2, 0), doubt(3, 0)];
    let Topology::One(node) = &store.topology else {
        unreachable!();
    };
    for (at, not_after) in [(0, THEN), (1, THEN), (2, THEN - 1)] {
        let visitor = Some(doubts[at].visitor.clone());
        node.pool
            .note_lost(visitor, Some(not_after), Instant::now());
    }
    let outcomes = resolve(&store, &mut doubts);
    assert_eq!(settled(outcomes), [false, false, true]);
}

#[test]
fn a_withdrawal_behind_its_request_comes_after_it() {
    let store = answering(Vec::new()).store();
    let answer = |earlier_until, is_behind| {
        let mut copies = SentCopies {
            is_behind,
            earlier_until,
            ..SentCopies::new(soon())
        };
        let reply = Ok(Value::Int(THEN));
        let mut resolve = Resolve(doubt(1, THEN));
        resolve.answer(&store, reply, &mut copies).unwrap().unwrap()
    };
    assert!(!answer(None, false));
    assert!(answer(None, true));
    // Though not after what went elsewhere.
    assert!(!answer(Some(THEN), true));
    assert!(!answer(Some(THEN - 1), false));
    assert!(!answer(Some(FAR), true));
}
