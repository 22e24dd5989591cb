//! Decides the next step of a wait from the replies to its attempts and the state of its queue. This file reads no
//! clock and uses no thread, so that each rule is a row of the table in `wait_loop/tests.rs`.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::client_inner::Timeouts;
use crate::engine::wait_queue::{Turn, View};
use crate::ground::backoff::{Backoff, jitter};
use crate::ground::error::{Error, Result};
use crate::store::{Delivery, Refusal};

#[derive(Debug)]
pub(super) enum Next {
    /// End the wait without the lock. `Ok` means that the waiter was refused until its deadline.
    Return(Result<()>),
    /// Send a request with this deadline.
    Attempt(Instant),
    Join {
        is_refused: bool,
    },
    Listen,
    /// Sleep until a wake-up, or until this instant.
    Sleep(Instant),
    /// Sleep until this instant, and ignore messages.
    Rest(Instant),
}

/// The current time, and the deadline of the wait. If a test advances the clock, `end` becomes earlier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub(super) now: Instant,
    /// `None` for a single attempt, and for a wait without a deadline.
    pub(super) end: Option<Instant>,
}

impl Time {
    /// Returns whether the deadline has passed. Returns false for a wait of zero, whose deadline is `began`.
    pub(super) fn has_waited(self, began: Instant) -> bool {
        self.end.is_some_and(|end| began < end && end <= self.now)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) time: Time,
    /// `None` if the waiter is not queued.
    pub(super) queue: Option<View>,
    /// How messages arrive, and the longest random pause after a message; `None` if the waiter is not subscribed.
    pub(super) messages: Option<(Delivery, Duration)>,
}

/// What a reply to one waiter means for all waiters of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    None,
    /// Another holder has the lock. `is_usable`: see `Waiting::is_usable`.
    Refused {
        is_usable: bool,
    },
    /// An attempt got no usable reply. `is_undone`: too few replicas acknowledged the hold, so the client released it.
    Trouble {
        is_undone: bool,
    },
}

/// An attempt may end this long after the deadline of the wait, so that a wait of zero allows one round trip.
pub(super) const GRACE: Duration = Duration::from_millis(250);

/// The part of [`GRACE`] that an attempt leaves unused, so that the call returns in time.
pub(super) const MARGIN: Duration = Duration::from_millis(70);

/// At its deadline, a waiter behind another thread of this client may give up without an attempt if the last usable
/// reply to the queue is newer than this. The first waiter attempts about once in this time.
pub(super) const FRESH: Duration = LONGEST_SLEEP.saturating_add(GRACE);

/// Messages, even forged ones, cause at most this many attempts of a waiter in [`BURST_SPAN`].
pub(super) const BURST: u32 = 100;
pub(super) const BURST_SPAN: Duration = Duration::from_millis(100);

/// The longest pause between attempts, unless the store sets `Refusal::recheck_after`. A lost message delays a waiter by
/// about this time at most.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The next step of a waiter that may attempt.
#[derive(Debug)]
enum Then {
    Attempt,
    /// Sleep for `length`. If `listens` and the waiter has no subscription, subscribe instead; `Listened` follows.
    Pause {
        length: Duration,
        listens: bool,
    },
    /// The waiter has just subscribed. If the subscription is active, attempt at once. Otherwise sleep for this time.
    Listened(Duration),
    Rest(Duration),
}

#[derive(Debug)]
struct Sleep {
    until: Instant,
    /// `None` if the waiter may attempt. `Some(false)` if the client yields the lock to other processes. `Some(true)` if the
    /// waiter is not the first, or a thread of this client holds the lock.
    is_behind: Option<bool>,
}

