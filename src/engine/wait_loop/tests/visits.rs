//! Whole waits: how a visitor comes to its entry, and what others who wait here hear.

mod leaves;
mod scripted;

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{exhausted, not_reentrant, unreachable};
use crate::Client;
use crate::engine::counters::class::Via;
use crate::engine::wait_loop::{self, Node, Polling, WaitLimit};
#[cfg(feature = "test-util")]
use crate::ground::claim::{Kind, LockId};
use crate::ground::clock::PROCESS;
use crate::ground::error::{Error, Result};
use crate::ground::interrupt::Interrupt;
use crate::ground::notify::Parker;
use crate::ground::time;
use crate::store::Refusal;
use scripted::{
    Answer, HANDED, LET_IN, SECOND, Scripted, granted, hand_over, hold, lock, no_quorum,
    not_replicated, offer, refused, wait,
};

#[test]
fn a_visitor_says_how_it_came_to_the_lock() {
    let client = Client::in_memory();
    let queues = &client.inner().wait_queues;
    let mut free = Scripted::of([granted(1)]);
    assert_eq!(wait(&client, &mut free).unwrap(), Some(1));
    assert_eq!(
        (free.came, free.waits, free.subscribed.get()),
        (vec![Via::Free], 0, 0)
    );

    let mut polled = Scripted::of([refused(SECOND), refused(Duration::ZERO), granted(2)]);
    assert_eq!(wait(&client, &mut polled).unwrap(), Some(2));
    assert_eq!(
        (polled.came, polled.waits, polled.subscribed.get()),
        (vec![Via::Polled], 1, 1)
    );

    let answers = [refused(SECOND * 60), refused(SECOND * 60), granted(3)];
    let mut woken = Scripted::of(answers).before(|number| {
        if number == 2 {
            queues.freed(&lock(), None, None);
        }
    });
    assert_eq!(wait(&client, &mut woken).unwrap(), Some(3));
    assert_eq!(woken.came, [Via::Polled], "no message came");

    let mut handed = Scripted::of([]).before(|number| {
        if number == 2 {
            hand_over(client.inner(), hold(SECOND * 60));
        }
    });
    assert_eq!(wait(&client, &mut handed).unwrap(), Some(HANDED));
    assert_eq!(handed.came, [Via::Handed]);
}

#[test]
fn one_that_is_handed_what_is_over_goes_to_the_end_and_asks_again() {
    let client = Client::in_memory();
    let answers = [refused(SECOND * 60), refused(SECOND * 60), granted(3)];
    let mut visit = Scripted::of(answers).before(|number| {
        if number == 2 {
            hand_over(client.inner(), hold(Duration::ZERO));
        }
    });
    visit.inner = Some(client.inner());
    assert_eq!(wait(&client, &mut visit).unwrap(), Some(3));
    // It listens anew, as its messages have gone to those behind it.
    assert_eq!((visit.waits, visit.subscribed.get()), (2, 2));
}

#[test]
fn one_that_polls_listens_to_no_messages() {
    let client = Client::in_memory();
    let pause = Duration::from_millis(1);
    let polling = Polling {
        first: pause,
        longest: pause,
    };
    let mut visit = Scripted::of([refused(SECOND * 60), refused(SECOND * 60), granted(3)]);
    let limit = WaitLimit::forever(None);
    let outcome = wait_loop::wait(client.inner(), &lock(), Some(polling), limit, &mut visit);
    assert_eq!(outcome.unwrap(), Some(3));
    assert_eq!((visit.subscribed.get(), visit.came), (0, vec![Via::Polled]));
}

#[test]
fn an_interrupt_ends_a_wait_before_its_next_question_and_in_its_sleep() {
    let client = Client::in_memory();
    for number in 0..3 {
        let interrupt = Interrupt::new();
        if number == 0 {
            interrupt.raise();
        }
        let mut visit = Scripted::of([]).before(|asked| {
            if asked == number {
                interrupt.raise();
            }
        });
        let limit = WaitLimit::forever(Some(&interrupt));
        let outcome = wait_loop::wait(client.inner(), &lock(), None, limit, &mut visit);
        assert!(matches!(outcome, Err(Error::Interrupted { .. })));
        assert_eq!(visit.asked.len() as u32, number);
    }
    let interrupt = Interrupt::new();
    let sleeps = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            interrupt.raise();
        });
        let limit = WaitLimit::forever(Some(&interrupt));
        wait_loop::wait(client.inner(), &lock(), None, limit, &mut Scripted::of([]))
    });
    assert!(matches!(sleeps, Err(Error::Interrupted { .. })));
}

