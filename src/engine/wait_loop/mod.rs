//! The wait loop, shared by locks, counters and conditions.
//!
//! A waiter attempts, subscribes, attempts a second time and then sleeps. In this order, the waiter misses no release
//! between a refusal and its sleep. After a sleep, a waiter usually attempts before it checks its deadline. After
//! transient errors, a waiter retries until its deadline. Without a deadline, it retries for `outage_timeout`.

mod limit;
mod next_step;
mod sleeper;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::client_inner::ClientInner;
use crate::engine::hold::{HandOffOffer, Hold};
pub(crate) use crate::engine::wait_loop::limit::WaitLimit;
use crate::engine::wait_loop::next_step::{News, Next, Seen, Time, Waiting, is_exhausted};
use crate::engine::wait_loop::sleeper::Sleeper;
use crate::engine::wait_queue::QueueNode;
use crate::ground::backoff::Backoff;
use crate::ground::claim::LockId;
use crate::ground::error::{Error, Result};
use crate::ground::notify::Wake;
use crate::store::{Refusal, StoreEntry};

type Node = QueueNode<HandOffOffer, Arc<Hold>>;

/// One wait of a thread. The wait loop calls these methods to make attempts and to report progress.
pub(crate) trait Visit {
    type Entry;

    fn attempt(&mut self, deadline: Instant) -> Result<ControlFlow<Self::Entry, Refusal>>;

    fn entry(&self) -> Option<StoreEntry<'_>> {
        None
    }

    /// The data that a releaser needs for a hand-off to this waiter. `None` keeps the waiter out of the client's queue.
    fn offer(&self) -> Option<HandOffOffer> {
        None
    }

    /// Accepts a hold that was handed off. Returns `None` if the hold is no longer valid.
    fn accept(&self, _hold: Arc<Hold>) -> Option<Self::Entry> {
        None
    }

    /// Frees a handed-off hold that the waiter does not use.
    fn discard(&self, _hold: &Hold) {}

    /// Called when the waiter has to wait, even if `Visit::offer` keeps the waiter out of the client's queue.
    fn joined(&mut self) {}

    fn slept(&mut self, _now: Instant) {}

    /// Notes how this wait acquires the lock, for `Event::Acquired`.
    fn acquired_via(&mut self, _via: &'static str) {}
}

/// The pauses between the attempts of a spin lock. Waiters of a spin lock receive no messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polling {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

/// Returns `Ok(None)` if the limit is reached, and the last attempt was refused or got no connection.
pub(crate) fn wait<V: Visit>(
    inner: &ClientInner,
    lock: &LockId,
    polling: Option<&Polling>,
    limit: WaitLimit<'_>,
    visit: &mut V,
) -> Result<Option<V::Entry>> {
    let mut wait = Wait {
        inner,
        lock,
        visit,
        node: None,
        sleeper: Sleeper::new(&*inner.store, lock, polling.is_some(), limit),
        woken_by: "free",
    };
    let polls = polling.map(|it| Backoff::between(it.first, it.longest));
    let begun = limit.time();
    let outcome = match wait.run(polls.unwrap_or_else(Backoff::of_polls), limit, begun) {
        // The last attempt got no connection before the deadline of the wait, so the result is a timeout.
        Err(error) if is_exhausted(&error) && limit.time().has_waited(begun.now) => Ok(None),
        outcome => outcome,
    };
    wait.leave(outcome)
}

struct Wait<'a, V> {
    inner: &'a ClientInner,
    lock: &'a LockId,
    visit: &'a mut V,
    node: Option<Node>,
    sleeper: Sleeper<'a>,
    /// What precedes the next attempt: nothing (`free`), an unlock message (`woken`) or a sleep (`polled`).
    woken_by: &'static str,
}