#[derive(Debug)]
pub(super) struct Waiting<'a> {
    lock: &'a Arc<str>,
    began: Instant,
    is_single: bool,
    request: Duration,
    /// If an attempt fails when `last_usable` is this old, a wait without a deadline ends with an error.
    outage_timeout: Duration,
    last_usable: Instant,
    is_in_trouble: bool,
    is_refused: bool,
    /// The last time at which too few replicas acknowledged a hold of this client. The holder that a later refusal
    /// names may soon release its hold for the same reason. So `is_usable` decides whether the refusal is usable.
    unreplicated_at: Option<Instant>,
    /// If `unreplicated_at` is set: the holder that the last refusal named, and when refusals began to name it.
    refused_by: (Option<Box<str>>, Instant),
    in_doubt: Option<Error>,
    then: Then,
    over: Option<Result<()>>,
    joins: bool,
    sleep: Option<Sleep>,
    was_woken: bool,
    /// True if the deadline or `outage_timeout` has passed, and the waiter attempts although its turn has not come. A
    /// waiter may report an outage only after an attempt of its own.
    last_try_out_of_turn: bool,
    backoff: Backoff,
    poll_backoff: Backoff,
    split_backoff: Option<Backoff>,
    burst_began: Instant,
    burst: u32,
}

impl<'a> Waiting<'a> {
    /// `joins`: the client's queue is busy, so the waiter joins the queue before it attempts.
    pub(super) fn new(
        lock: &'a Arc<str>,
        timeouts: &Timeouts,
        is_single: bool,
        joins: bool,
        poll_backoff: Backoff,
        Time { now, .. }: Time,
    ) -> Waiting<'a> {
        Waiting {
            lock,
            began: now,
            is_single,
            request: timeouts.request(),
            outage_timeout: timeouts.outage_timeout,
            last_usable: now,
            is_in_trouble: false,
            is_refused: false,
            unreplicated_at: None,
            refused_by: (None, now),
            in_doubt: None,
            then: Then::Attempt,
            over: None,
            joins: joins && !is_single,
            sleep: None,
            was_woken: false,
            last_try_out_of_turn: false,
            backoff: Backoff::default(),
            poll_backoff,
            split_backoff: None,
            burst_began: now,
            burst: 0,
        }
    }

    /// Notes the reply to an attempt that did not get the lock.
    pub(super) fn on_reply(&mut self, answer: Result<Refusal>, time: Time) -> News {
        self.joins = true;
        let mut news = News::None;
        let (then, trouble) = match answer {
            Ok(refusal) => {
                let then = self.refused(&refusal, time.now, &mut news);
                let lock = || Arc::clone(self.lock);
                let without_end = refusal.retry_after.is_none();
                (then, without_end.then(|| Error::NoTtl { lock: lock() }))
            }
            Err(error) if error.may_pass() => {
                self.split_backoff = None;
                if error.is_ambiguous() {
                    self.in_doubt = Some(error.clone());
                }
                let is_undone = matches!(error, Error::NotReplicated { .. });
                if is_undone {
                    self.unreplicated_at = Some(time.now);
                }
                // `Error::Exhausted` means that no connection was free, which says nothing about the lock.
                if !is_exhausted(&error) {
                    news = News::Trouble { is_undone };
                }
                let (length, listens) = (self.backoff.next(), false);
                let then = match error {
                    // The release of this attempt's hold also wakes this waiter, so the waiter ignores messages.
                    Error::NoQuorum { .. } | Error::NotReplicated { .. } => Then::Rest(length),
                    _ => Then::Pause { length, listens },
                };
                (then, Some(error))
            }
            Err(error) => {
                self.finish(Err(error));
                return news;
            }
        };
        self.is_in_trouble = trouble.is_some();
        self.is_refused = trouble.is_none();
        self.then = then;
        let is_over = time.end.map_or(self.is_single, |end| end <= time.now);
        let is_outage = time.end.is_none() && trouble.is_some();
        let silence = time.now.saturating_duration_since(self.last_usable);
        if is_over || is_outage && silence >= self.outage_timeout {
            let outcome = match trouble {
                // An earlier in-doubt attempt may have acquired the lock, so its error is returned.
                Some(error) if error.may_pass() => Err(self.in_doubt.take().unwrap_or(error)),
                Some(error) => Err(error),
                None => Ok(()),
            };
            self.finish(outcome);
        }
        news
    }

    fn refused(&mut self, refusal: &Refusal, now: Instant, news: &mut News) -> Then {
        if refusal.retry_after.is_some() {
            let is_usable = self.is_usable(refusal.holder.as_deref(), now);
            *news = News::Refused { is_usable };
            if is_usable {
                self.last_usable = now;
                self.backoff = Backoff::default();
            }
            self.in_doubt = None;
        }
        let Some(round_trip) = refusal.split else {
            self.split_backoff = None;
            let (length, listens) = (sleep_for(refusal), true);
            return Then::Pause { length, listens };
        };
        // The pause exceeds a round trip and usually grows, so that competing clients soon attempt one at a time.
        let split_backoff = &mut self.split_backoff;
        let split_backoff = split_backoff.get_or_insert_with(|| Backoff::of_splits(round_trip));
        Then::Rest(round_trip + split_backoff.next())
    }

    /// Returns whether a refusal shows that the holder keeps the lock: always if `unreplicated_at` is `None`. Otherwise
    /// all refusals must have named the same holder for `request`, or no holder for `outage_timeout`.
    fn is_usable(&mut self, holder: Option<&str>, now: Instant) -> bool {
        let Some(unreplicated_at) = self.unreplicated_at else {
            return true;
        };
        if self.refused_by.0.as_deref() != holder {
            self.refused_by = (holder.map(Box::from), now);
        }
        let since = self.refused_by.1.max(unreplicated_at);
        let stay = holder.map_or(self.outage_timeout, |_| self.request);
        let has_stayed = now.saturating_duration_since(since) >= stay;
        self.unreplicated_at = (!has_stayed).then_some(unreplicated_at);
        has_stayed
    }

    fn finish(&mut self, outcome: Result<()>) {
        self.joins = false;
        self.over = Some(outcome);
    }

    pub(super) fn slept(&mut self, was_woken: bool) {
        self.was_woken = was_woken;
    }

    pub(super) fn next(&mut self, seen: Seen) -> Next {
        let time = seen.time;
        let slept = self.sleep.take();
        if let Some(until) = self.pause_after_message(slept.as_ref(), seen) {
            return Next::Rest(until);
        }
        if seen.queue.is_none() && std::mem::take(&mut self.joins) {
            let is_refused = self.is_refused;
            return Next::Join { is_refused };
        }
        if let Some(outcome) = self.over.take() {
            return Next::Return(outcome);
        }
        if let Some(queue) = seen.queue
            && let Some(next) = self.step_out_of_turn(queue, slept, seen)
        {
            return next;
        }
        match std::mem::replace(&mut self.then, Then::Attempt) {
            Then::Rest(length) => Next::Rest(self.until_deadline(length, time)),
            Then::Pause { length, listens } if listens && seen.messages.is_none() => {
                self.then = Then::Listened(length);
                Next::Listen
            }
            Then::Listened(length) if !matches!(seen.messages, Some((Delivery::Live, _))) => {
                self.sleep_step(length, seen)
            }
            Then::Pause { length, .. } => self.sleep_step(length, seen),
            // A queued waiter subscribes before its first attempt, so it needs no second attempt before it sleeps.
            _ if seen.queue.is_some() && seen.messages.is_none() && !self.last_try_out_of_turn => {
                Next::Listen
            }
            _ => self.attempt_step(time),
        }
    }

    /// If a message woke the waiter, returns the end of the pause before its next attempt; `None` for no pause.
    fn pause_after_message(&mut self, slept: Option<&Sleep>, seen: Seen) -> Option<Instant> {
        let Sleep { until, .. } = slept.filter(|_| self.was_woken)?;
        // While the client yields the lock to other processes, messages cause no attempt.
        if matches!(seen.queue.map(|queue| queue.turn), Some(Turn::Yield(_))) {
            return None;
        }
        let now = seen.time.now;
        if now.saturating_duration_since(self.burst_began) > BURST_SPAN {
            self.burst_began = now;
            self.burst = 0;
        }
        self.burst += 1;
        if self.burst > BURST {
            return Some(self.burst_began.checked_add(BURST_SPAN)?.min(*until));
        }
        let (_, longest) = seen.messages.filter(|(_, longest)| !longest.is_zero())?;
        Some((now + jitter(longest)).min(*until))
    }

    /// Returns `None` if the queued waiter may attempt. Otherwise returns the waiter's next step.
    fn step_out_of_turn(&mut self, queue: View, slept: Option<Sleep>, seen: Seen) -> Option<Next> {
        let time = seen.time;
        let heard = queue.last_usable;
        self.last_usable = heard.map_or(self.last_usable, |at| at.max(self.last_usable));
        self.unreplicated_at = self.unreplicated_at.max(queue.unreplicated_at);
        // A wait without a deadline ends `outage_timeout` after the last usable reply to any waiter of the queue.
        let ends = time
            .end
            .or(self.last_usable.checked_add(self.outage_timeout));
        if let Some(is_behind) = slept.and_then(|sleep| sleep.is_behind)
            && !self.was_woken
            && ends.is_some_and(|ends| ends <= time.now)
        {
            self.last_try_out_of_turn = true;
            if is_behind && time.has_waited(self.began) && has_fresh_news(queue, time.now) {
                return Some(Next::Return(Ok(())));
            }
        }
        // The holder in this client may have lost the lock unnoticed, so the waiter also attempts without an unlock.
        let is_held = queue.turn == Turn::HeldLocally;
        let is_overdue = is_held && heard.is_none_or(|heard| time.now >= heard + LONGEST_SLEEP);
        if queue.turn == Turn::Attempt || is_overdue || self.last_try_out_of_turn {
            return None;
        }
        if matches!(queue.turn, Turn::Yield(_)) && seen.messages.is_none() {
            return Some(Next::Listen);
        }
        let until = match (queue.turn, heard) {
            (Turn::Yield(ends), _) => ends.min(time.now + spread(LONGEST_SLEEP)),
            (Turn::HeldLocally, Some(heard)) => heard.min(time.now) + spread(LONGEST_SLEEP),
            _ => time.now + spread(LONGEST_SLEEP),
        };
        let until = ends.map_or(until, |ends| ends.min(until));
        self.then = Then::Attempt;
        let is_behind = Some(!matches!(queue.turn, Turn::Yield(_)));
        self.sleep = Some(Sleep { until, is_behind });
        Some(Next::Sleep(until))
    }

    fn sleep_step(&mut self, length: Duration, seen: Seen) -> Next {
        let length = match seen.messages {
            Some((Delivery::Polling, _)) => length.min(self.poll_backoff.next()),
            _ => length,
        };
        let until = self.until_deadline(length, seen.time);
        let is_behind = None;
        self.sleep = Some(Sleep { until, is_behind });
        Next::Sleep(until)
    }

    fn attempt_step(&mut self, time: Time) -> Next {
        self.last_try_out_of_turn = false;
        let request = self.request;
        let budget = self.ends_at(time).map_or(request, |end| {
            request.min(end.saturating_duration_since(time.now) + GRACE - MARGIN)
        });
        Next::Attempt(time.now + budget)
    }

    fn ends_at(&self, time: Time) -> Option<Instant> {
        let outage = self.last_usable.checked_add(self.outage_timeout);
        time.end.or(outage.filter(|_| self.is_in_trouble))
    }

    fn until_deadline(&self, length: Duration, time: Time) -> Instant {
        let until = time.now + length;
        self.ends_at(time).map_or(until, |end| end.min(until))
    }
}

pub(super) fn is_exhausted(error: &Error) -> bool {
    matches!(error, Error::Exhausted { .. })
}

fn has_fresh_news(queue: View, now: Instant) -> bool {
    let news = queue.last_usable.filter(|_| !queue.is_in_doubt);
    news.is_some_and(|at| now.saturating_duration_since(at) < FRESH)
}

fn sleep_for(refusal: &Refusal) -> Duration {
    let longest = spread(refusal.recheck_after.unwrap_or(LONGEST_SLEEP));
    let left = refusal.retry_after;
    left.map_or(longest, |left| longest.min(left + Duration::from_millis(1)))
}

/// Adds up to a tenth at random, so that waiters that missed the same message do not attempt at the same time.
fn spread(most: Duration) -> Duration {
    most + jitter(most / 10)
}