#[test]
fn the_end_of_a_client_ends_its_waits() {
    let client = Client::in_memory();
    let mut visit = Scripted::of([]).before(|number| {
        if number == 2 {
            client.inner().store.facts().notifier.close();
        }
    });
    assert!(matches!(
        wait(&client, &mut visit),
        Err(Error::Closed { .. })
    ));
}

#[test]
fn a_wait_ends_as_refused_at_its_limit_and_an_error_ends_it_at_once() {
    let client = Client::in_memory();
    let mut once = Scripted::of([]);
    let outcome = wait_loop::wait(client.inner(), &lock(), None, WaitLimit::once(), &mut once);
    assert_eq!(
        (outcome.unwrap(), once.asked.len(), once.waits),
        (None, 1, 0)
    );
    let mut fails = Scripted::of([Err(not_reentrant(lock().name))]);
    assert!(matches!(
        wait(&client, &mut fails),
        Err(Error::NotReentrant { .. })
    ));
    let short = Duration::from_millis(30);
    let limit = WaitLimit::lasting(short, &PROCESS, None).unwrap();
    let mut late = Scripted::of([]);
    let outcome = wait_loop::wait(client.inner(), &lock(), None, limit, &mut late);
    assert_eq!((outcome.unwrap(), late.asked.len()), (None, 3));
    assert!(late.asked[2].duration_since(late.asked[0]) >= short / 2);
}

/// The view of another waiter once a visitor has had an answer: whether that was usable, in doubt, undone.
fn known_after(answer: Answer) -> (bool, bool, bool) {
    let client = Client::in_memory();
    let queues = &client.inner().wait_queues;
    let other = RefCell::new(None::<Node>);
    let known = Cell::new(None);
    let parker = Parker::default();
    let parker = Arc::new(parker);
    let mut visit = Scripted::of([Err(exhausted(lock().name)), answer, granted(1)]);
    visit.looks = Box::new(|| {
        // Behind this one, which stands in the queue by now.
        if queues.is_busy(&lock()) && other.borrow().is_none() {
            *other.borrow_mut() = Some(queues.join(&lock(), &parker, offer()));
        }
    });
    let mut visit = visit.before(|number| {
        if let (3, Some(other)) = (number, &*other.borrow()) {
            let view = other.view();
            known.set(Some((
                view.last_usable.is_some(),
                view.is_in_doubt,
                view.is_undone,
            )));
        }
    });
    assert_eq!(wait(&client, &mut visit).unwrap(), Some(1));
    known.get().unwrap()
}

#[test]
fn what_one_is_answered_all_who_wait_here_know() {
    assert_eq!(known_after(refused(Duration::ZERO)), (true, false, false));
    assert_eq!(
        known_after(Err(exhausted(lock().name))),
        (false, false, false)
    );
    assert_eq!(
        known_after(Err(unreachable(lock().name))),
        (false, true, false)
    );
    assert_eq!(known_after(Err(not_replicated())), (false, true, true));
}

#[test]
fn one_that_joins_tells_whether_it_was_refused_before() {
    for (first, is_known) in [
        (refused(Duration::ZERO), true),
        (Err(unreachable(lock().name)), false),
    ] {
        let client = Client::in_memory();
        let queues = &client.inner().wait_queues;
        let parker = Arc::new(Parker::default());
        let mut known = Vec::new();
        let mut visit = Scripted::of([first, granted(1)]);
        visit.looks = Box::new(|| {
            if queues.is_busy(&lock()) {
                let other = queues.join(&lock(), &parker, offer());
                known.push(other.view().last_usable.is_some());
            }
        });
        assert_eq!(wait(&client, &mut visit).unwrap(), Some(1));
        drop(visit);
        assert_eq!(known.first(), Some(&is_known));
    }
}

