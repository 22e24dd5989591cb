//! The decisions of one wait: what it does next, from what it was answered and what it sees. No clock, no thread and no
//! queue is touched here, so that each rule is a row of the table in `tests.rs`.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::client_inner::Timeouts;
use crate::engine::wait_queue::{Turn, View};
use crate::ground::backoff::{Backoff, jitter};
use crate::ground::error::{Error, Result};
use crate::store::{Delivery, Refusal};

/// The next step of a wait.
#[derive(Debug)]
pub(super) enum Next {
    /// The wait is over without the lock: it was refused until the limit, or failed.
    Return(Result<()>),
    /// Ask the store, until then.
    Attempt(Instant),
    /// Join the queue of this client, where that applies; it was refused just now, or was not.
    Join { is_refused: bool },
    /// Subscribe to messages.
    Listen,
    /// Sleep until woken, or until then.
    Sleep(Instant),
    /// Sleep until then, whatever messages come.
    Rest(Instant),
}

/// The present, and the end of the wait as it is by now; a test may bring that nearer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub(super) now: Instant,
    /// `None` for a single attempt, and for a wait without a deadline.
    pub(super) end: Option<Instant>,
}

impl Time {
    /// Whether a wait that began then has a deadline that is over, and had some time until then.
    pub(super) fn has_waited(self, began: Instant) -> bool {
        self.end.is_some_and(|end| began < end && end <= self.now)
    }
}

/// The view of a wait at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) time: Time,
    /// The queue of this client, if it stands in it.
    pub(super) queue: Option<View>,
    /// Whether and how messages arrive, and up to how long to wait after one, if it listens.
    pub(super) messages: Option<(Delivery, Duration)>,
}

/// News of the lock that is for all who wait for it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    None,
    /// Somebody else has it; that this may be undone in a moment makes it of no use.
    Refused {
        is_usable: bool,
    },
    /// No usable answer came; a hold may have been undone.
    Trouble {
        is_undone: bool,
    },
}

/// An attempt may take this much longer than the wait time, so that a wait of zero still allows one round trip.
pub(super) const GRACE: Duration = Duration::from_millis(250);

/// This much of it is left for the way back.
pub(super) const MARGIN: Duration = Duration::from_millis(70);

/// The age up to which a refusal of the head counts for the waiters behind it: the head asks about as often.
pub(super) const FRESH: Duration = LONGEST_SLEEP.saturating_add(GRACE);

/// Forged or useless messages wake a waiter at most this often in [`BURST_SPAN`].
pub(super) const BURST: u32 = 100;
pub(super) const BURST_SPAN: Duration = Duration::from_millis(100);

/// A waiter looks again after this time at the latest, so a lost unlock message costs no more, unless the store says that it
/// may cost this one more.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The next thing to do when it is the waiter's turn.
#[derive(Debug)]
enum Then {
    Attempt,
    /// Sleep for so long; listen first if an answer came.
    Pause {
        length: Duration,
        listens: bool,
    },
    /// It has begun to listen, and sleeps for so long unless messages arrive from now on.
    Listened(Duration),
    /// Rest for so long.
    Rest(Duration),
}

/// A sleep that was begun.
#[derive(Debug)]
struct Sleep {
    until: Instant,
    /// Of a waiter in the queue whose turn it was not: whether others were before it.
    in_line: Option<bool>,
}

/// One wait, from its first attempt on.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    lock: &'a Arc<str>,
    began: Instant,
    /// It makes one attempt, whatever comes of it.
    is_single: bool,
    /// The longest that one attempt may take.
    request: Duration,
    /// How long a wait without a deadline goes on without a usable answer.
    outage_timeout: Duration,
    last_usable: Instant,
    /// The last answer was of no use.
    is_in_trouble: bool,
    is_refused: bool,
    /// When too few replicas acknowledged a hold of this client last. Another holder may lose its hold for the same reason,
    /// so for `outage_timeout` from then on a refusal does not count as a usable reply.
    unreplicated_at: Option<Instant>,
    /// The error of an attempt that may have left something.
    in_doubt: Option<Error>,
    then: Then,
    /// The outcome of a wait that is over without the lock.
    over: Option<Result<()>>,
    /// It is to join the queue if it does not stand there.
    joins: bool,
    sleep: Option<Sleep>,
    was_woken: bool,
    /// Its time is over, and it tries once more although it is not its turn: a waiter that has not asked itself neither
    /// reports an outage nor, without a fresh refusal, gives up.
    last_try_out_of_turn: bool,
    backoff: Backoff,
    poll_backoff: Backoff,
    split_backoff: Option<Backoff>,
    burst_began: Instant,
    burst: u32,
}

