use super::*;
use crate::ground::error::Error;
use crate::store::Left;

fn late(times: usize) -> Vec<Option<Says>> {
    let mut answers = vec![Some(Says::ints(&[3, THEN])); times];
    answers.push(Some(Says::answer(Value::Int(1))));
    answers
}

#[test]
fn a_late_request_is_repeated_three_times() {
    for times in 0..=3 {
        let server = answering(late(times));
        let answer = server.store().acquire(&claim(0), soon()).unwrap();
        assert!(matches!(answer, Outcome::Done(_)), "{answer:?}");
        assert_eq!(calls(&server).len(), times + 1);
    }
    let server = answering(late(4));
    let error = server.store().acquire(&claim(0), soon()).unwrap_err();
    assert!(error.to_string().contains("drifts too fast"), "{error}");
    assert_eq!(calls(&server).len(), 4);
}

#[test]
fn a_re_entry_is_not_repeated_after_a_timeout() {
    let server = answering(vec![nothing()]);
    let answer = server
        .store()
        .acquire(&claim(1), Instant::now() + ms(600))
        .unwrap();
    assert!(matches!(answer, Outcome::Unknown { .. }), "{answer:?}");
    assert_eq!(calls(&server).len(), 1);
}

#[test]
fn a_refused_release_is_not_repeated() {
    let server = answering(vec![Some(Says::error("ERR no"))]);
    let told = server.store().release(&claim(1), Left::Nothing, soon());
    assert!(matches!(told, Err(Error::Unexpected { .. })), "{told:?}");
    assert_eq!(calls(&server).len(), 1);
}

#[test]
fn a_refusal_does_not_settle_an_earlier_attempt() {
    let server = answering(vec![cut(), Some(Says::error("ERR no"))]);
    let answer = server.store().acquire(&claim(1), soon()).unwrap();
    assert!(matches!(answer, Outcome::Unknown { .. }), "{answer:?}");
}

#[test]
fn attempts_record_which_may_have_run() {
    let mut attempts = Attempts::new(soon());
    assert!(!attempts.are_in_doubt());
    attempts.last_is_unanswered();
    assert!(attempts.are_in_doubt() && attempts.earlier_sent_since == attempts.sent_since);
    let first = attempts.sent_since;
    attempts.last_is_unanswered();
    assert_eq!(attempts.sent_since, first);
    attempts.earlier_sent_since = None;
    attempts.last_did_not_run();
    assert!(!attempts.are_in_doubt());
}
