//! A lock that is made of others: held when all of them are.
//!
//! It never waits while it holds something: what an attempt has taken is given back before the refusal is passed on.

mod member;
mod obstacle;
#[cfg(test)]
mod tests;
mod undo;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::claim::{Claim, LockId, Queueing, VisitorId};
use crate::ground::clock::PROCESS;
use crate::ground::error::{Error, Result};
use crate::ground::notify::Parker;
use crate::ground::sync::Mutex;
use crate::store::{
    Delivery, Facts, Granted, HealthWarning, Holding, InDoubt, Outcome, Refusal, Released, Renewal,
    Store, Subscription, resolve_each,
};
use crate::stores::share;

pub(crate) use member::Member;
use member::Part;
use obstacle::Obstacle;

/// Several that take the same locks in another order should not meet again and again.
const JITTER: Duration = Duration::from_millis(2);

/// The store of one lock that is made of others.
pub(crate) struct MultiStore {
    /// In the order in which they are taken, which is the same for all that name them the same.
    members: Vec<Part>,
    /// How often each hold was entered, where no member can count: a token is not entered twice.
    counts: Option<Mutex<HashMap<VisitorId, u32>>>,
    obstacle: Obstacle,
    facts: Facts,
}

impl MultiStore {
    pub(crate) fn new(mut members: Vec<Member>) -> MultiStore {
        members.sort_by_key(Member::identity);
        let counts = members
            .iter()
            .all(|member| !member.lock.kind.rules().is_reentrant);
        let mut timelines = members.iter().map(|member| &member.store.facts().timeline);
        let first = timelines.next().unwrap_or(&PROCESS);
        let is_common = timelines.all(|timeline| timeline.is(first));
        let facts = members.iter().map(|member| member.store.facts());
        let longest = facts.clone().map(|facts| facts.longest_lease).min();
        let areas: Vec<&str> = facts.map(|facts| facts.area.as_str()).collect();
        let facts = Facts {
            timeline: if is_common { first } else { &PROCESS }.clone(),
            keeps_no_data: "a lock of several parts guards no write; take the lock that is on the server of the data by itself",
            keeps_no_conditions: Some(
                "a lock of several parts has no conditions: the parts may be on several servers; wait on one of a single lock",
            ),
            ..Facts::of_composite(areas.join(" and "), longest.unwrap_or_default())
        };
        let parts = members.into_iter().enumerate();
        MultiStore {
            members: parts
                .map(|(place, member)| Part { member, place })
                .collect(),
            counts: counts.then(Mutex::default),
            obstacle: Obstacle::default(),
            facts,
        }
    }

    /// The members in their order, each with the end of its share of the time, by the clock when its turn comes.
    fn in_turn(&self, deadline: Instant) -> impl Iterator<Item = (&Part, Instant)> {
        let left = (1..=self.members.len()).rev();
        let members = left.zip(&self.members);
        members.map(move |(left, member)| (member, share(deadline, left)))
    }

    /// Notes how often a hold is entered, if nobody else does.
    fn note_count(&self, visitor: &VisitorId, count: u32) {
        if let Some(counts) = &self.counts {
            let mut counts = counts.lock();
            match count {
                0 => counts.remove(visitor),
                count => counts.insert(visitor.clone(), count),
            };
        }
    }

    /// The member before `refused` that turns out to be the same lock, reached by another name.
    fn twin_of(&self, refused: &Part, claim: &Claim, deadline: Instant) -> Option<&Part> {
        let taken = self.members.iter().take(refused.place);
        let mut alike = taken.filter(|part| part.lock.name == refused.lock.name);
        alike.find(|part| {
            let visitor = part.visitor(&claim.visitor);
            let by = share(deadline, 2);
            let holding = refused.store.inspect(&refused.lock, Some(&visitor), by);
            holding.is_ok_and(|holding| holding.count > 0)
        })
    }

    /// Gives levels back at each member, so that `keep` stay.
    fn release_level(
        &self,
        claim: &Claim,
        keep: u32,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        self.note_count(&claim.visitor, keep);
        let (mut lost, mut trouble, mut late) = (None, None, None);
        for (member, by) in self.in_turn(deadline) {
            match member.release_level(claim, keep, by) {
                Ok(Outcome::Done(Released { leftover, .. })) => late = late.or(leftover),
                Ok(Outcome::Gone(cause)) => lost = Some(cause),
                Ok(Outcome::Unknown { error, .. }) | Err(error) => trouble = Some(error),
            }
        }
        match (lost, trouble) {
            (Some(cause), _) => Ok(Outcome::Gone(cause)),
            (None, Some(error)) => Ok(Outcome::unknown(claim.in_doubt(0), error)),
            (None, None) => Ok(Outcome::Done(Released {
                leftover: late,
                ..Released::default()
            })),
        }
    }
}

