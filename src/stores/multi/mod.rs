//! A lock that consists of other locks, its members. It is held while all members are held.
//!
//! A refused attempt releases the acquired members before it returns. A failed release is repeated in the background.

mod member;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::ground::claim::{Claim, LockId, Queueing, VisitorId};
use crate::ground::clock::PROCESS;
use crate::ground::error::{Error, Result};
use crate::ground::notify::Parker;
use crate::store::{
    Delivery, Facts, Granted, HealthWarning, Holding, InDoubt, Left, LockInfo, Outcome, Position,
    Refusal, Released, Renewal, Store, StoreEntry, Subscription, SurveyOf,
};
use crate::stores::share;

pub(crate) use member::Member;

/// The longest random delay of a waiter after a message. It keeps multi-locks with common members from colliding again.
const JITTER: Duration = Duration::from_millis(2);

pub(crate) struct MultiStore {
    /// The members in the order of acquisition, which is the same for every multi-lock with these members.
    members: Vec<Member>,
    /// The index of the member that refused the last refused attempt; 0 after a grant.
    refusing_member: AtomicUsize,
    facts: Facts,
}

impl MultiStore {
    pub(crate) fn new(mut members: Vec<Member>) -> MultiStore {
        members.sort_by_key(Member::identity);
        let mut timelines = members.iter().map(|member| &member.store.facts().timeline);
        let first = timelines.next().unwrap_or(&PROCESS);
        let is_common = timelines.all(|timeline| timeline.is(first));
        let facts = members.iter().map(|member| member.store.facts());
        let longest = facts.clone().map(|facts| facts.longest_lease).min();
        let areas: Vec<&str> = facts.map(|facts| facts.area.as_str()).collect();
        let facts = Facts {
            timeline: if is_common { first } else { &PROCESS }.clone(),
            lacks: "a MultiLock has no guarded writes and no conditions, because its locks may be on several \
                servers; use a single lock on the server of the data",
            ..Facts::of_composite(areas.join(" and "), longest.unwrap_or_default())
        };
        for (index, member) in members.iter_mut().enumerate() {
            member.index = index;
        }
        MultiStore {
            members,
            refusing_member: AtomicUsize::new(0),
            facts,
        }
    }

    /// Returns each member with a deadline. Each step divides the remaining time among the remaining members.
    fn in_turn(&self, deadline: Instant) -> impl Iterator<Item = (&Member, Instant)> {
        let left = (1..=self.members.len()).rev();
        let members = left.zip(&self.members);
        members.map(move |(left, member)| (member, share(deadline, left)))
    }

    /// Returns an earlier member that is the same lock as `refused`, at another address of the same server.
    fn same_lock_as(&self, refused: &Member, claim: &Claim, deadline: Instant) -> Option<&Member> {
        let taken = self.members.iter().take(refused.index);
        let mut alike = taken.filter(|part| part.lock.name == refused.lock.name);
        alike.find(|part| {
            let visitor = part.visitor(&claim.visitor);
            let by = share(deadline, 2);
            let holding = refused.store.inspect(&refused.lock, Some(&visitor), by);
            holding.is_ok_and(|holding| holding.count > 0)
        })
    }