#[test]
fn what_stays_open_lets_in_those_who_had_come_before_the_question() {
    for is_open in [true, false] {
        let client = Client::in_memory();
        let queues = &client.inner().wait_queues;
        let parker = Arc::new(Parker::default());
        let others = RefCell::new(Vec::<Node>::new());
        let join = || {
            others
                .borrow_mut()
                .push(queues.join(&lock(), &parker, offer()))
        };
        let seen = RefCell::new(Vec::new());
        let third = match is_open {
            true => granted(1),
            false => refused(Duration::ZERO),
        };
        let mut visit = Scripted::of([Err(exhausted(lock().name)), third, granted(2)]);
        visit.follows = true;
        visit.looks = Box::new(|| {
            if queues.is_busy(&lock()) && others.borrow().is_empty() {
                join();
            }
        });
        let mut visit = visit.before(|number| match number {
            2 => join(),
            3 => {
                let others = others.borrow();
                seen.borrow_mut()
                    .extend(others.iter().map(|it| it.view().is_told));
            }
            _ => {}
        });
        let entry = if is_open { 1 } else { 2 };
        assert_eq!(wait(&client, &mut visit).unwrap(), Some(entry));
        drop(visit);
        let others = others.into_inner();
        let let_in: Vec<_> = others.iter().map(Node::is_let_in).collect();
        match is_open {
            true => assert_eq!(let_in, [true, false]),
            // Both were there when the last question was asked.
            false => assert_eq!(
                (seen.into_inner(), let_in),
                (vec![true, false], vec![true, true])
            ),
        }
    }
}

#[test]
fn one_that_is_let_in_by_another_ones_answer_asks_no_more() {
    let client = Client::in_memory();
    let queues = &client.inner().wait_queues;
    let mut visit = Scripted::of([]);
    visit.follows = true;
    let mut visit = visit.before(|number| {
        if number == 2 {
            let parker = Arc::new(Parker::default());
            queues.join(&lock(), &parker, offer()).let_in(u64::MAX);
        }
    });
    assert_eq!(wait(&client, &mut visit).unwrap(), Some(LET_IN));
    assert_eq!(visit.asked.len(), 2);
}

#[test]
fn nobody_asks_again_at_once_where_each_attempt_is_told_whatever_messages_come() {
    let client = Client::in_memory();
    let queues = &client.inner().wait_queues;
    let answers = [refused(SECOND * 60), Err(no_quorum()), granted(1)];
    let mut visit = Scripted::of(answers).before(|number| {
        if number == 2 {
            queues.freed(&lock(), None, None);
        }
    });
    assert_eq!(wait(&client, &mut visit).unwrap(), Some(1));
    assert!(visit.asked[2].duration_since(visit.asked[1]) >= Duration::from_millis(5));
}

#[test]
fn one_that_rests_takes_what_it_is_handed() {
    let client = Client::in_memory();
    let split = Ok(ControlFlow::Continue(Refusal {
        retry_after: Some(SECOND * 60),
        split: Some(SECOND * 60),
        ..Refusal::default()
    }));
    let began = time::now();
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            hand_over(client.inner(), hold(SECOND * 60));
        });
        wait(&client, &mut Scripted::of([refused(Duration::ZERO), split]))
    });
    assert_eq!(outcome.unwrap(), Some(HANDED));
    assert!(time::since(began) < SECOND * 30);
}

#[cfg(feature = "test-util")]
#[test]
fn one_that_waits_is_counted_once_whether_its_client_has_a_queue_or_the_store() {
    for kind in [Kind::Reentrant, Kind::Fair] {
        let client = Client::in_memory();
        let queues = &client.inner().wait_queues;
        let lock = LockId { kind, ..lock() };
        let mut lengths = Vec::new();
        let answers = (0..3).map(|_| refused(Duration::ZERO));
        let mut visit = Scripted::of(answers.chain([granted(1)]));
        visit.queues = kind.rules().queues_locally;
        let mut visit = visit.before(|_| lengths.push(queues.length(&lock)));
        let limit = WaitLimit::forever(None);
        let outcome = wait_loop::wait(client.inner(), &lock, None, limit, &mut visit);
        assert_eq!(outcome.unwrap(), Some(1));
        drop(visit);
        assert_eq!(lengths, [0, 1, 1, 1], "{kind:?}");
        assert_eq!(queues.length(&lock), 0);
    }
}
