//! Locks that live in this process alone, under the same laws as those in Redis.

mod counters;
mod node;
mod notes;
mod places;
mod queues;
mod sides;
mod survey;
#[cfg(test)]
mod tests;
mod world;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::ground::claim::{Claim, Form, LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::ground::notify::{Notifier, Parker};
use crate::store::{
    ConditionAnswer, ConditionOp, CountOp, Delivery, Facts, Granted, HealthWarning, Holding,
    InDoubt, LockInfo, Outcome, Position, Refusal, Released, Renewal, Scope, Store, Subscription,
    resolve_each,
};

#[cfg(feature = "test-util")]
pub(crate) use world::Faults;
pub(crate) use world::World;
use world::{Entry, State};

const NODE: &str = "in memory";

/// One client's view of a world.
pub(crate) struct Memory {
    world: Arc<World>,
    facts: Facts,
}

impl Memory {
    pub(crate) fn new(world: Arc<World>) -> Memory {
        let notifier = Arc::new(Notifier::default());
        world.state.lock().clients.push(Arc::downgrade(&notifier));
        let area = format!("world {:p}", Arc::as_ptr(&world));
        let facts = Facts {
            timeline: world.timeline.clone(),
            keeps_no_data: "an in-memory lock guards no write: there are no data beside it; test such writes with a server",
            ..Facts::of(area, &notifier)
        };
        Memory { world, facts }
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Begins a hold of `count` levels if the lock is free.
    fn put(&self, claim: &Claim, count: u32) -> Result<Outcome<Granted, Refusal>> {
        let sent = self.world.timeline.now();
        self.world.ask(
            claim.kind,
            &claim.name,
            || not_known(claim, "acquire"),
            |state| match state.holds.get(&claim.name) {
                Some(entry) => Outcome::Refused(Refusal {
                    retry_after: Some(sent.until(entry.ends)),
                    holder: Some(entry.visitor.as_str().into()),
                    ..Refusal::default()
                }),
                None => {
                    let entry = Entry {
                        kind: claim.kind,
                        visitor: claim.visitor.clone(),
                        count,
                        ends: sent + claim.lease,
                    };
                    state.put(&claim.name, entry, sent);
                    Outcome::Done(Granted {
                        fence: state.draw_fence(claim.kind),
                        ..Granted::at(sent)
                    })
                }
            },
        )
    }

    /// Enters a hold once more.
    fn enter(&self, claim: &Claim) -> Result<Outcome<Granted, Refusal>> {
        let sent = self.world.timeline.now();
        self.ask_held(
            claim,
            || not_known(claim, "acquire"),
            Outcome::Gone,
            |state| match state.hold_of(&claim.name, &claim.visitor) {
                Ok(entry) => {
                    entry.count = claim.count.saturating_add(1);
                    entry.ends = sent + claim.lease;
                    Outcome::Done(Granted::at(sent))
                }
                Err(cause) => Outcome::Gone(cause),
            },
        )
    }

    /// As [`World::ask`] of a visitor that had a hold: where another kind of lock is now, that hold is gone.
    fn ask_held<T>(
        &self,
        claim: &Claim,
        unknown: impl FnOnce() -> Result<T>,
        gone: impl FnOnce(LossCause) -> T,
        step: impl FnOnce(&mut State) -> T,
    ) -> Result<T> {
        match self.world.ask(claim.kind, &claim.name, unknown, step) {
            Err(Error::WrongType { reason, .. }) => Ok(gone(LossCause::HeldBy(reason))),
            answer => answer,
        }
    }

    fn release_level(&self, claim: &Claim, keep: u32) -> Result<Outcome<Released>> {
        let sent = self.world.timeline.now();
        self.ask_held(
            claim,
            || not_known(claim, "release"),
            Outcome::Gone,
            |state| match state.hold_of(&claim.name, &claim.visitor) {
                Ok(entry) => {
                    entry.count = keep;
                    entry.ends = sent + claim.lease;
                    Outcome::Done(Released::default())
                }
                Err(cause) => Outcome::Gone(cause),
            },
        )
    }

    fn others_wait(&self, state: &State, name: &str) -> bool {
        let others = state.clients.iter().filter_map(Weak::upgrade);
        let mut others = others.filter(|client| !Arc::ptr_eq(client, &self.facts.notifier));
        others.any(|client| client.has_waiters(name))
            || self.facts.notifier.waiters_for_several(name) > 0
    }
}

impl Store for Memory {
    fn acquire(&self, claim: &Claim, _deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        match claim.kind.rules().form {
            Form::Number => self.take(claim),
            Form::ReadWrite => self.take_side(claim),
            _ if claim.count == 0 && claim.kind.rules().waits_in_store() => self.put_in_turn(claim),
            _ if claim.count == 0 => self.put(claim, 1),
            _ => self.enter(claim),
        }
    }