impl Store for MultiStore {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        let sent = self.facts.timeline.now();
        let is_first = claim.count == 0;
        let waits = matches!(claim.queueing, Queueing::Waits { .. });
        if is_first
            && waits
            && let Some(refusal) = self.still_in_the_way(deadline)
        {
            return Ok(Outcome::Refused(refusal));
        }
        let mut late = None;
        for (index, member) in self.members.iter().enumerate() {
            let mut in_doubt = InDoubt::at_none(claim, self.members.len());
            let latest = |part: &InDoubt| part.not_after.iter().copied().max().unwrap_or(Some(0));
            // One share is kept for giving back what was taken.
            let by = share(deadline, self.members.len() - index + 1);
            let outcome = match member.acquire(claim, by) {
                Ok(Outcome::Done(Granted { leftover, .. })) => {
                    late = late.or(leftover);
                    continue;
                }
                Ok(Outcome::Unknown {
                    in_doubt: part,
                    error,
                    ..
                }) => {
                    in_doubt.set(index, latest(&part));
                    Err(error)
                }
                Ok(Outcome::Refused(mut refusal)) => {
                    self.obstacle.note(index);
                    if let Some(part) = refusal.leftover.take() {
                        in_doubt.set(index, latest(&part));
                    }
                    match self.twin_of(member, claim, by) {
                        // It would be refused for ever, by itself.
                        Some(twin) if is_first => Err(Error::config(
                            "the locks of a MultiLock",
                            format!(
                                "{:?} on {} is the same lock as on {}",
                                member.lock.name,
                                member.store.node(None),
                                twin.store.node(None)
                            ),
                        )),
                        _ => Ok(Outcome::Refused(refusal)),
                    }
                }
                other => other,
            };
            if !is_first && !matches!(outcome, Ok(Outcome::Gone(_))) {
                self.put_back(claim, index, deadline);
                let is_touched = index > 0 || !in_doubt.is_resolved();
                return match outcome {
                    // Some parts have the new lease or may get it, and the way back sets it once more. Any of that may
                    // run late, behind the next request of the hold, which has to reckon with it.
                    Err(error) if is_touched => Ok(Outcome::unknown(claim.in_doubt(0), error)),
                    outcome => outcome,
                };
            }
            // A first acquisition that is refused, or a hold that is lost: nothing of it is to stand.
            let taken = if is_first { index } else { self.members.len() };
            let leftover = self.undo(taken, in_doubt, deadline);
            return match (outcome, leftover) {
                (Ok(Outcome::Refused(refusal)), leftover) => Ok(Outcome::Refused(Refusal {
                    leftover,
                    ..refusal
                })),
                (Err(error), Some(in_doubt)) => Ok(Outcome::unknown(in_doubt, error)),
                (outcome, _) => outcome,
            };
        }
        self.obstacle.note(0);
        self.note_count(&claim.visitor, claim.count.saturating_add(1));
        Ok(Outcome::Done(Granted {
            leftover: late,
            ..Granted::at(sent)
        }))
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        let mut outcomes = vec![Renewal::Renewed; claims.len()];
        for (member, by) in self.in_turn(deadline) {
            let parts: Vec<Claim> = claims.iter().map(|claim| member.claim(claim)).collect();
            let answers = member.store.renew(&parts, by);
            for (outcome, answer) in outcomes.iter_mut().zip(answers) {
                match (&*outcome, answer) {
                    // What is lost is lost, whatever is said of the others.
                    (Renewal::Lost(_), _) | (_, Renewal::Renewed | Renewal::RenewedFor(_)) => {}
                    (_, answer) => *outcome = answer,
                }
            }
        }
        outcomes
    }

    fn release(&self, claim: &Claim, keep: u32, deadline: Instant) -> Result<Outcome<Released>> {
        if keep > 0 {
            return self.release_level(claim, keep, deadline);
        }
        self.note_count(&claim.visitor, 0);
        let mut in_doubt = InDoubt::at_none(claim, self.members.len());
        let (mut lost, mut trouble, mut waiting) = (None, None, 0);
        for member in self.members.iter().rev() {
            let by = share(deadline, member.place + 1);
            match member.store.release(&member.claim(claim), 0, by) {
                Ok(Outcome::Done(released)) => {
                    waiting = released.others.max(waiting);
                    in_doubt.set(member.place, released.leftover.map(|_| 0));
                }
                Ok(Outcome::Gone(cause)) => lost = Some(cause),
                Ok(Outcome::Unknown { error, .. }) | Err(error) => {
                    in_doubt.set(member.place, Some(0));
                    trouble = Some(error);
                }
            }
        }
        match (lost, trouble) {
            (Some(cause), _) => Ok(Outcome::Gone(cause)),
            (None, Some(error)) => Ok(Outcome::unknown(in_doubt, error)),
            (None, None) => Ok(Outcome::Done(Released {
                others: waiting,
                leftover: (!in_doubt.is_resolved()).then_some(in_doubt),
            })),
        }
    }

    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        resolve_each(in_doubts, deadline, |in_doubt| {
            self.note_count(&in_doubt.visitor, 0);
            Ok(self.settle(in_doubt, deadline))
        })
    }

    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool> {
        let (mut was_held, mut trouble) = (false, None::<Error>);
        for (member, by) in self.in_turn(deadline) {
            match member.store.force_release(&member.lock, by) {
                Ok(freed) => was_held |= freed,
                // Of several errors the one stands that says that a part may be free.
                Err(error) => trouble = trouble.filter(Error::is_ambiguous).or(Some(error)),
            }
        }
        match trouble {
            // A part is free: no error that says that nothing was done.
            Some(error) if was_held && error.is_retryable() => {
                let node = error.node().map_or_else(|| self.node(None), Arc::from);
                let reason =
                    format!("other parts are freed, and of this one it is said: {error:?}");
                let operation = "forced release";
                Err(Error::unknown(&lock.name, node, operation, None, reason))
            }
            Some(error) => Err(error),
            None => Ok(was_held),
        }
    }

    fn inspect(
        &self,
        _: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding> {
        let mut whole = Holding {
            count: u32::MAX,
            ..Holding::default()
        };
        let mut has_end = true;
        for (member, by) in self.in_turn(deadline) {
            let holder = visitor.map(|visitor| member.visitor(visitor));
            let part = member.store.inspect(&member.lock, holder.as_ref(), by)?;
            // A token is there or not, however often the whole was entered.
            if member.lock.kind.rules().is_reentrant || part.count == 0 {
                whole.count = whole.count.min(part.count);
            }
            if part.is_locked {
                whole.is_locked = true;
                has_end &= part.remaining.is_some();
                // It is free when the last of them is.
                whole.remaining = whole.remaining.max(part.remaining);
            }
        }
        if !has_end {
            whole.remaining = None;
        }
        if let (u32::MAX, Some(counts), Some(visitor)) = (whole.count, &self.counts, visitor) {
            whole.count = counts.lock().get(visitor).copied().unwrap_or(1);
        }
        Ok(whole)
    }

    fn subscribe(
        &self,
        lock: &LockId,
        _: Option<&VisitorId>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        let registration = self.facts.notifier.join(source, &lock.name, parker);
        // Whichever is freed: it may have been the last one that was in the way. A quorum among them needs word from several
        // nodes, for an attempt that is undone at one of them would wake all who wait.
        let mut sources = 1;
        let subscribe = |member: &Part| {
            let source = source + sources;
            // Its members have no places, for it waits for none of them while it has another.
            let part = member.store.subscribe(&member.lock, None, source, parker);
            sources += part.sources;
            part
        };
        let parts: Vec<Subscription> = self.members.iter().map(subscribe).collect();
        let delivery = if parts.iter().any(|part| part.delivery == Delivery::Polling) {
            Delivery::Polling
        } else if parts.iter().all(|part| part.delivery == Delivery::Live) {
            Delivery::Live
        } else {
            Delivery::Pending
        };
        Subscription {
            registration,
            delivery,
            sources,
            jitter: JITTER,
            keep: Some(Box::new(parts)),
        }
    }

    fn node(&self, _lock: Option<&str>) -> Arc<str> {
        let names: Vec<_> = self
            .members
            .iter()
            .map(|member| member.store.node(None))
            .collect();
        names.join(" and ").into()
    }

    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        let mut warnings = Vec::new();
        for member in &self.members {
            warnings.extend(member.store.check(deadline)?);
        }
        Ok(warnings)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl fmt::Debug for MultiStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiStore")
            .field("members", &self.node(None))
            .finish_non_exhaustive()
    }
}
