use super::*;
use crate::ground::error::Error;
use crate::store::Left;

fn late(times: usize) -> Vec<Option<Says>> {
    let mut answers = vec![Some(Says::ints(&[3, THEN])); times];
    answers.push(Some(Says::answer(Value::Int(1))));
    answers
}

#[test]
fn a_request_that_came_too_late_is_sent_anew_three_times() {
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
fn a_re_entry_that_is_not_answered_in_time_is_not_sent_again() {
    let server = answering(vec![nothing()]);
    let answer = server
        .store()
        .acquire(&claim(1), Instant::now() + ms(60))
        .unwrap();
    assert!(matches!(answer, Outcome::Unknown { .. }), "{answer:?}");
    assert_eq!(calls(&server).len(), 1);
}

#[test]
fn a_release_that_was_refused_is_not_sent_again() {
    let server = answering(vec![Some(Says::error("ERR no"))]);
    let told = server.store().release(&claim(1), Left::Nothing, soon());
    assert!(matches!(told, Err(Error::Unexpected { .. })), "{told:?}");
    assert_eq!(calls(&server).len(), 1);
}

#[test]
fn a_refusal_behind_a_copy_without_an_answer_says_nothing_of_that_copy() {
    let server = answering(vec![cut(), Some(Says::error("ERR no"))]);
    let answer = server.store().acquire(&claim(1), soon()).unwrap();
    assert!(matches!(answer, Outcome::Unknown { .. }), "{answer:?}");
}

#[test]
fn what_is_known_of_copies_follows_what_became_of_them() {
    let mut copies = SentCopies::new(soon());
    assert!(!copies.are_in_doubt());
    copies.last_is_unanswered();
    assert!(copies.are_in_doubt() && copies.earlier_sent_since == copies.sent_since);
    let first = copies.sent_since;
    copies.last_is_unanswered();
    assert_eq!(copies.sent_since, first);
    copies.earlier_sent_since = None;
    copies.last_did_not_run();
    assert!(!copies.are_in_doubt());
}
