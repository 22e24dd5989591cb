//! The turns that a client leaves to other processes after it has set a lock free.
//!
//! A server delivers its messages in one order, so without this the process that subscribed first would ask first each
//! time, and the one that had the lock before the others.

mod idle;
#[cfg(all(test, not(redlatch_shuttle)))]
mod tests;

use std::time::{Duration, Instant};

use crate::ground::time;
use crate::ground::turn_count::Turns;
use idle::Idle;

/// The longest time without the end of a turn. A holder may well have it for longer, so the lock is asked for after that:
/// nobody sleeps on a free lock for longer than this, but for a chance now and then, however many turns there are to leave.
const LONGEST_SPAN: Duration = Duration::from_millis(10);

/// One that had a turn the last time is waited for at least so long: its machine may be busy.
const FOR_THE_KNOWN: Duration = Duration::from_millis(4);

/// A process that is far from the server is late for each turn that is left to it, so it is not known to want the lock. So
/// as often as this, if somebody who listens had no turn meanwhile, all have as long as it takes to hear and to ask from
/// there; each so many times for longer. That costs two hundredths of the time, if nobody there wants the lock.
const A_CHANCE_EACH: Duration = Duration::from_secs(1);
const FOR_THE_FAR: Duration = Duration::from_millis(10);
const FOR_THE_FARTHEST: Duration = Duration::from_millis(100);
const FARTHEST_EACH: u32 = 10;

/// So long it is remembered how many others want the lock.
pub(super) const REMEMBERED: Duration = Duration::from_secs(2);

/// Each so many times a turn is left to one more than are known to want the lock.
const TRIED_EACH: u32 = 4;

/// A lock that is left to others: until each of them has had a turn, or nobody has taken the lock for a while.
#[derive(Clone, Debug)]
pub(crate) struct Yield {
    /// How long a turn of another process may take before the lock is asked for, the end of that, and its begin, which is
    /// the end of the turn before.
    span: Duration,
    until: Instant,
    since: Instant,
    /// `None` if turns cannot be counted, so that one `span` has to do.
    turns: Option<Turns>,
    /// The turns that were seen, and the number of them to leave: not all who listen want the lock.
    seen: u64,
    left: u64,
    /// So many of them had a turn the last time, and are waited for longer.
    known: u64,
    /// So often the number was learned from the time before.
    learned: u32,
    /// Since when somebody who listens had no turn, so far as known, and how many chances all of them had.
    missed_since: Instant,
    chances: u32,
    /// How long each of those who listen is waited for, if this is such a chance.
    chance: Option<Duration>,
    /// The turns that nobody took.
    idle: Idle,
    /// Our first waiter has asked since, as it may when the turns are over.
    is_over: bool,
}

impl Yield {
    /// Leaves a turn to each of the others, until none of them has begun one for `span`.
    pub(crate) fn new(span: Duration, turns: Option<Turns>) -> Yield {
        let now = time::now();
        let span = span.min(LONGEST_SPAN);
        let left = turns.as_ref().map_or(0, |turns| turns.listeners);
        Yield {
            span,
            until: now + span,
            since: now,
            turns,
            seen: 0,
            left,
            known: 0,
            learned: 0,
            missed_since: now,
            chances: 0,
            chance: None,
            idle: Idle::of(left),
            is_over: false,
        }
    }

    /// Goes on with what was learned of the others.
    pub(super) fn after(mut self, former: Option<&Yield>) -> Yield {
        if let Some(former) = former {
            self.learned = former.learned.wrapping_add(1);
            // One more now and then: a process that was late for its turn would be passed over for ever.
            let more = u64::from(self.learned.is_multiple_of(TRIED_EACH));
            self.known = self.left.min(former.known);
            self.missed_since = former.missed_since;
            self.chances = former.chances;
            self.idle = former.idle.clone();
            if let Some(turns) = &self.turns {
                self.idle.among(turns.listeners);
            }
            if !former.is_over {
                return self.instead_of(former);
            }
            self.left = self.left.min(former.left.max(1) + more);
            // Where turns are not counted, nothing is learned of how long they take.
            if self.turns.is_some() {
                self.span = self.span.max(former.span);
            }
            let missed = self.since.saturating_duration_since(self.missed_since);
            if let Some(turns) = self.turns.as_ref().filter(|_| missed >= A_CHANCE_EACH) {
                self.left = turns.listeners;
                self.chances = self.chances.wrapping_add(1);
                let is_farthest = self.chances.is_multiple_of(FARTHEST_EACH);
                self.chance = Some(if is_farthest {
                    FOR_THE_FARTHEST
                } else {
                    FOR_THE_FAR
                });
            }
            self.until = self.since + self.patience(0);
            if self.chance.is_none() && self.idle.goes_on(self.since) {
                (self.left, self.until) = (0, self.since);
            }
        }
        self
    }

