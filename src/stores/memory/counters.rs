//! Counts that several share: those of latches, and the free permits of semaphores with the owners of the others.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use super::{Memory, no_answer, not_known, unreachable};
use crate::ground::claim::{Claim, ENDLESS, LARGEST_COUNT, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::Result;
use crate::ground::loss::LossCause;
use crate::store::{CountOp, CountStep, Granted, InDoubt, Outcome, Refusal, Released, Renewal};
use crate::stores::memory::world::{Counter, State};

/// A refused visitor looks again after this time, whatever messages come.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

impl Memory {
    /// Carries out an operation on a counter.
    pub(super) fn change(&self, op: &CountOp<'_>) -> Result<i64> {
        let CountOp { counter, step, .. } = op;
        let unknown = || match step {
            // A question changes nothing, so an answer that does not come leaves nothing unknown.
            step if step.is_question() => Err(unreachable(&counter.name, "a test lost its answer")),
            step => Err(no_answer(&counter.name, None, step.name())),
        };
        let now = self.world.timeline.now();
        self.world
            .ask(
                counter.kind,
                &counter.name,
                || unknown().map(Some),
                |state| state.count(op, now),
            )?
            .ok_or_else(|| op.out_of_range())
    }

    /// Takes permits, and gives back those whose owners' leases are over.
    pub(super) fn take(&self, claim: &Claim) -> Result<Outcome<Granted, Refusal>> {
        let sent = self.world.timeline.now();
        let unknown = || not_known(claim, "acquire");
        self.world.ask(claim.kind, &claim.name, unknown, |state| {
            let next_end = match state.take(claim, sent) {
                Ok(life) => {
                    return Outcome::Done(Granted {
                        life,
                        ..Granted::at(sent)
                    });
                }
                Err(next_end) => next_end,
            };
            let left = next_end.map_or(LOOKS_AGAIN, |end| sent.until(end));
            Outcome::Refused(Refusal {
                retry_after: Some(left.min(LOOKS_AGAIN)),
                holder: Some("".into()),
                ..Refusal::default()
            })
        })
    }

    /// Gives permits back.
    pub(super) fn give_back(&self, claim: &Claim) -> Result<Outcome<Released>> {
        let unknown = || not_known(claim, "release");
        let rules = claim.kind.rules();
        let now = rules.has_ids.then(|| self.world.timeline.now());
        self.world.ask(claim.kind, &claim.name, unknown, |state| {
            match state.give_back(&claim.name, &claim.visitor, now) {
                true => Outcome::Done(Released::default()),
                false => Outcome::Gone(LossCause::Gone),
            }
        })
    }
}

/// Nothing is taken from a semaphore that ends so soon.
const TOO_SHORT: Duration = Duration::from_millis(3);

impl Counter {
    /// How long it lasts, if that is less than a lease from now.
    fn life(&self, lease: Duration, now: BootInstant) -> Option<Duration> {
        let left = self.ends.map(|end| now.until(end));
        left.filter(|left| *left < lease)
    }

    /// How many permits owners have whose leases are over.
    fn over(&self, now: BootInstant) -> i64 {
        let over = self.owners.iter().filter(|(_, end)| *end <= now);
        over.map(|(owner, _)| permits_of(owner)).sum()
    }

    /// How many owners have.
    fn taken(&self) -> i64 {
        self.owners.iter().map(|(owner, _)| permits_of(owner)).sum()
    }

    /// Gives back those of owners whose leases are over. Returns how many they were.
    fn reclaim(&mut self, now: BootInstant) -> i64 {
        let back = self.over(now);
        self.owners.retain(|(_, end)| *end > now);
        self.count += back;
        back
    }
}

/// How many permits an owner has: one, if it is the id of one.
fn permits_of(owner: &VisitorId) -> i64 {
    i64::from(owner.permits()).max(1)
}

impl State {
    /// The answer to an operation; `None` if the count would be out of range.
    fn count(&mut self, op: &CountOp<'_>, now: BootInstant) -> Option<i64> {
        let name = &op.counter.name;
        let count = self.counters.get(name).map(|it| it.count);
        let has_one = i64::from(count.is_some());
        Some(match (op.step, count) {
            (CountStep::Get, _) => self
                .counters
                .get(name)
                .map_or(0, |it| it.count + it.over(now)),
            (CountStep::SetIfMissing(..), Some(_)) => 0,
            (CountStep::SetIfMissing(count, life), None) => {
                self.set(name, count.into(), life.map(|life| now + life));
                1
            }
            (CountStep::CountDown, Some(count)) if count > 1 => self.add(name, -1),
            (CountStep::CountDown, _) => {
                if self.counters.remove(name).is_some() {
                    self.wake(name, usize::MAX);
                }
                0
            }
            (CountStep::Delete, _) => {
                self.counters.remove(name);
                self.wake(name, usize::MAX);
                has_one
            }
            (CountStep::AddIfThere(_), None) => 0,
            (CountStep::Add(by) | CountStep::AddIfThere(by), count) => {
                let sum = count.unwrap_or_default() + by;
                // What is taken away may leave more than may be added: permits that were owned have come back.
                let most = i64::from(LARGEST_COUNT);
                if sum > most && by > 0 || sum < -most {
                    return None;
                }
                if count.is_none() {
                    self.set(name, 0, None);
                }
                self.add(name, by);
                self.wake_for(name, sum);
                match op.step {
                    CountStep::Add(_) => sum,
                    _ => 1,
                }
            }
            (CountStep::Drain, _) => self.counters.get_mut(name).map_or(0, |counter| {
                counter.reclaim(now);
                std::mem::take(&mut counter.count)
            }),
            (CountStep::Replace(count), None) => {
                self.set(name, count.into(), None);
                1
            }
            (CountStep::Replace(count), Some(free)) => {
                // Those whose leases are over are counted: they come back.
                let taken = self.counters.get(name).map_or(0, Counter::taken);
                let free = self.add(name, i64::from(count) - free - taken);
                self.wake_for(name, free);
                1
            }
            (CountStep::Taken, _) => {
                let counter = self.counters.get(name);
                counter.map_or(0, |it| it.taken() - it.over(now))
            }
            (CountStep::GiveBack, _) => {
                let permit = op.permit;
                i64::from(permit.is_some_and(|it| self.give_back(name, it, Some(now))))
            }
            (CountStep::Lease, _) => {
                let life = self.counters.get(name).and_then(|it| it.ends);
                let end = self
                    .end_of(op, now)
                    .map(|end| life.map_or(*end, |life| life.min(*end)));
                let left = end.map_or(Duration::ZERO, |end| now.until(end).min(ENDLESS));
                i64::try_from(left.as_millis()).unwrap_or(i64::MAX)
            }
            (CountStep::SetLease(lease), _) => match self.end_of(op, now) {
                Some(end) => {
                    *end = now + lease;
                    1
                }
                None => 0,
            },
            (CountStep::Forget, _) => {
                let owners = self.counters.get_mut(name).map(|it| &mut it.owners);
                let owns = |(owner, _): &mut (VisitorId, BootInstant)| *owner == op.request;
                let forgotten = owners.map(|owners| owners.extract_if(.., owns).count());
                i64::from(forgotten.unwrap_or_default() > 0)
            }
        })
    }

    /// The end of the permit that an operation is about, which has not come.
    fn end_of(&mut self, op: &CountOp<'_>, now: BootInstant) -> Option<&mut BootInstant> {
        let owners = &mut self.counters.get_mut(&op.counter.name)?.owners;
        let permit = op.permit?;
        let mut owners = owners.iter_mut();
        let is_it = |(owner, end): &&mut (VisitorId, BootInstant)| owner == permit && *end > now;
        owners.find(is_it).map(|(_, end)| end)
    }

    fn set(&mut self, name: &Arc<str>, count: i64, ends: Option<BootInstant>) {
        let counter = Counter {
            count,
            ends,
            owners: Vec::new(),
        };
        self.counters.insert(Arc::clone(name), counter);
        self.wake_for(name, count);
    }

    /// Adds to a count. Returns what it is then.
    fn add(&mut self, name: &str, by: i64) -> i64 {
        let counter = self.counters.get_mut(name);
        counter.map_or(0, |counter| {
            counter.count += by;
            counter.count
        })
    }

    /// Wakes as many waiters as there are free permits.
    fn wake_for(&mut self, name: &str, free: i64) {
        if let Ok(free @ 1..) = usize::try_from(free) {
            self.wake(name, free);
        }
    }

    /// Takes the permits of a claim; tells how long they are there if that is less than the lease. If there are too few, the
    /// end of the first lease of those that have them.
    fn take(
        &mut self,
        claim: &Claim,
        now: BootInstant,
    ) -> Result<Option<Duration>, Option<BootInstant>> {
        let (name, ends) = (&claim.name, now + claim.lease);
        let counter = self.counters.get_mut(name).ok_or(None)?;
        let life = counter.life(claim.lease, now);
        let mut mine = counter.owners.iter_mut();
        let first = claim.visitor.owners().next();
        if let Some((_, end)) = mine.find(|(owner, _)| Some(owner) == first.as_ref()) {
            // Of an id others may have set the end.
            if !claim.kind.rules().has_ids {
                *end = ends.max(*end);
            }
            return Ok(life);
        }
        // Nothing that ends so soon is valid for a moment.
        if life.is_some_and(|life| life < TOO_SHORT) {
            return Err(None);
        }
        let back = counter.reclaim(now);
        let wanted: i64 = claim.visitor.owners().map(|it| permits_of(&it)).sum();
        let is_granted = counter.count >= wanted;
        if is_granted {
            counter.count -= wanted;
            let owners = claim.visitor.owners().map(|owner| (owner, ends));
            counter.owners.extend(owners);
        }
        let (free, next_end) = (
            counter.count,
            counter.owners.iter().map(|(_, end)| *end).min(),
        );
        if back > 0 {
            self.wake_for(name, free);
        }
        is_granted.then_some(life).ok_or(next_end)
    }

    /// Gives back what the visitor owns, but for what has ended by `now` if that is told. Returns whether it owned all.
    pub(super) fn give_back(
        &mut self,
        name: &str,
        visitor: &VisitorId,
        now: Option<BootInstant>,
    ) -> bool {
        let Some(counter) = self.counters.get_mut(name) else {
            return false;
        };
        let (mut back, mut had_all) = (0, true);
        for part in visitor.owners() {
            let is_it = |(owner, end): &(VisitorId, BootInstant)| {
                *owner == part && now.is_none_or(|now| now < *end)
            };
            match counter.owners.iter().position(is_it) {
                Some(at) => {
                    counter.owners.swap_remove(at);
                    back += permits_of(&part);
                }
                None => had_all = false,
            }
        }
        counter.count += back;
        let free = counter.count;
        if back > 0 {
            self.wake_for(name, free);
        }
        had_all
    }

    /// Renews what the visitor of a claim owns.
    pub(super) fn renew_owner(&mut self, claim: &Claim, now: BootInstant) -> Renewal {
        let Some(counter) = self.counters.get_mut(&claim.name) else {
            return Renewal::Lost(LossCause::Gone);
        };
        let life = counter.life(claim.lease, now);
        let parts: Vec<VisitorId> = claim.visitor.owners().collect();
        let owners = counter.owners.iter_mut();
        let mine: Vec<_> = owners.filter(|(owner, _)| parts.contains(owner)).collect();
        if mine.len() < parts.len() {
            return Renewal::Lost(LossCause::Gone);
        }
        for (_, end) in mine {
            *end = now + claim.lease;
        }
        life.map_or(Renewal::Renewed, Renewal::RenewedFor)
    }

    /// Frees what a request without an answer may have left.
    pub(super) fn withdraw(&mut self, in_doubt: &InDoubt) {
        if in_doubt.kind.rules().is_counter() {
            self.give_back(&in_doubt.name, &in_doubt.visitor, None);
            return;
        }
        let (kind, name) = (in_doubt.kind, &in_doubt.name);
        let was_first = self.leave_line(name, &in_doubt.visitor);
        if self.hold_of(name, &in_doubt.visitor).is_ok() {
            self.free(kind, name);
        } else if was_first && !self.holds.contains_key(name) {
            self.tell_first(name);
        }
    }
}