    fn release_level(
        &self,
        claim: &Claim,
        keep: u32,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        let (mut lost, mut trouble, mut late) = (None, None, None);
        for (member, by) in self.in_turn(deadline) {
            let part = member.claim(claim);
            match member.store.release(&part, Left::Levels(keep), by) {
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

    /// Returns a refusal if the member `refusing_member` is held now. Without this query, the attempt would acquire the
    /// members before this member, and release them again. Each release would wake other waiters. The first member has no
    /// members before it, so it is not queried.
    fn still_refused(&self, deadline: Instant) -> Option<Refusal> {
        let place = self.refusing_member.load(Ordering::Relaxed);
        // Quorums are not queried. Their `inspect` counts silent nodes as locked, which could look like a refusal.
        let is_simple = |member: &&Member| !member.store.facts().is_composite;
        let member = self.members.get(place).filter(is_simple)?;
        if place == 0 {
            return None;
        }
        let by = share(deadline, self.members.len() + 2);
        refusing_locks(&member.lock)
            .into_iter()
            .flatten()
            .find_map(|lock| {
                // If the query fails, the attempt is made nevertheless, and the caller gets the error of the attempt.
                let holding = member.store.inspect(&lock, None, by).ok()?;
                holding.is_locked.then(|| Refusal::until(holding.remaining))
            })
    }

    /// Releases what the request `in_doubt` acquired or can still acquire. Returns true if nothing is left to release.
    fn settle(&self, in_doubt: &mut InDoubt, deadline: Instant) -> bool {
        in_doubt.list(self.members.len());
        for (index, member) in self.members.iter().enumerate().rev() {
            let part = in_doubt.part(index);
            if part.is_resolved() {
                continue;
            }
            let mut part = InDoubt {
                kind: member.lock.kind,
                name: Arc::clone(&member.lock.name),
                visitor: member.visitor(&in_doubt.visitor),
                ..part
            };
            // If a member returns an error, the engine calls `resolve` again later.
            let by = share(deadline, index + 1);
            if matches!(member.store.resolve(&mut part, by), Ok(true)) {
                in_doubt.set(index, None);
            }
        }
        in_doubt.is_resolved()
    }
}

/// The locks that prevent an acquisition of `lock` while they are held. A reader does not refuse other readers.
fn refusing_locks(lock: &LockId) -> [Option<LockId>; 2] {
    let rules = lock.kind.rules();
    let other = rules.side.map(|side| LockId {
        kind: side.other,
        name: lock.name.clone(),
    });
    [(!rules.is_shared).then(|| lock.clone()), other]
}

impl Store for MultiStore {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        let sent = self.facts.timeline.now();
        let is_first = claim.count == 0;
        let waits = matches!(claim.queueing, Queueing::Waits { .. });
        if is_first
            && waits
            && let Some(refusal) = self.still_refused(deadline)
        {
            return Ok(Outcome::Refused(refusal));
        }
        let cannot_re_enter = |member: &&Member| !member.lock.kind.rules().is_reentrant;
        if !is_first && let Some(member) = self.members.iter().find(cannot_re_enter) {
            let lock = Arc::clone(&member.lock.name);
            return Err(Error::NotReentrant { lock });
        }
        let mut late = None;
        for (index, member) in self.members.iter().enumerate() {
            let mut in_doubt = InDoubt::at_none(claim, self.members.len());
            let latest = |part: &InDoubt| part.not_after.iter().copied().max().unwrap_or(Some(0));
            // One share of the time is reserved for releases after a refusal.
            let by = share(deadline, self.members.len() - index + 1);
            let outcome = match member.store.acquire(&member.claim(claim), by) {
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
                    self.refusing_member.store(index, Ordering::Relaxed);
                    if let Some(part) = refusal.leftover.take() {
                        in_doubt.set(index, latest(&part));
                    }
                    match self.same_lock_as(member, claim, by) {
                        // Both members are one lock, so the multi-lock would refuse itself forever.
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
                let is_touched = index > 0 || !in_doubt.is_resolved();
                return match outcome {
                    // Some members may have the higher hold count of this re-entry, or get it from a late request. The
                    // client does not correct the counts, because the last release frees a member at any count.
                    Err(error) if is_touched => Ok(Outcome::unknown(claim.in_doubt(0), error)),
                    outcome => outcome,
                };
            }
            // Here a first acquisition was not granted, or a hold was lost. So the acquired members must be released.
            let taken = if is_first { index } else { self.members.len() };
            for index in 0..taken {
                in_doubt.set(index, Some(0));
            }
            let leftover = (!self.settle(&mut in_doubt, deadline)).then_some(in_doubt);
            return match (outcome, leftover) {
                (Ok(Outcome::Refused(refusal)), leftover) => Ok(Outcome::Refused(Refusal {
                    leftover,
                    ..refusal
                })),
                (Err(error), Some(in_doubt)) => Ok(Outcome::unknown(in_doubt, error)),
                (outcome, _) => outcome,
            };
        }
        self.refusing_member.store(0, Ordering::Relaxed);
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
                    // If one member is lost, the hold is lost.
                    (Renewal::Lost(_), _) | (_, Renewal::Renewed | Renewal::RenewedFor(_)) => {}
                    (_, answer) => *outcome = answer,
                }
            }
        }
        outcomes
    }