    /// Goes on with turns that were not over: a thread of this client that did not wait had the lock meanwhile. Our first
    /// waiter rests for no longer because of that, however often it happens.
    fn instead_of(mut self, former: &Yield) -> Yield {
        self.learned = former.learned;
        self.span = self.span.max(former.span);
        self.chance = former.chance;
        self.until = (self.since + self.patience(0)).min(former.until);
        if let (Some(_), Some(turns)) = (&self.turns, &former.turns) {
            self.left = self.left.min(former.left.saturating_sub(turns.so_far()));
        }
        self
    }

    /// How long the next turn may take to begin and to end.
    fn patience(&self, so_far: u64) -> Duration {
        match self.chance {
            Some(chance) => chance,
            None if so_far < self.known => self.span.max(FOR_THE_KNOWN),
            None => self.span,
        }
    }

    /// Until when the lock is left to others, if it is.
    pub(super) fn ends(&mut self, now: Instant) -> Option<Instant> {
        if let Some(turns) = &self.turns {
            let so_far = turns.so_far();
            if so_far > self.seen {
                // The next turn takes about as long as the last ones.
                let seen = u32::try_from(so_far - self.seen).unwrap_or(u32::MAX);
                let ended = turns.last_end();
                let took = ended.saturating_duration_since(self.since) / seen;
                self.span = self.span.max(took * 2).min(LONGEST_SPAN);
                self.seen = so_far;
                self.since = ended;
                self.until = ended + self.patience(so_far);
                if so_far >= turns.listeners {
                    self.missed_since = now;
                }
            }
            if so_far >= self.left {
                return None;
            }
        }
        (now < self.until).then_some(self.until)
    }

    /// How many messages are no reason to look: the one behind them ends the last turn.
    pub(super) fn lets_by(&self) -> u64 {
        let to_come = |turns: &Turns| turns.to_come(self.left).saturating_sub(1);
        self.turns.as_ref().map_or(0, to_come)
    }

    /// Notes that one of ours asks, as the turns are over.
    pub(super) fn is_asked(&mut self) {
        self.is_over = true;
    }

    /// Notes that the lock was granted here: others that have had no turn did not want it, or were late. So half of them
    /// are left a turn next time.
    pub(super) fn granted(&mut self) {
        let was_over = std::mem::replace(&mut self.is_over, true);
        if let Some(turns) = &self.turns {
            turns.is_due();
        }
        let so_far = self.turns.as_ref().map(Turns::so_far);
        match so_far {
            Some(0) if !was_over && self.left > 0 && self.chance.is_none() => {
                let now = time::now();
                let left_for = now.saturating_duration_since(self.since);
                self.idle.was_in_vain(left_for, now);
            }
            Some(1..) => self.idle.forget(),
            _ => {}
        }
        self.known = so_far.unwrap_or(0).min(self.left);
        if self.chance.is_some() {
            self.missed_since = time::now();
        }
        if let Some(so_far) = so_far.filter(|so_far| *so_far < self.left) {
            self.left = (so_far + (self.left - so_far) / 2).max(1);
            self.span = Duration::ZERO;
        }
    }

    /// Notes that somebody else has the lock.
    pub(super) fn somebody_has_it(&mut self) {
        self.idle.forget();
    }

    /// Notes that somebody else was first.
    pub(super) fn refused(&mut self, now: Instant) {
        self.is_over = true;
        self.idle.forget();
        match &self.turns {
            // One more than it was known of wants the lock.
            Some(turns) if turns.so_far() >= self.left => {
                self.left = (self.left + 1).min(turns.listeners.max(1));
                self.turns = None;
                self.until = now;
            }
            Some(_) => {}
            None => self.until = now,
        }
    }

    /// Whether it is of no use any more.
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        now >= self.until + REMEMBERED
    }
}