impl<'a> Waiting<'a> {
    /// `joins` says that others are queued for the lock, so that it does not ask before them.
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

    /// Notes the answer to an attempt that did not get the lock. Returns what it says to others.
    pub(super) fn after(&mut self, answer: Result<Refusal>, time: Time) -> News {
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
                // What keeps this client from asking says nothing of the lock.
                if !is_exhausted(&error) {
                    news = News::Trouble { is_undone };
                }
                let (length, listens) = (self.backoff.next(), false);
                let then = match error {
                    // Each attempt that is undone there is told, to others and to itself.
                    Error::NoQuorum { .. } | Error::NotReplicated { .. } => Then::Rest(length),
                    _ => Then::Pause { length, listens },
                };
                (then, Some(error))
            }
            Err(error) => {
                self.ends(Err(error));
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
                // What an attempt may have left is still in doubt, though the last one left nothing.
                Some(error) if error.may_pass() => Err(self.in_doubt.take().unwrap_or(error)),
                Some(error) => Err(error),
                None => Ok(()),
            };
            self.ends(outcome);
        }
        news
    }

    fn refused(&mut self, refusal: &Refusal, now: Instant, news: &mut News) -> Then {
        if refusal.retry_after.is_some() {
            let long_ago = now.checked_sub(self.outage_timeout);
            let is_usable = self.unreplicated_at.is_none_or(|at| Some(at) <= long_ago);
            *news = News::Refused { is_usable };
            if is_usable {
                self.last_usable = now;
                self.backoff = Backoff::default();
            }
            self.in_doubt = None;
        }
        let Some(round_trip) = refusal.split else {
            self.split_backoff = None;
            return Then::Pause {
                length: sleep_for(refusal),
                listens: true,
            };
        };
        // Longer than a round trip, and longer each time, so that soon one of them asks alone.
        let split_backoff = &mut self.split_backoff;
        let split_backoff = split_backoff.get_or_insert_with(|| Backoff::of_splits(round_trip));
        Then::Rest(round_trip + split_backoff.next())
    }

    fn ends(&mut self, outcome: Result<()>) {
        self.joins = false;
        self.over = Some(outcome);
    }

    /// Notes the end of a sleep, and whether something woke it.
    pub(super) fn slept(&mut self, was_woken: bool) {
        self.was_woken = was_woken;
    }

    /// Says what to do now.
    pub(super) fn next(&mut self, seen: Seen) -> Next {
        let time = seen.time;
        let slept = self.sleep.take();
        if let Some(until) = self.rests_after_message(slept.as_ref(), seen) {
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
            && let Some(next) = self.stands_in_line(queue, slept, seen)
        {
            return next;
        }
        match std::mem::replace(&mut self.then, Then::Attempt) {
            Then::Rest(length) => Next::Rest(self.by_the_end(length, time)),
            Then::Pause { length, listens } if listens && seen.messages.is_none() => {
                self.then = Then::Listened(length);
                Next::Listen
            }
            Then::Listened(length) if !matches!(seen.messages, Some((Delivery::Live, _))) => {
                self.sleeps(length, seen)
            }
            Then::Pause { length, .. } => self.sleeps(length, seen),
            // It is contended, so the first question is not the last: who listens before it need not ask twice.
            _ if seen.queue.is_some() && seen.messages.is_none() && !self.last_try_out_of_turn => {
                Next::Listen
            }
            _ => self.attempts(time),
        }
    }

    /// A message is only a hint: how long to wait before asking.
    fn rests_after_message(&mut self, slept: Option<&Sleep>, seen: Seen) -> Option<Instant> {
        let Sleep { until, .. } = slept.filter(|_| self.was_woken)?;
        // The lock is left to others, whatever they tell.
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
            // A sender of thousands causes no more attempts than this.
            return Some(self.burst_began.checked_add(BURST_SPAN)?.min(*until));
        }
        let (_, longest) = seen.messages.filter(|(_, longest)| !longest.is_zero())?;
        Some((now + jitter(longest)).min(*until))
    }

    /// Decides for a waiter in the queue whose turn it is not; `None` if it asks.
    fn stands_in_line(&mut self, queue: View, slept: Option<Sleep>, seen: Seen) -> Option<Next> {
        let time = seen.time;
        let heard = queue.last_usable;
        self.last_usable = heard.map_or(self.last_usable, |at| at.max(self.last_usable));
        self.unreplicated_at = self.unreplicated_at.max(queue.unreplicated_at);
        // Of a wait without a deadline as the queue knows it by now: its head may have been answered during the sleep.
        let ends = time
            .end
            .or(self.last_usable.checked_add(self.outage_timeout));
        if let Some(is_behind) = slept.and_then(|sleep| sleep.in_line)
            && !self.was_woken
            && ends.is_some_and(|ends| ends <= time.now)
        {
            self.last_try_out_of_turn = true;
            if is_behind && time.has_waited(self.began) && has_fresh_news(queue, time.now) {
                return Some(Next::Return(Ok(())));
            }
        }
        // A holder of this client may have died with the lock, and the lock may be gone unheard.
        let is_held = queue.turn == Turn::HeldLocally;
        let is_overdue = is_held && heard.is_none_or(|heard| time.now >= heard + LONGEST_SLEEP);
        if queue.turn == Turn::Attempt || is_overdue || self.last_try_out_of_turn {
            return None;
        }
        // It listens meanwhile.
        if matches!(queue.turn, Turn::Yield(_)) && seen.messages.is_none() {
            return Some(Next::Listen);
        }
        let until = match (queue.turn, heard) {
            (Turn::Yield(ends), _) => ends.min(time.now + longest_sleep()),
            (Turn::HeldLocally, Some(heard)) => heard.min(time.now) + longest_sleep(),
            _ => time.now + longest_sleep(),
        };
        let until = ends.map_or(until, |ends| ends.min(until));
        self.then = Then::Attempt;
        let in_line = Some(!matches!(queue.turn, Turn::Yield(_)));
        self.sleep = Some(Sleep { until, in_line });
        Some(Next::Sleep(until))
    }

    fn sleeps(&mut self, length: Duration, seen: Seen) -> Next {
        let length = match seen.messages {
            Some((Delivery::Polling, _)) => length.min(self.poll_backoff.next()),
            _ => length,
        };
        let until = self.by_the_end(length, seen.time);
        let in_line = None;
        self.sleep = Some(Sleep { until, in_line });
        Next::Sleep(until)
    }

    fn attempts(&mut self, time: Time) -> Next {
        self.last_try_out_of_turn = false;
        let request = self.request;
        let budget = self.ends_at(time).map_or(request, |end| {
            request.min(end.saturating_duration_since(time.now) + GRACE - MARGIN)
        });
        Next::Attempt(time.now + budget)
    }

    /// A wait without a deadline has one as soon as there is an outage.
    fn ends_at(&self, time: Time) -> Option<Instant> {
        let outage = self.last_usable.checked_add(self.outage_timeout);
        time.end.or(outage.filter(|_| self.is_in_trouble))
    }

    fn by_the_end(&self, length: Duration, time: Time) -> Instant {
        let until = time.now + length;
        self.ends_at(time).map_or(until, |end| end.min(until))
    }
}

pub(super) fn is_exhausted(error: &Error) -> bool {
    matches!(error, Error::Exhausted { .. })
}

/// Whether what the queue has heard tells a waiter that it is refused.
fn has_fresh_news(queue: View, now: Instant) -> bool {
    let news = queue.last_usable.filter(|_| !queue.is_in_doubt);
    news.is_some_and(|at| now.saturating_duration_since(at) < FRESH)
}

/// Until the holder's lease ends, but never longer than a lost message may cost.
fn sleep_for(refusal: &Refusal) -> Duration {
    let longest = spread(refusal.recheck_after.unwrap_or(LONGEST_SLEEP));
    let left = refusal.retry_after;
    left.map_or(longest, |left| longest.min(left + Duration::from_millis(1)))
}

fn longest_sleep() -> Duration {
    spread(LONGEST_SLEEP)
}

/// Keeps waiters whose messages were lost together from coming back together.
fn spread(most: Duration) -> Duration {
    most + jitter(most / 10)
}
