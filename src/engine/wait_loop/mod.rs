//! The wait loop, once: how a visitor that was refused comes to another try, and when it gives up.

mod limit;
mod sleeper;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::wait_loop::limit::Bound;
pub(crate) use crate::engine::wait_loop::limit::WaitLimit;
use crate::engine::wait_loop::sleeper::Sleeper;
use crate::engine::wait_queue::Turn;
use crate::ground::backoff::{Backoff, Waiting, jitter};
use crate::ground::error::{Error, Result};
use crate::ground::notify::{Notifier, Parker, Wake};
use crate::store::{Delivery, Subscription};

/// An attempt may take this much longer than the wait time, so that a wait of zero still allows one round trip.
const GRACE: Duration = Duration::from_millis(250);

/// This much of it is left for the way back.
const MARGIN: Duration = Duration::from_millis(70);

/// A waiter looks again after this time at the latest, so a lost unlock message costs no more.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The age up to which a refusal of the head counts for the waiters behind it: the head asks about as often.
const FRESH: Duration = LONGEST_SLEEP.saturating_add(GRACE);

/// The answer to one attempt.
#[derive(Debug)]
pub(crate) enum Verdict<T> {
    Done(T),
    Refused {
        /// Somebody else has it, for this long as far as known; `None` if for ever.
        retry_after: Option<Duration>,
        /// Nobody has it, but several ask at once: how long a round trip takes.
        split: Option<Duration>,
    },
}

/// What a wait needs to know of its client.
#[derive(Debug)]
pub(crate) struct WaitContext<'a> {
    pub(crate) lock: &'a Arc<str>,
    pub(crate) notifier: &'a Notifier,
    /// The longest that one attempt may take.
    pub(crate) request: Duration,
    /// How long a wait without a deadline goes on without a usable answer.
    pub(crate) outage_timeout: Duration,
    /// Whether other threads of this client are queued for the lock.
    pub(crate) is_busy: bool,
}

/// A node in a queue of waiters, of which only the head asks.
pub(crate) trait Queue<T> {
    fn turn(&self) -> Turn;

    /// Takes what was handed to this waiter, if it was.
    fn take(&mut self) -> Option<T>;

    /// Notes that the store has refused the lock.
    fn note_usable(&self);

    /// As [`Queue::note_usable`], of the answer that led here.
    fn note_news(&self);

    /// Notes that the store gave no usable answer.
    fn note_trouble(&self);

    /// When the lock was last known to be somebody else's, unless that is in doubt.
    fn last_news(&self) -> Option<Instant>;

    /// When the store last gave a usable answer to any waiter of the queue.
    fn last_usable(&self) -> Option<Instant>;

    /// Leaves the queue, with what this waiter was handed at the last moment.
    fn leave(self, has_the_lock: bool) -> Option<T>;
}

/// Tries until it is done, the limit is reached, or an error says that trying is of no use.
///
/// `Ok(None)` means that it was refused until the limit. Attempt, subscribe, attempt again, sleep: so no
/// release can slip through between a refusal and the sleep. After waking it tries first and looks at the clock
/// second. An error that may pass is ridden out; without a deadline for `outage_timeout`.
///
/// A visitor that is refused, or finds others queued (`context.is_busy`), joins them, if `join` lets it, and sleeps until
/// it is the head or is handed the lock. A waiter that leaves the queue without the lock has asked the store once more,
/// or stands behind others that were refused just now.
pub(crate) fn wait<T, Q: Queue<T>>(
    context: &WaitContext<'_>,
    limit: WaitLimit<'_>,
    attempt: impl FnMut(Instant) -> Result<Verdict<T>>,
    subscribe: impl Fn(&Arc<Parker>) -> Subscription,
    join: impl Fn(&Arc<Parker>) -> Option<Q>,
) -> Result<Option<T>> {
    if limit.is_raised() {
        return Err(interrupted(context));
    }
    let _waiting = Waiting::begin(limit.interrupt);
    let mut sleeper = None;
    let mut node = None;
    if context.is_busy && !matches!(limit.bound, Bound::Once) {
        let sleeper = sleeper.insert(Sleeper::new(context, limit));
        node = join(&sleeper.parker);
    }
    let outcome = wait_in_line(
        context,
        limit,
        &mut sleeper,
        &mut node,
        attempt,
        subscribe,
        join,
    );
    let has_the_lock = matches!(outcome, Ok(Some(_)));
    match node.and_then(|node| node.leave(has_the_lock)) {
        Some(handed) if !has_the_lock => Ok(Some(handed)),
        _ => outcome,
    }
}