    fn release(
        &self,
        claim: &Claim,
        left: Left<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        if let Left::Levels(keep) = left {
            return self.release_level(claim, keep, deadline);
        }
        let mut in_doubt = InDoubt::at_none(claim, self.members.len());
        let (mut lost, mut trouble, mut waiting) = (None, None, 0);
        for member in self.members.iter().rev() {
            let by = share(deadline, member.index + 1);
            // The release of each member publishes a message, because other clients may wait for this member alone.
            let part = member.claim(claim);
            match member.store.release(&part, Left::Nothing, by) {
                Ok(Outcome::Done(released)) => {
                    waiting = released.others.max(waiting);
                    in_doubt.set(member.index, released.leftover.map(|_| 0));
                }
                Ok(Outcome::Gone(cause)) => lost = Some(cause),
                Ok(Outcome::Unknown { error, .. }) | Err(error) => {
                    in_doubt.set(member.index, Some(0));
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
                successor: None,
            })),
        }
    }

    fn resolve(&self, in_doubt: &mut InDoubt, deadline: Instant) -> Result<bool> {
        Ok(self.settle(in_doubt, deadline))
    }

    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool> {
        let (mut was_held, mut trouble) = (false, None::<Error>);
        for (member, by) in self.in_turn(deadline) {
            match member.store.force_release(&member.lock, by) {
                Ok(freed) => was_held |= freed,
                // An ambiguous error (the member may have been freed) takes precedence over other errors.
                Err(error) => trouble = trouble.filter(Error::is_ambiguous).or(Some(error)),
            }
        }
        match trouble {
            // A retryable error promises that nothing was done. Here a member was freed, so the error becomes `Unknown`.
            Some(error) if was_held && error.is_retryable() => {
                let node = error.node().map_or_else(|| self.node(None), Arc::from);
                let reason =
                    format!("the other locks were released, but this one failed: {error:?}");
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
            whole.count = whole.count.min(part.count);
            if part.is_locked {
                whole.is_locked = true;
                has_end &= part.remaining.is_some();
                // The multi-lock is free when its last held member is free.
                whole.remaining = whole.remaining.max(part.remaining);
            }
        }
        if !has_end {
            whole.remaining = None;
        }
        Ok(whole)
    }

    /// Returns nothing, because a survey of each member's own client lists the member.
    fn survey(
        &self,
        _: SurveyOf<'_>,
        position: &mut Position,
        _: Instant,
    ) -> Result<Vec<LockInfo>> {
        position.is_over = true;
        Ok(Vec::new())
    }

    fn subscribe(
        &self,
        lock: &LockId,
        _: Option<StoreEntry<'_>>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        let registration = self.facts.notifier.join(source, &lock.name, parker);
        // The release of any member may be the one that frees the multi-lock, so a message of any member wakes the waiter.
        let mut sources = 1;
        let subscribe = |member: &Member| {
            let source = source + sources;
            // `None`: a multi-lock does not join the queues of its members.
            let part = member.store.subscribe(&member.lock, None, source, parker);
            sources += part.sources;
            part
        };
        let parts: Vec<Subscription> = self.members.iter().map(subscribe).collect();
        Subscription {
            registration,
            delivery: Delivery::joint(&parts, parts.len()),
            sources,
            jitter: JITTER,
            keep: Some(Box::new(parts)),
        }
    }

    fn node(&self, _lock: Option<&str>) -> Arc<str> {
        let names = self.members.iter().map(|it| it.store.node(None));
        names.collect::<Vec<_>>().join(" and ").into()
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
