use std::sync::LazyLock;
use std::thread;

use super::*;
use crate::ground::error::Error;
use crate::stores::quorum::quarantine::{Membership, NodeHandle};
use crate::stores::redis::layout::Layout;
use crate::stores::redis::tests::stub::settings;

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

/// A look whose answer puts our idea of the clock right when its time is just over.
struct TooLong(Instant);

impl Operation for TooLong {
    type Answer = ();

    fn call(&self) -> Call<'_> {
        static LOCK: LazyLock<Arc<str>> = LazyLock::new(|| "lock".into());
        Call::new(Kind::Reentrant, |layout| &layout.inspect, &LOCK, None)
    }

    fn read(&mut self, _: &Redis, _: &Value, _: &mut SentCopies) -> Read<Self> {
        thread::sleep(self.0.saturating_duration_since(Instant::now()));
        Err(Unread::Outdated)
    }
}

#[test]
fn a_request_whose_time_is_over_when_the_clock_is_right_says_so() {
    let server = answering(vec![Says::int(1)]);
    let store = server.store();
    let deadline = Instant::now() + ms(400);
    let told = TooLong(deadline).run(&store, deadline);
    let Err(Error::Unavailable { reason, .. }) = told else {
        panic!("{told:?}");
    };
    assert!(
        reason.contains("was over when that had been put right"),
        "{reason}"
    );
    assert_eq!(calls(&server).len(), 1);
}

#[test]
fn the_second_copy_has_all_the_time_that_is_left() {
    let late = Says::Later(ms(650), Box::new(Says::int(0).unwrap()));
    let server = answering(vec![nothing(), Some(late)]);
    let deadline = Instant::now() + ms(2000);
    let answer = server.store().release(&claim(1), 0, deadline).unwrap();
    assert!(matches!(answer, Outcome::Done(_)), "{answer:?}");
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

#[test]
fn a_server_that_says_it_is_another_one_is_asked_who_it_is() {
    let server = StubServer::start(|request| voter::identity("run", request));
    let store = server.store();
    let now = crate::ground::clock::BootInstant::now;
    let noted = |word| {
        store
            .topology
            .with("lock", soon(), |_, connection| {
                connection.identify(soon())?;
                let reply = Value::Array(vec![Value::Int(word), Value::Int(THEN)]);
                note_in(connection, &reply, 0, now());
                Ok(connection.is_identified())
            })
            .unwrap()
    };
    assert!(noted(5));
    assert!(!noted(6));
    assert!(noted(1));
}

#[test]
fn an_acquisition_by_a_vote_names_the_node_and_what_is_restored() {
    let membership = Arc::new(Membership::new(3, ms(30_000), true));
    let handle = NodeHandle::new(&membership, 0, false);
    let claim = claim(2);
    let counts = |restored| {
        let acquire = Acquire::voted(&claim, restored, &handle);
        let call = acquire.call();
        assert!(call.handle.is_some());
        (call.known, call.wanted)
    };
    assert_eq!((counts(false), counts(true)), ((2, 3), (0, 2)));
    assert!(Acquire::new(&claim).call().handle.is_none());
}

#[test]
fn a_call_of_a_cluster_says_so() {
    let server = answering(Vec::new());
    let one = server.store();
    let cluster = Redis::cluster(&[server.url()], &settings()).unwrap();
    let claim = claim(1);
    let call = Call::of(&claim, |layout| &layout.release);
    assert!(cluster.completed(call).is_in_cluster);
    assert!(!one.completed(call).is_in_cluster);
}
