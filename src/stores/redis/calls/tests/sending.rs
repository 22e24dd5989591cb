use super::*;
use crate::ground::error::Error;
use crate::stores::redis::layout::Layout;

fn late(times: usize) -> Vec<Option<Says>> {
    let mut answers = vec![Says::ints(&[3, THEN]); times];
    answers.push(Says::int(1));
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
    assert!(error.to_string().contains("runs away from ours"), "{error}");
    assert_eq!(calls(&server).len(), 4);
}

#[test]
fn a_request_whose_time_is_over_when_the_clock_is_right_says_so() {
    let store = answering(Vec::new()).store();
    let claim = claim(0);
    let mut operation = Acquire::new(&claim);
    let reply = || Ok(Value::Array(vec![Value::Int(3), Value::Int(THEN)]));
    let mut copies = SentCopies::new(Instant::now());
    assert!(operation.answer(&store, reply(), &mut copies).is_none());
    let refused = CallError::Server(NO_TIME_TO_CORRECT.to_owned());
    let told = operation.fail(&store, refused, &mut copies);
    let Err(Error::Unavailable { reason, .. }) = told else {
        panic!("{told:?}");
    };
    assert!(
        reason.contains("was over when it had been put right"),
        "{reason}"
    );
}

#[test]
fn the_first_of_two_copies_has_half_the_time() {
    let server = answering(vec![nothing(), Says::int(0)]);
    let began = Instant::now();
    let answer = server
        .store()
        .release(&claim(1), 0, began + ms(1000))
        .unwrap();
    let took = began.elapsed();
    assert!(matches!(answer, Outcome::Done(_)), "{answer:?}");
    assert!(took >= ms(490), "{took:?}");
    let calls = calls(&server);
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].args(), calls[1].args());
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
fn a_release_that_could_not_be_sent_is_tried_once_more() {
    let server = StubServer::start(|request| request.is("TIME").then_some(Says::Cut));
    let told = server.store().release(&claim(1), 0, soon());
    assert!(matches!(told, Err(Error::Unreachable { .. })), "{told:?}");
    let twice = server.connected();
    let server = StubServer::start(|request| request.is("TIME").then_some(Says::Cut));
    let from = claim(1);
    let told = server.store().hand_off(&from, &claim(2), soon());
    assert!(matches!(told, Err(Error::Unreachable { .. })), "{told:?}");
    // A hand-over is not: the release that comes next has its time.
    assert_eq!(twice, 2 * server.connected());
}

#[test]
fn a_release_that_was_refused_is_not_sent_again() {
    let server = answering(vec![Says::error("ERR no")]);
    let told = server.store().release(&claim(1), 0, soon());
    assert!(matches!(told, Err(Error::Unexpected { .. })), "{told:?}");
    assert_eq!(calls(&server).len(), 1);
}

#[test]
fn a_refusal_behind_a_copy_without_an_answer_says_nothing_of_that_copy() {
    let server = answering(vec![cut(), Says::error("ERR no")]);
    let answer = server.store().acquire(&claim(1), soon()).unwrap();
    assert!(matches!(answer, Outcome::Unknown { .. }), "{answer:?}");
}

#[test]
fn a_script_that_the_server_does_not_know_is_sent_with_its_text() {
    let server = answering(vec![Says::error("NOSCRIPT no"), Says::int(1)]);
    let answer = server.store().acquire(&claim(0), soon()).unwrap();
    assert!(matches!(answer, Outcome::Done(_)), "{answer:?}");
    let calls = calls(&server);
    let script = &Layout::of(Kind::Reentrant).acquire;
    assert!(calls[0].is("EVALSHA") && calls[0][1] == script.hash);
    assert!(calls[1].is("EVAL") && calls[1][1] == script.text);
    assert_eq!(calls[0].args(), calls[1].args());
    assert_eq!(calls[0].number(), calls[1].number());
}

#[test]
fn a_call_that_does_not_expire_is_no_copy_in_doubt() {
    let server = answering(vec![cut()]);
    let told = server.store().inspect(&id_of(&claim(1)), None, soon());
    assert!(matches!(told, Err(Error::Unreachable { .. })), "{told:?}");
    assert_eq!(calls(&server).len(), 1);
}

#[test]
fn the_time_that_an_answer_tells_moves_the_next_expiry() {
    let server = answering(vec![
        Says::ints(&[3, THEN]),
        Says::int(1),
        Says::ints(&[2, FAR]),
        Says::int(1),
    ]);
    let store = server.store();
    for _ in 0..3 {
        store.acquire(&claim(0), soon()).ok();
    }
    let expiries: Vec<i64> = calls(&server)
        .iter()
        .map(|call| call.args()[4].parse().unwrap())
        .collect();
    let far = |expiry: i64, from: i64| (expiry - from).abs() < 60_000;
    assert!(!far(expiries[0], THEN), "{expiries:?}");
    assert!(far(expiries[1], THEN), "{expiries:?}");
    assert!(far(expiries[3], FAR), "{expiries:?}");
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
