//! What an answer says to others who wait, and when it ends the wait.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::client_inner::Timeouts;
use crate::engine::wait_loop::step::{News, Next, Seen, Time};
use crate::engine::wait_loop::waiting::Waiting;
use crate::ground::backoff::Backoff;
use crate::ground::error::{Error, Result};
use crate::ground::time;
use crate::store::Refusal;

const SECOND: Duration = Duration::from_secs(1);

const TIMEOUTS: Timeouts = Timeouts {
    watchdog_timeout: Duration::from_secs(30),
    command_timeout: Duration::from_secs(1),
    outage_timeout: Duration::from_secs(3),
};

fn name() -> Arc<str> {
    "orders".into()
}

fn unreachable() -> Error {
    Error::Unreachable {
        lock: name(),
        node: name(),
        reason: "it is silent".to_owned(),
        source: None,
    }
}

fn unknown() -> Error {
    Error::Unknown {
        lock: name(),
        node: name(),
        operation: "acquire",
        visitor: None,
        reason: "it is silent".to_owned(),
        source: None,
    }
}

fn undone() -> Error {
    Error::NotReplicated {
        lock: name(),
        node: name(),
        acknowledged: 0,
        wanted: 1,
    }
}

fn exhausted() -> Error {
    Error::Exhausted {
        lock: name(),
        node: name(),
        connections: 1,
    }
}

fn refused() -> Refusal {
    Refusal {
        retry_after: Some(30 * SECOND),
        holder: Some("one".into()),
        ..Refusal::default()
    }
}

/// Tells a wait these answers, each at so many seconds, and returns what it says to others, and what it does then.
fn told(end: Option<u32>, answers: Vec<(u32, Result<Refusal>)>) -> (Vec<News>, Next) {
    let (lock, began) = (name(), time::now());
    let at = |seconds: u32| Time {
        now: began + SECOND * seconds,
        end: end.map(|end| began + SECOND * end),
    };
    let polls = Backoff::of_polls();
    let mut waiting = Waiting::new(&lock, &TIMEOUTS, false, false, false, polls, at(0));
    let mut last = at(0);
    let news = answers.into_iter().map(|(seconds, answer)| {
        last = at(seconds);
        waiting.after(answer, last)
    });
    let news = news.collect();
    let seen = Seen {
        time: last,
        queue: None,
        messages: None,
    };
    (news, waiting.next(seen))
}

fn goes_on(next: &Next) -> bool {
    matches!(next, Next::Join { .. })
}

#[test]
fn others_hear_what_an_answer_says_of_the_lock() {
    let news = |answers| {
        let numbered = (0..).zip(answers);
        told(None, numbered.collect()).0
    };
    let (usable, useless) = (true, false);
    let refusal = |is_usable| News::Refused { is_usable };
    let trouble = |is_undone| News::Trouble { is_undone };
    assert_eq!(news(vec![Ok(refused())]), [refusal(usable)]);
    assert_eq!(news(vec![Err(unreachable())]), [trouble(false)]);
    let heard = news(vec![Err(undone()), Ok(refused())]);
    assert_eq!(heard, [trouble(true), refusal(useless)]);
    // Neither says anything of the lock.
    assert_eq!(news(vec![Err(exhausted())]), [News::None]);
    let error = Error::NotReentrant { lock: name() };
    assert_eq!(news(vec![Err(error)]), [News::None]);
}

#[test]
fn a_silence_ends_a_wait_without_a_deadline_alone() {
    let silent = |end, seconds| told(end, vec![(seconds, Err(unreachable()))]).1;
    assert!(goes_on(&silent(None, 2)));
    assert!(matches!(silent(None, 3), Next::Return(Err(_))));
    assert!(goes_on(&silent(Some(10), 9)));
    assert!(matches!(silent(Some(10), 10), Next::Return(Err(_))));
}

#[test]
fn what_is_in_doubt_is_told_in_place_of_a_trouble_that_passes() {
    let end = |answer| {
        let next = told(Some(2), vec![(1, Err(unknown())), (2, answer)]).1;
        match next {
            Next::Return(Err(error)) => error,
            next => panic!("{next:?}"),
        }
    };
    assert!(matches!(end(Err(unreachable())), Error::Unknown { .. }));
    let endless = Refusal {
        retry_after: None,
        ..refused()
    };
    assert!(matches!(end(Ok(endless)), Error::NoTtl { .. }));
}

#[test]
fn a_wait_that_was_refused_in_time_goes_on_or_ends_as_refused() {
    let next = |seconds| told(Some(5), vec![(seconds, Ok(refused()))]).1;
    assert!(goes_on(&next(4)));
    assert!(matches!(next(5), Next::Return(Ok(()))));
}