impl<V: Visit> Wait<'_, V> {
    fn run(
        &mut self,
        polls: Backoff,
        limit: WaitLimit<'_>,
        mut time: Time,
    ) -> Result<Option<V::Entry>> {
        let is_busy = self.inner.wait_queues.is_busy(self.lock);
        let timeouts = &self.inner.timeouts;
        let is_single = limit.is_single();
        let name = &self.lock.name;
        let mut waiting = Waiting::new(name, timeouts, is_single, is_busy, polls, time);
        loop {
            if let Some(entry) = self.take() {
                return Ok(Some(entry));
            }
            // The interrupt is checked before each attempt, because an attempt may take long.
            if limit.is_raised() {
                let lock = Arc::clone(name);
                return Err(Error::Interrupted { lock });
            }
            let seen = Seen {
                time,
                queue: self.node.as_ref().map(QueueNode::view),
                messages: self.sleeper.messages(),
            };
            match waiting.next(seen) {
                Next::Return(outcome) => return outcome.map(|()| None),
                Next::Attempt(deadline) => {
                    let answer = match self.ask(deadline) {
                        Ok(ControlFlow::Break(entry)) => {
                            self.visit.acquired_via(self.woken_by);
                            return Ok(Some(entry));
                        }
                        Ok(ControlFlow::Continue(refusal)) => Ok(refusal),
                        Err(error) => Err(error),
                    };
                    let news = waiting.on_reply(answer, limit.time());
                    self.tell(news);
                }
                Next::Join { is_refused } => self.join(is_refused),
                Next::Listen => self.subscribe(),
                Next::Sleep(until) => {
                    let wake = self.sleeper.sleep(until)?;
                    if let (Wake::Permit, Some(node)) = (wake, &self.node) {
                        node.note_unlock();
                    }
                    self.woken_by = match wake {
                        Wake::Permit => "woken",
                        _ => "polled",
                    };
                    waiting.slept(wake != Wake::TimedOut);
                }
                Next::Rest(until) => self.rest(until)?,
            }
            time = limit.time();
            self.visit.slept(time.now);
        }
    }

    fn take(&mut self) -> Option<V::Entry> {
        let node = self.node.as_ref()?;
        let handed = node.take()?;
        let entry = self.accept(handed);
        if entry.is_none() {
            // A message wakes only the listener that subscribed first. This waiter is now the last of its queue, so it
            // leaves the messages to other listeners.
            self.sleeper.unsubscribe();
            self.join(false);
        }
        entry
    }

    fn rest(&mut self, until: Instant) -> Result<()> {
        while self.sleeper.sleep_past_messages(until)? != Wake::TimedOut
            && !self.node.as_ref().is_some_and(Node::is_granted)
        {}
        Ok(())
    }

    fn subscribe(&mut self) {
        let parker = Arc::clone(self.sleeper.parker());
        let entry = self.visit.entry();
        let subscription = self.inner.store.subscribe(self.lock, entry, 0, &parker);
        self.sleeper.set_subscription(subscription, entry);
    }

    fn join(&mut self, is_refused: bool) {
        let offer = self.visit.offer();
        self.node = offer.map(|offer| {
            let wait_queues = &self.inner.wait_queues;
            wait_queues.join(self.lock, self.sleeper.parker(), offer)
        });
        if let Some(node) = self.node.as_ref().filter(|_| is_refused) {
            node.note_refused_before_joining();
        }
        self.visit.joined();
    }

    fn ask(&mut self, deadline: Instant) -> Result<ControlFlow<V::Entry, Refusal>> {
        let answer = self.visit.attempt(deadline);
        if answer.is_ok() {
            self.sleeper.consume_message();
        }
        self.sleeper.unsubscribe_unless_at(self.visit.entry());
        answer
    }

    fn tell(&self, news: News) {
        match (news, &self.node) {
            (News::Refused { is_usable }, Some(node)) => node.note_refused(is_usable),
            (News::Trouble { is_undone }, Some(node)) => node.note_trouble(is_undone),
            _ => {}
        }
    }

    fn accept(&mut self, hold: Arc<Hold>) -> Option<V::Entry> {
        self.visit.acquired_via("handed");
        self.visit.accept(hold)
    }

    fn leave(mut self, outcome: Result<Option<V::Entry>>) -> Result<Option<V::Entry>> {
        let has_the_lock = matches!(outcome, Ok(Some(_)));
        let is_shared = self.lock.kind.rules().is_shared;
        let node = self.node.take();
        match node.and_then(|node| node.leave(has_the_lock, is_shared)) {
            None => outcome,
            // An attempt and a hand-off both succeeded. The lock has one holder, so one of the two holds has ended.
            Some(hold) if has_the_lock => {
                self.visit.discard(&hold);
                outcome
            }
            Some(hold) => match self.accept(hold) {
                None => outcome,
                entry => Ok(entry),
            },
        }
    }
}
