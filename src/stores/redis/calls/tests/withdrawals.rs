use super::*;

#[test]
fn resolving_covers_only_requests_before_its_time() {
    for (now, settles) in [(THEN - 1, false), (THEN, false), (THEN + 1, true)] {
        let server = answering(vec![Some(Says::ints(&[5, now]))]);
        let outcome = server.store().resolve(&mut claim(0).in_doubt(THEN), soon());
        assert_eq!(outcome.unwrap(), settles, "{now}");
    }
}
