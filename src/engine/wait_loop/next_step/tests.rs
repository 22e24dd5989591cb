//! Tests what a reply to an attempt means for other waiters, and which replies end the wait.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::client_inner::Timeouts;
use crate::engine::wait_loop::next_step::{News, Next, Seen, Time, Waiting};
use crate::engine::wait_queue::{Turn, View};
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

fn pause_behind(answers: Vec<Result<Refusal>>) -> Duration {
    let (lock, now) = (name(), time::now());
    let time = Time { now, end: None };
    let polls = Backoff::of_polls();
    let mut waiting = Waiting::new(&lock, &TIMEOUTS, false, false, polls, time);
    for answer in answers {
        waiting.on_reply(answer, time);
    }
    let seen = Seen {
        time,
        queue: None,
        messages: None,
    };
    assert!(goes_on(&waiting.next(seen)));
    match waiting.next(seen) {
        Next::Sleep(until) | Next::Rest(until) => until.duration_since(now),
        next => panic!("{next:?}"),
    }
}

/// Passes `answers` to a wait, each at its time in seconds. Returns the news for other waiters, and the next step.
fn told(end: Option<u32>, answers: Vec<(u32, Result<Refusal>)>) -> (Vec<News>, Next) {
    let (lock, began) = (name(), time::now());
    let at = |seconds: u32| Time {
        now: began + SECOND * seconds,
        end: end.map(|end| began + SECOND * end),
    };
    let polls = Backoff::of_polls();
    let mut waiting = Waiting::new(&lock, &TIMEOUTS, false, false, polls, at(0));
    let mut last = at(0);
    let news = answers.into_iter().map(|(seconds, answer)| {
        last = at(seconds);
        waiting.on_reply(answer, last)
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
fn a_reply_is_shared_with_other_waiters() {
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
    // These errors say nothing about the lock.
    assert_eq!(news(vec![Err(exhausted())]), [News::None]);
    let error = Error::NotReentrant { lock: name() };
    assert_eq!(news(vec![Err(error)]), [News::None]);
}

#[test]
fn an_outage_ends_only_a_wait_without_a_deadline() {
    let silent = |end, seconds| told(end, vec![(seconds, Err(unreachable()))]).1;
    assert!(goes_on(&silent(None, 2)));
    assert!(matches!(silent(None, 3), Next::Return(Err(_))));
    assert!(goes_on(&silent(Some(10), 9)));
    assert!(matches!(silent(Some(10), 10), Next::Return(Err(_))));
}

#[test]
fn an_in_doubt_attempt_is_reported_before_later_errors() {
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
fn a_refused_wait_ends_as_refused_at_its_deadline() {
    let next = |seconds| told(Some(5), vec![(seconds, Ok(refused()))]).1;
    assert!(goes_on(&next(4)));
    assert!(matches!(next(5), Next::Return(Ok(()))));
}

#[test]
fn a_usable_refusal_resets_the_backoff() {
    let short = Duration::from_millis(15);
    let after = |trouble: fn() -> Error, then: Result<Refusal>| {
        let mut answers: Vec<_> = (0..5).map(|_| Err(trouble())).collect();
        answers.extend([then, Err(trouble())]);
        pause_behind(answers)
    };
    assert!(pause_behind(vec![Err(unreachable())]) <= short);
    assert!(after(unreachable, Err(unreachable())) > short * 3);
    assert!(after(unreachable, Ok(refused())) <= short);
    // Too few replicas acknowledged the last hold, so the refusal does not count as a usable reply.
    assert!(after(undone, Ok(refused())) > short * 3);
}

/// Returns the news of a wait whose attempts were refused at these times, in seconds. If `is_undone` is true, the queue
/// has noted that too few replicas acknowledged an earlier hold.
fn told_where_undone(is_undone: bool, refusals: &[u32]) -> Vec<News> {
    let (lock, began) = (name(), time::now());
    let at = |seconds: u32| Time {
        now: began + SECOND * seconds,
        end: None,
    };
    let polls = Backoff::of_polls();
    let mut waiting = Waiting::new(&lock, &TIMEOUTS, false, false, polls, at(0));
    let queue = Some(View {
        unreplicated_at: is_undone.then_some(began),
        ..View::default()
    });
    let news = refusals.iter().map(|seconds| {
        let time = at(*seconds);
        let messages = None;
        waiting.next(Seen {
            time,
            queue,
            messages,
        });
        waiting.on_reply(Ok(refused()), time)
    });
    news.collect()
}

#[test]
fn after_an_undone_hold_a_refusal_counts_if_one_holder_stays() {
    let refused = |is_usable| News::Refused { is_usable };
    assert_eq!(told_where_undone(false, &[0]), [refused(true)]);
    let told = told_where_undone(true, &[0, 0, 1]);
    assert_eq!(told, [false, false, true].map(refused));
}

#[test]
fn holders_that_come_and_go_do_not_extend_an_outage() {
    let by = |holder: &str| Refusal {
        holder: Some(holder.into()),
        ..refused()
    };
    let refusals = (1..9).zip(["one", "two"].into_iter().cycle());
    let refusals = refusals.map(|(second, holder)| (second, Ok(by(holder))));
    let mut answers = vec![(0, Err(undone()))];
    answers.extend(refusals);
    answers.push((9, Err(undone())));
    let (news, next) = told(None, answers);
    let useless = News::Refused { is_usable: false };
    assert!(news[1..9].iter().all(|it| *it == useless), "{news:?}");
    assert!(
        matches!(next, Next::Return(Err(Error::NotReplicated { .. }))),
        "{next:?}"
    );
}

#[test]
fn a_queued_waiter_checks_a_second_after_the_last_reply() {
    let (lock, began) = (name(), time::now());
    let now = began + 5 * SECOND;
    let sleep = |turn, heard: Option<Duration>| {
        let time = Time {
            now,
            end: Some(began + 60 * SECOND),
        };
        let polls = Backoff::of_polls();
        let mut waiting = Waiting::new(&lock, &TIMEOUTS, false, false, polls, time);
        let queue = Some(View {
            turn,
            last_usable: heard.map(|ago| now - ago),
            ..View::default()
        });
        match waiting.next(Seen {
            time,
            queue,
            messages: None,
        }) {
            Next::Sleep(until) => Some(until - now),
            _ => None,
        }
    };
    let ago = SECOND * 4 / 5;
    let second = |length: Option<Duration>| {
        length.is_some_and(|length| (SECOND..=SECOND * 11 / 10).contains(&length))
    };
    assert!(second(sleep(Turn::NotFirst, Some(ago))));
    let rest = sleep(Turn::HeldLocally, Some(ago));
    assert!(second(rest.map(|rest| rest + ago)), "{rest:?}");
    // The last usable reply is one second old, so the waiter attempts although a thread of this client may hold the lock.
    assert!(sleep(Turn::HeldLocally, Some(SECOND)).is_none());
    assert!(sleep(Turn::HeldLocally, None).is_none());
}