fn wait_in_line<T, Q: Queue<T>>(
    context: &WaitContext<'_>,
    limit: WaitLimit<'_>,
    sleeper: &mut Option<Sleeper>,
    node: &mut Option<Q>,
    mut attempt: impl FnMut(Instant) -> Result<Verdict<T>>,
    subscribe: impl Fn(&Arc<Parker>) -> Subscription,
    join: impl Fn(&Arc<Parker>) -> Option<Q>,
) -> Result<Option<T>> {
    let mut backoff = Backoff::default();
    let mut poll_backoff = Backoff::of_polls();
    let mut split_backoff: Option<Backoff> = None;
    let mut now = Instant::now();
    let began = now;
    let mut last_usable = now;
    let mut asks_anyway = false;
    let mut in_doubt = None;
    let mut is_in_trouble = false;
    // A wait without a deadline has one as soon as there is an outage.
    let outage_end = |is_in_trouble: bool, last_usable: Instant| {
        let end = last_usable.checked_add(context.outage_timeout);
        end.filter(|_| is_in_trouble)
    };
    loop {
        if let (Some(sleeper), Some(node)) = (sleeper.as_mut(), node.as_mut()) {
            if let Some(handed) = node.take() {
                return Ok(Some(handed));
            }
            last_usable = node
                .last_usable()
                .map_or(last_usable, |at| at.max(last_usable));
            let turn = node.turn();
            // A holder of this client may have died with the lock, and the lock may be gone unheard.
            let is_overdue = matches!(turn, Turn::HeldLocally(heard)
                if heard.is_none_or(|heard| now >= heard + LONGEST_SLEEP));
            if turn != Turn::Attempt && !is_overdue && !asks_anyway {
                let outage = last_usable.checked_add(context.outage_timeout);
                let mut wake_at = now + longest_sleep();
                match turn {
                    Turn::Yield(ends) => wake_at = wake_at.min(ends),
                    Turn::HeldLocally(Some(heard)) => {
                        wake_at = wake_at.min(heard + longest_sleep())
                    }
                    Turn::Attempt | Turn::NotFirst | Turn::HeldLocally(None) => {}
                }
                let ends = limit.deadline().or(outage);
                wake_at = ends.map_or(wake_at, |ends| ends.min(wake_at));
                let woken = sleeper.sleep(context, wake_at)?;
                now = Instant::now();
                // A waiter that has not asked itself neither reports an outage nor, without a fresh refusal, gives up.
                asks_anyway = !woken && ends.is_some_and(|ends| now >= ends);
                let has_waited = limit
                    .deadline()
                    .is_some_and(|end| began < end && end <= now);
                let is_behind = matches!(turn, Turn::NotFirst | Turn::HeldLocally(_));
                if asks_anyway && is_behind && has_waited && has_fresh_news(node, now) {
                    return Ok(node.take());
                }
                continue;
            }
        }
        if let (Some(sleeper), Some(_), false) = (sleeper.as_mut(), node.as_ref(), asks_anyway) {
            // It is contended, so the first question is not the last: who listens before it need not ask twice.
            sleeper.listen(&subscribe);
        }
        asks_anyway = false;
        let budget = match limit.deadline().or(outage_end(is_in_trouble, last_usable)) {
            Some(end) => context
                .request
                .min(end.saturating_duration_since(now) + GRACE - MARGIN),
            None => context.request,
        };
        let answer = attempt(now + budget);
        let mut split = None;
        if let (Some(registration), Ok(_)) = (
            sleeper
                .as_mut()
                .and_then(|sleeper| sleeper.registration.as_mut()),
            &answer,
        ) {
            registration.spend();
        }
        let (pause, trouble) = match answer {
            Ok(Verdict::Done(value)) => return Ok(Some(value)),
            Ok(Verdict::Refused {
                retry_after,
                split: round_trip,
            }) => {
                split = round_trip.map(|round_trip| {
                    // Longer than a round trip, and longer each time, so that soon one of them asks alone.
                    let split_backoff =
                        split_backoff.get_or_insert_with(|| Backoff::of_splits(round_trip));
                    round_trip + split_backoff.next()
                });
                backoff = Backoff::default();
                let trouble = match retry_after {
                    Some(_) => {
                        last_usable = Instant::now();
                        in_doubt = None;
                        if let Some(node) = node.as_ref() {
                            node.note_usable();
                        }
                        None
                    }
                    None => Some(Error::NoTtl {
                        lock: Arc::clone(context.lock),
                    }),
                };
                (sleep_for(retry_after), trouble)
            }
            Err(error) if error.may_pass() => {
                // What keeps this client from asking says nothing of the lock.
                let is_exhausted = matches!(error, Error::Exhausted { .. });
                if let Some(node) = node.as_ref().filter(|_| !is_exhausted) {
                    node.note_trouble();
                }
                if error.is_ambiguous() {
                    in_doubt = Some(error.clone());
                }
                (backoff.next(), Some(error))
            }
            Err(error) => return Err(error),
        };
        is_in_trouble = trouble.is_some();
        let ends = limit.deadline().or(outage_end(is_in_trouble, last_usable));
        if limit.is_over()
            || (limit.deadline().is_none()
                && trouble.is_some()
                && last_usable.elapsed() >= context.outage_timeout)
        {
            let has_waited = limit.deadline().is_some_and(|end| began < end);
            if has_waited && matches!(trouble, Some(Error::Exhausted { .. })) {
                // It could not ask; the others in the queue may know.
                let sleeper = sleeper.get_or_insert_with(|| Sleeper::new(context, limit));
                if node.is_none() {
                    *node = join(&sleeper.parker);
                }
                if let Some(node) = node.as_mut()
                    && has_fresh_news(node, Instant::now())
                {
                    return Ok(node.take());
                }
            }
            return match trouble {
                // What an attempt may have left is still in doubt, though the last one left nothing.
                Some(error) if error.may_pass() => Err(in_doubt.unwrap_or(error)),
                Some(error) => Err(error),
                None => Ok(None),
            };
        }
        let sleeper = sleeper.get_or_insert_with(|| Sleeper::new(context, limit));
        if node.is_none() {
            *node = join(&sleeper.parker);
            if let (Some(node), None) = (&node, &trouble) {
                node.note_news();
            }
            if node
                .as_ref()
                .is_some_and(|node| node.turn() != Turn::Attempt)
            {
                now = Instant::now();
                continue;
            }
        }
        let is_answered = !matches!(trouble, Some(ref error) if error.may_pass());
        if let Some(pause) = split {
            let wake_at = Instant::now() + pause;
            let wake_at = ends.map_or(wake_at, |end| end.min(wake_at));
            sleeper.rest(context, wake_at)?;
            now = Instant::now();
            continue;
        }
        split_backoff = None;
        if is_answered && sleeper.listen(&subscribe) {
            now = Instant::now();
            continue;
        }
        let pause = match sleeper.delivery {
            Delivery::Polling => pause.min(poll_backoff.next()),
            Delivery::Live | Delivery::Pending => pause,
        };
        let wake_at = Instant::now() + pause;
        let wake_at = ends.map_or(wake_at, |end| end.min(wake_at));
        sleeper.sleep(context, wake_at)?;
        now = Instant::now();
    }
}

fn has_fresh_news<T>(node: &impl Queue<T>, now: Instant) -> bool {
    let news = node.last_news();
    news.is_some_and(|at| now.saturating_duration_since(at) < FRESH)
}

fn ended_by(wake: Wake, context: &WaitContext<'_>) -> Error {
    match wake {
        Wake::Closed => Error::Closed {
            lock: Arc::clone(context.lock),
        },
        _ => interrupted(context),
    }
}

fn interrupted(context: &WaitContext<'_>) -> Error {
    Error::Interrupted {
        lock: Arc::clone(context.lock),
    }
}

/// Until the holder's lease ends, but never longer than a lost message may cost.
fn sleep_for(retry_after: Option<Duration>) -> Duration {
    let longest = longest_sleep();
    retry_after.map_or(longest, |left| longest.min(left + Duration::from_millis(1)))
}

fn longest_sleep() -> Duration {
    // The jitter keeps waiters whose messages were lost together from coming back together.
    LONGEST_SLEEP + jitter(LONGEST_SLEEP / 10)
}