    fn renew(&self, claims: &[Claim], _deadline: Instant) -> Vec<Renewal> {
        let renew = |claim: &Claim| {
            let sent = self.world.timeline.now();
            self.world.with(claim.kind, &claim.name, |state| {
                if state.faults.renewals_to_drop > 0 {
                    state.faults.renewals_to_drop -= 1;
                    return Renewal::Unknown("a test dropped this renewal".to_owned());
                }
                match claim.kind.rules().form {
                    Form::Number => return state.renew_owner(claim, sent),
                    Form::ReadWrite => return state.renew_side(claim, sent),
                    Form::Hash | Form::Text => {}
                }
                match state.hold_of(&claim.name, &claim.visitor) {
                    Ok(entry) => {
                        entry.ends = sent + claim.lease;
                        Renewal::Renewed
                    }
                    Err(cause) => Renewal::Lost(cause),
                }
            })
        };
        claims
            .iter()
            .map(|claim| {
                renew(claim).unwrap_or_else(|error| match error {
                    Error::WrongType { reason, .. } => Renewal::Lost(LossCause::HeldBy(reason)),
                    error => Renewal::Unknown(error.to_string()),
                })
            })
            .collect()
    }

    fn release(&self, claim: &Claim, keep: u32, _deadline: Instant) -> Result<Outcome<Released>> {
        match claim.kind.rules().form {
            Form::ReadWrite => return self.leave_side(claim, keep),
            _ if keep > 0 => return self.release_level(claim, keep),
            Form::Number => return self.give_back(claim),
            Form::Hash | Form::Text => {}
        }
        self.ask_held(
            claim,
            || not_known(claim, "release"),
            Outcome::Gone,
            |state| match state.hold_of(&claim.name, &claim.visitor) {
                Ok(_) => {
                    state.free(claim.kind, &claim.name);
                    let others_wait = self.others_wait(state, &claim.name);
                    Outcome::Done(Released {
                        others_wait,
                        ..Released::default()
                    })
                }
                Err(cause) => Outcome::Gone(cause),
            },
        )
    }

    fn hand_off(&self, from: &Claim, to: &Claim, _deadline: Instant) -> Result<Outcome<Granted>> {
        let sent = self.world.timeline.now();
        let unknown = || {
            Ok(Outcome::Unknown {
                in_doubt: from.in_doubt(0),
                successor: Some(Box::new(to.in_doubt(0))),
                error: no_answer(&from.name, Some(&from.visitor), "hand-over"),
            })
        };
        self.ask_held(from, unknown, Outcome::Gone, |state| {
            match state.hold_of(&from.name, &from.visitor) {
                Ok(entry) => {
                    *entry = Entry {
                        kind: to.kind,
                        visitor: to.visitor.clone(),
                        count: 1,
                        ends: sent + to.lease,
                    };
                }
                // Asked once more, it is done already.
                Err(LossCause::HeldBy(holder)) if holder == to.visitor.as_str() => {}
                Err(cause) => return Outcome::Gone(cause),
            }
            Outcome::Done(Granted {
                fence: state.draw_fence(to.kind),
                others_wait: self.others_wait(state, &from.name),
                ..Granted::at(sent)
            })
        })
    }

    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        resolve_each(in_doubts, deadline, |in_doubt| {
            if let Some(place) = &in_doubt.place {
                let now = self.world.timeline.now();
                let withdraw = |state: &mut State| state.withdraw_place(in_doubt, place, now);
                return self.world.with_any(&in_doubt.name, withdraw).map(|()| true);
            }
            let form = in_doubt.kind.rules().form;
            let freed = self.world.with(in_doubt.kind, &in_doubt.name, |state| {
                match form {
                    Form::ReadWrite => state.withdraw_side(in_doubt, self.world.timeline.now()),
                    _ => state.withdraw(in_doubt),
                }
                true
            });
            match freed {
                // Both are hashes of visitors, and it is none of them.
                Err(Error::WrongType { .. }) if self.world.is_hash(form, &in_doubt.name) => {
                    Ok(true)
                }
                freed => freed,
            }
        })
    }

