//! The places of those who wait on a condition.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::world::{Place, State};
use super::{Memory, no_answer, unreachable};
use crate::ground::claim::{Form, Kind, LockId, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::store::{
    ConditionAnswer, ConditionOp, ConditionStep, InDoubt, Outcome, PLACE_LIFE, PlaceInDoubt,
};

/// A condition: the name of its lock, and its own.
pub(super) type ConditionKey = (Arc<str>, Arc<str>);

impl Memory {
    /// Carries out a step of one that waits on a condition, or signals it.
    pub(super) fn step(&self, op: &ConditionOp<'_>) -> Result<Outcome<ConditionAnswer>> {
        let ConditionOp { lock, step, .. } = op;
        let now = self.world.timeline.now();
        let unknown = || match step {
            ConditionStep::Look => Err(unreachable(&lock.name, "a test lost its answer")),
            ConditionStep::Signal(_) => Err(no_answer(&lock.name, None, step.name())),
            ConditionStep::Enlist(_) | ConditionStep::Leave => {
                let place = PlaceInDoubt {
                    condition: Arc::clone(op.condition),
                    was_told: matches!(step, ConditionStep::Leave),
                };
                let in_doubt = InDoubt::of_place(lock, op.visitor, place, 0);
                let error = no_answer(&lock.name, None, step.name());
                Ok(Outcome::unknown(in_doubt, error))
            }
        };
        let hold = match step {
            ConditionStep::Enlist(hold) => Some(*hold),
            ConditionStep::Signal(_) => Some(op.visitor),
            // Whatever stands under the name of the lock does not matter to a place.
            ConditionStep::Look | ConditionStep::Leave => None,
        };
        let carry_out = |state: &mut State| match hold.map(|hold| state.has(lock, hold)) {
            Some(Err(cause)) => Outcome::Gone(cause),
            _ => Outcome::Done(state.step(op, now)),
        };
        let asked = match hold {
            Some(_) => self.world.ask(lock.kind, &lock.name, unknown, carry_out),
            None => self.world.ask_any(&lock.name, unknown, carry_out),
        };
        match asked {
            Err(Error::WrongType { reason, .. }) => Ok(Outcome::Gone(LossCause::HeldBy(reason))),
            asked => asked,
        }
    }
}

/// The channel on which the one with this ticket hears of its signal.
pub(super) fn channel_of(lock: &str, condition: &str, ticket: &VisitorId) -> Arc<str> {
    format!("redlatch_condition:{lock}:{condition}:{ticket}").into()
}

impl State {
    /// Why a visitor has no hold of this lock, if it has none.
    fn has(&mut self, lock: &LockId, visitor: &VisitorId) -> Result<(), LossCause> {
        let LockId { kind, name } = lock;
        if kind.rules().form != Form::ReadWrite {
            return self.hold_of(name, visitor).map(|_| ());
        }
        let sides = self.sides.get(name).ok_or(LossCause::Gone)?;
        let mut holds = sides.holds.iter();
        match holds.find(|it| it.visitor == *visitor) {
            Some(hold) if hold.kind == Kind::Write => Ok(()),
            _ => Err(LossCause::Gone),
        }
    }

    fn step(&mut self, op: &ConditionOp<'_>, now: BootInstant) -> ConditionAnswer {
        let key: ConditionKey = (Arc::clone(&op.lock.name), Arc::clone(op.condition));
        match op.step {
            ConditionStep::Enlist(_) => {
                let places = self.places.entry(key).or_default();
                if !places.iter().any(|it| it.ticket == *op.visitor) {
                    places.push(Place {
                        ticket: op.visitor.clone(),
                        due: now + PLACE_LIFE,
                        is_signalled: false,
                    });
                }
                ConditionAnswer::Waits
            }
            ConditionStep::Look => self.look(&key, op.visitor, now),
            ConditionStep::Leave => match self.take_place(&key, op.visitor) {
                Some(place) if !place.is_signalled => ConditionAnswer::Left,
                _ => ConditionAnswer::Woken,
            },
            ConditionStep::Signal(most) => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                let woken = (0..most).take_while(|_| self.wake_first(&key, now));
                let woken = woken.count();
                ConditionAnswer::Signalled(u32::try_from(woken).unwrap_or(u32::MAX))
            }
        }
    }

    fn look(
        &mut self,
        key: &ConditionKey,
        ticket: &VisitorId,
        now: BootInstant,
    ) -> ConditionAnswer {
        let places = self.places.get_mut(key);
        let is_dead = |it: &mut Place| it.due <= now && it.ticket != *ticket;
        let dead = places.map(|places| places.extract_if(.., is_dead).collect::<Vec<_>>());
        // What the dead were told, the next one is told.
        for _ in dead.into_iter().flatten().filter(|it| it.is_signalled) {
            self.wake_first(key, now);
        }
        let places = self.places.get_mut(key);
        let mine = places.and_then(|places| places.iter_mut().find(|it| it.ticket == *ticket));
        match mine {
            Some(place) if !place.is_signalled => {
                place.due = now + PLACE_LIFE;
                ConditionAnswer::Waits
            }
            _ => {
                self.take_place(key, ticket);
                ConditionAnswer::Woken
            }
        }
    }

    /// Signals the one alive that has waited for longest, and takes the dead before it away. Returns whether there was one.
    fn wake_first(&mut self, key: &ConditionKey, now: BootInstant) -> bool {
        let Some(places) = self.places.get_mut(key) else {
            return false;
        };
        let mut at = 0;
        while let Some(place) = places.get_mut(at) {
            if place.is_signalled {
                at += 1;
            } else if place.due <= now {
                places.remove(at);
            } else {
                place.is_signalled = true;
                let channel = channel_of(&key.0, &key.1, &place.ticket);
                self.wake(&channel, 1);
                return true;
            }
        }
        false
    }

    fn take_place(&mut self, key: &ConditionKey, ticket: &VisitorId) -> Option<Place> {
        let places = self.places.get_mut(key)?;
        let at = places.iter().position(|it| it.ticket == *ticket);
        let place = at.map(|at| places.remove(at));
        if places.is_empty() {
            self.places.remove(key);
        }
        place
    }

    /// Gives up the place of a wait that has failed, and passes on the signal that its thread has got, or may have.
    pub(super) fn withdraw_place(
        &mut self,
        in_doubt: &InDoubt,
        place: &PlaceInDoubt,
        now: BootInstant,
    ) {
        let key = (Arc::clone(&in_doubt.name), Arc::clone(&place.condition));
        let left = self.take_place(&key, &in_doubt.visitor);
        if left.map_or(place.was_told, |it| it.is_signalled) {
            self.wake_first(&key, now);
        }
    }
}
