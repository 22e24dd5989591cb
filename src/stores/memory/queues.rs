//! Fair locks: those who wait for one stand in a queue of the world, in the order in which they came.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::world::{Entry, InLine, State};
use super::{Memory, not_known, unreachable};
use crate::ground::claim::{Claim, LockId, Queueing, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::Result;
use crate::store::{Granted, Outcome, Refusal, nobody_counts_waiters};

/// A visitor that is turned away from a free lock looks again after this time, and so do the first who wait.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

/// The others who listen look again after this time, whatever messages come.
const LOOKS_RARELY: Duration = Duration::from_secs(3);

/// Nobody is told to look again sooner than this, though one may be passed over before.
const LOOKS_SOON: Duration = Duration::from_millis(50);

/// One that neither looks nor listens for so long is dead. One that listens is a thread of this process, and alive.
const MAY_BE_ABSENT: Duration = Duration::from_millis(1500);

/// The channel of one that waits. No name has a line feed in it.
pub(super) fn channel_of(name: &str, visitor: &VisitorId) -> Arc<str> {
    format!("{name}\n{visitor}").into()
}

impl Memory {
    /// Begins a hold if the lock is free and it is the visitor's turn; one that waits takes a place.
    pub(super) fn put_in_turn(&self, claim: &Claim) -> Result<Outcome<Granted, Refusal>> {
        let now = self.world.timeline.now();
        let unknown = || not_known(claim, "acquire");
        self.world.ask(claim.kind, &claim.name, unknown, |state| {
            if let Ok(entry) = state.hold_of(&claim.name, &claim.visitor) {
                // The same request once more.
                entry.ends = entry.ends.max(now + claim.lease);
                return Outcome::Done(Granted::at(now));
            }
            let holder = state.holds.get(&claim.name);
            let holder = holder.map(|it| (it.visitor.clone(), it.ends));
            let pause = state.look_at_line(claim, holder.is_some(), now);
            let first = state.first_in_line(&claim.name);
            let is_first = first.as_ref().is_none_or(|first| *first == claim.visitor);
            if holder.is_none() && is_first {
                state.leave_line(&claim.name, &claim.visitor);
                let entry = Entry {
                    kind: claim.kind,
                    visitor: claim.visitor.clone(),
                    count: 1,
                    ends: now + claim.lease,
                };
                state.put(&claim.name, entry, now);
                return Outcome::Done(Granted::at(now));
            }
            let left = holder.as_ref().map(|(_, ends)| now.until(*ends));
            let place = state.join_line(claim);
            let is_far = holder.is_some() && place.is_none_or(|place| place > 1);
            let is_far = is_far && state.is_heard(&channel_of(&claim.name, &claim.visitor));
            let before = holder.map(|(visitor, _)| visitor).or(first);
            Outcome::Refused(Refusal {
                retry_after: Some(left.unwrap_or(LOOKS_AGAIN)),
                holder: before.map(|it| it.as_str().into()),
                recheck_after: Some(if is_far { LOOKS_RARELY } else { pause }),
                ..Refusal::default()
            })
        })
    }
}

impl Memory {
    /// How many wait for a lock of a kind whose queue is here.
    pub(super) fn count_line(&self, lock: &LockId) -> Result<u32> {
        if !lock.kind.rules().waits_in_store() {
            return Err(nobody_counts_waiters(lock));
        }
        let unknown = || Err(unreachable(&lock.name, "a test lost its answer"));
        self.world.ask_any(&lock.name, unknown, |state| {
            let length = state.lines.get(&lock.name).map_or(0, VecDeque::len);
            u32::try_from(length).unwrap_or(u32::MAX)
        })
    }
}

impl State {
    fn line(&mut self, name: &str) -> Option<&mut VecDeque<InLine>> {
        self.lines.get_mut(name)
    }

    fn first_in_line(&mut self, name: &str) -> Option<VisitorId> {
        Some(self.line(name)?.front()?.visitor.clone())
    }

    /// Notes that a visitor looks at the lock. While that is free, those who do not come are passed over. Returns after which
    /// time the next may be.
    fn look_at_line(&mut self, claim: &Claim, is_held: bool, now: BootInstant) -> Duration {
        let name = &claim.name;
        let line = self.line(name).into_iter().flatten();
        for place in line.filter(|it| it.visitor == claim.visitor) {
            place.absent_since = None;
        }
        let mut pause = LOOKS_AGAIN;
        while !is_held
            && self
                .first_in_line(name)
                .is_some_and(|it| it != claim.visitor)
        {
            // A message may have been lost.
            self.tell_first(name);
            let line = self.lines.get(name).into_iter().flatten();
            let before = line.take_while(|it| it.visitor != claim.visitor);
            let channels = before.map(|it| channel_of(name, &it.visitor));
            let heard: Vec<bool> = channels.map(|it| self.is_heard(&it)).collect();
            let (mut gone, mut next) = (0, None);
            for (place, is_heard) in self.line(name).into_iter().flatten().zip(heard) {
                let since = place.absent_since.filter(|_| !is_heard).unwrap_or(now);
                place.absent_since = (!is_heard).then_some(since);
                let left = now.until(since + MAY_BE_ABSENT);
                match next {
                    None if left.is_zero() => gone += 1,
                    None => next = Some(left),
                    Some(_) => {}
                }
            }
            pause = next.map_or(pause, |left| left.clamp(LOOKS_SOON, LOOKS_AGAIN));
            if gone == 0 {
                break;
            }
            let line = self.line(name).into_iter();
            line.for_each(|line| drop(line.drain(..gone)));
        }
        pause
    }

    fn is_heard(&self, channel: &str) -> bool {
        let mut clients = self.clients.iter().filter_map(Weak::upgrade);
        clients.any(|client| client.has_waiters(channel))
    }

    /// Gives a visitor that waits a place, if it has none: at the end, or at the front if it had one before. Returns where it
    /// stands.
    fn join_line(&mut self, claim: &Claim) -> Option<usize> {
        let Queueing::Waits { had_place, .. } = claim.queueing else {
            return None;
        };
        let line = self.lines.entry(Arc::clone(&claim.name)).or_default();
        let at = line.iter().position(|it| it.visitor == claim.visitor);
        Some(at.unwrap_or_else(|| {
            let place = InLine {
                visitor: claim.visitor.clone(),
                absent_since: None,
            };
            match had_place {
                // Only the first are passed over, so it came before all others.
                true => line.push_front(place),
                false => line.push_back(place),
            }
            if had_place { 0 } else { line.len() - 1 }
        }))
    }

    /// Takes a visitor out of the line. Returns whether it was the first.
    pub(super) fn leave_line(&mut self, name: &str, visitor: &VisitorId) -> bool {
        let Some(line) = self.line(name) else {
            return false;
        };
        let was_first = line.front().is_some_and(|it| it.visitor == *visitor);
        line.retain(|it| it.visitor != *visitor);
        if line.is_empty() {
            self.lines.remove(name);
        }
        was_first
    }

    /// Tells the first who waits that the lock is free.
    pub(super) fn tell_first(&mut self, name: &str) {
        if let Some(first) = self.first_in_line(name) {
            self.wake(&channel_of(name, &first), 1);
        }
    }
}