    fn force_release(&self, lock: &LockId, _deadline: Instant) -> Result<bool> {
        let LockId { kind, name } = lock;
        let unknown = || Err(no_answer(name, None, "forced release"));
        self.world.ask(*kind, name, unknown, |state| {
            if kind.rules().form == Form::ReadWrite {
                return self.force_release_side(lock, state);
            }
            let was_held = state.holds.contains_key(name);
            if was_held {
                state.free(*kind, name);
            }
            was_held
        })
    }

    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        _deadline: Instant,
    ) -> Result<Holding> {
        let LockId { kind, name } = lock;
        // A question changes nothing, so an answer that does not come leaves nothing unknown.
        let unknown = || Err(unreachable(name, "a test lost its answer"));
        self.world
            .ask(*kind, name, unknown, |state| match state.holds.get(name) {
                _ if kind.rules().form == Form::ReadWrite => {
                    self.inspect_side(lock, visitor, state)
                }
                Some(entry) => Holding {
                    is_locked: true,
                    count: if visitor == Some(&entry.visitor) {
                        entry.count
                    } else {
                        0
                    },
                    remaining: {
                        let left = self.world.timeline.now().until(entry.ends);
                        Some(left.max(Duration::from_millis(1)))
                    },
                },
                None => Holding::default(),
            })
    }

    fn waiters(&self, lock: &LockId, _deadline: Instant) -> Result<u32> {
        self.count_line(lock)
    }

    fn describe(&self, lock: &LockId, _: Instant) -> Result<LockInfo> {
        self.describe_lock(lock)
    }

    fn survey(&self, scope: &Scope, position: &mut Position, _: Instant) -> Result<Vec<LockInfo>> {
        position.is_over = true;
        self.locks_in(scope)
    }

    fn count(&self, op: &CountOp<'_>, _deadline: Instant) -> Result<i64> {
        self.change(op)
    }

    fn condition(&self, op: &ConditionOp<'_>, _: Instant) -> Result<Outcome<ConditionAnswer>> {
        self.step(op)
    }

    fn subscribe_place(&self, op: &ConditionOp<'_>, parker: &Arc<Parker>) -> Subscription {
        let channel = places::channel_of(&op.lock.name, op.condition, op.visitor);
        let registration = self.facts.notifier.join(0, &channel, parker);
        Subscription::of(registration, Delivery::Live)
    }

    fn subscribe(
        &self,
        lock: &LockId,
        place: Option<&VisitorId>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        let join = |channel: &Arc<str>| self.facts.notifier.join(source, channel, parker);
        match place.filter(|_| lock.kind.rules().waits_in_store()) {
            Some(place) => {
                let channel = queues::channel_of(&lock.name, place);
                Subscription::of(join(&channel), Delivery::Live)
            }
            // Nobody tells one that has no place.
            None if lock.kind.rules().waits_in_store() => {
                Subscription::of(join(&lock.name), Delivery::Polling)
            }
            None => Subscription::of(join(&lock.name), Delivery::Live),
        }
    }

    fn check(&self, _deadline: Instant) -> Result<Vec<HealthWarning>> {
        Ok(Vec::new())
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn node(&self, _lock: Option<&str>) -> Arc<str> {
        NODE.into()
    }
}

/// The outcome of a request on the hold of `claim` whose answer a test lost.
fn not_known<D, R>(claim: &Claim, operation: &'static str) -> Result<Outcome<D, R>> {
    let error = no_answer(&claim.name, Some(&claim.visitor), operation);
    Ok(Outcome::unknown(claim.in_doubt(0), error))
}

fn unreachable(lock: &Arc<str>, reason: &str) -> Error {
    Error::Unreachable {
        lock: Arc::clone(lock),
        node: NODE.into(),
        reason: reason.to_owned(),
        source: None,
    }
}

fn no_answer(lock: &Arc<str>, visitor: Option<&VisitorId>, operation: &'static str) -> Error {
    Error::unknown(lock, NODE, operation, visitor, "a test lost its answer")
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}
