use super::*;

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
fn resolving_covers_only_requests_before_its_time() {
    for (now, settles) in [(THEN - 1, false), (THEN, false), (THEN + 1, true)] {
        // The first request is sent alone, all later requests together.
        let server = answering(vec![Some(Says::ints(&[5, now]))]);
        let mut doubts = [doubt(1, THEN), doubt(2, THEN), doubt(3, THEN)];
        let outcomes = resolve(&server.store(), &mut doubts);
        assert_eq!(settled(outcomes), [settles; 3], "{now}");
    }
}

#[test]
fn a_cut_keeps_the_results_before_it() {
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
