//! Read-write locks: several readers, or one writer, whose thread may read inside.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use super::notes::TurnedAway;
use super::world::{SideHold, Sides, State};
use super::{Memory, not_known};
use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::Result;
use crate::ground::loss::LossCause;
use crate::store::{Granted, Holding, InDoubt, Outcome, Refusal, Released, Renewal};

/// A reader that ends so long before the lock is not the one whose end that is.
const LEAST_DIFFERENCE: Duration = Duration::from_secs(1);

impl Sides {
    fn hold_of(&mut self, visitor: &VisitorId) -> Option<&mut SideHold> {
        self.holds.iter_mut().find(|it| it.visitor == *visitor)
    }

    /// The writer, or else a reader.
    fn holder(&self) -> Option<&VisitorId> {
        let writer = self.holds.iter().find(|it| it.kind == Kind::Write);
        writer.or(self.holds.first()).map(|it| &it.visitor)
    }

    fn lengthen(&mut self) {
        let longest = self.holds.iter().map(|it| it.ends).max();
        self.ends = longest.map_or(self.ends, |ends| ends.max(self.ends));
    }

    /// Takes away what is over by now. A writer that is over leaves the lock to those who read inside it. Returns whether
    /// anybody is left, and whether others may read from now on.
    fn settle(&mut self, now: BootInstant) -> (bool, bool) {
        self.holds.retain(|it| now < it.ends);
        let is_written = self.holds.iter().any(|it| it.kind == Kind::Write);
        let opens = std::mem::replace(&mut self.is_written, is_written) && !is_written;
        if let Some(longest) = self.holds.iter().map(|it| it.ends).max() {
            self.ends = longest;
        }
        (!self.holds.is_empty(), opens)
    }
}

impl Memory {
    /// Takes a side, or enters it once more.
    pub(super) fn take_side(&self, claim: &Claim) -> Result<Outcome<Granted, Refusal>> {
        let now = self.world.timeline.now();
        let unknown = || not_known(claim, "acquire");
        if claim.count > 0 {
            return self.ask_held(claim, unknown, Outcome::Gone, |state| {
                match state.side_of(claim, now) {
                    Ok(hold) => {
                        hold.count = claim.count.saturating_add(1);
                        hold.ends = hold.ends.max(now + claim.lease);
                        state.lengthen_sides(&claim.name);
                        Outcome::Done(Granted::at(now))
                    }
                    Err(cause) => Outcome::Gone(cause),
                }
            });
        }
        self.world.ask(claim.kind, &claim.name, unknown, |state| {
            match state.enter_side(claim, now) {
                Ok(()) => Outcome::Done(Granted::at(now)),
                Err(TurnedAway { holder, ends, memo }) => Outcome::Refused(Refusal {
                    retry_after: Some(now.until(ends)),
                    holder: holder.map(|it| it.as_str().into()),
                    memo,
                    ..Refusal::default()
                }),
            }
        })
    }

    /// Gives levels of a side back; with `keep` of 0 the whole hold.
    pub(super) fn leave_side(&self, claim: &Claim, keep: u32) -> Result<Outcome<Released>> {
        let now = self.world.timeline.now();
        let unknown = || not_known(claim, "release");
        self.ask_held(claim, unknown, Outcome::Gone, |state| {
            if keep == 0 {
                return match state.drop_side(&claim.name, &claim.visitor, now) {
                    Ok(_) => Outcome::Done(Released {
                        others_wait: claim.kind == Kind::Write
                            && self.others_wait(state, &claim.name),
                        ..Released::default()
                    }),
                    Err(cause) => Outcome::Gone(cause),
                };
            }
            match state.side_of(claim, now) {
                Ok(hold) => {
                    hold.count = keep;
                    hold.ends = now + claim.lease;
                    state.settle_sides(&claim.name, now);
                    Outcome::Done(Released::default())
                }
                Err(cause) => Outcome::Gone(cause),
            }
        })
    }

    pub(super) fn force_release_side(&self, lock: &LockId, state: &mut State) -> bool {
        let is_asked = |it: &Sides| it.is_written == (lock.kind == Kind::Write);
        let is_held = state.sides.get(&lock.name).is_some_and(is_asked);
        if is_held {
            state.sides.remove(&lock.name);
            if lock.kind == Kind::Write {
                state.open_window(&lock.name, self.world.timeline.now());
            }
            state.wake(&lock.name, usize::MAX);
        }
        is_held
    }

    pub(super) fn inspect_side(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        state: &mut State,
    ) -> Holding {
        let now = self.world.timeline.now();
        let is_asked = |it: &&mut Sides| match lock.kind {
            Kind::Write => it.is_written,
            // Who writes may read inside.
            _ => !it.is_written || it.holds.len() > 1,
        };
        let Some(sides) = state.sides.get_mut(&lock.name).filter(is_asked) else {
            return Holding::default();
        };
        let hold = visitor.and_then(|visitor| sides.hold_of(visitor));
        let hold = hold.filter(|it| it.kind == Kind::Write || now < it.ends);
        Holding {
            is_locked: true,
            count: hold.map_or(0, |it| it.count),
            remaining: Some(now.until(sides.ends)),
        }
    }
}

impl State {
    /// The hold of a visitor that is not over, or why there is none.
    fn side_of(&mut self, claim: &Claim, now: BootInstant) -> Result<&mut SideHold, LossCause> {
        let sides = self.sides.get_mut(&claim.name).ok_or(LossCause::Gone)?;
        let holder = sides.holder().map(ToString::to_string);
        match sides.hold_of(&claim.visitor) {
            Some(hold) if now < hold.ends => Ok(hold),
            Some(_) => Err(LossCause::Gone),
            None => Err(holder.map_or(LossCause::Gone, LossCause::HeldBy)),
        }
    }

    /// Begins a hold; if others have the lock, who and until when.
    fn enter_side(&mut self, claim: &Claim, now: BootInstant) -> Result<(), TurnedAway> {
        let is_mine = |it: &mut Sides| it.hold_of(&claim.visitor).is_some();
        let is_open = |it: &mut Sides| claim.kind == Kind::Read && !it.is_written || is_mine(it);
        let is_open = self.sides.get_mut(&claim.name).map(is_open);
        if is_open != Some(false)
            && !self.sides.get_mut(&claim.name).is_some_and(is_mine)
            && let Some(turned_away) = self.waits_its_turn(claim, now)
        {
            if claim.kind == Kind::Write {
                self.note_waiting(claim, now);
            }
            return Err(turned_away);
        }
        let (reads, ends) = (claim.kind == Kind::Read, now + claim.lease);
        let fresh = || Sides {
            is_written: !reads,
            ends,
            holds: Vec::new(),
        };
        let sides = self.sides.entry(Arc::clone(&claim.name));
        let sides = sides.or_insert_with(fresh);
        let has_inside = |sides: &mut Sides| {
            let inside = claim.inside.as_ref();
            inside.is_some_and(|inside| sides.hold_of(inside).is_some())
        };
        let is_first = sides.holds.is_empty();
        let is_in = sides.hold_of(&claim.visitor).is_some();
        let may_read = reads && (!sides.is_written || has_inside(sides));
        if !(is_first || is_in || may_read) {
            let (holder, ends) = (sides.holder().cloned(), sides.ends);
            let memo = self.note_waiting(claim, now);
            let memo = memo.or_else(|| reads.then(|| "-".into()));
            return Err(TurnedAway { holder, ends, memo });
        }
        let was_written = sides.is_written;
        match sides.hold_of(&claim.visitor) {
            // The same request once more.
            Some(hold) => hold.ends = hold.ends.max(ends),
            None => sides.holds.push(SideHold {
                kind: claim.kind,
                visitor: claim.visitor.clone(),
                count: 1,
                ends,
            }),
        }
        sides.lengthen();
        if reads && !is_in && !was_written {
            self.note_reader(claim);
        } else if !reads && is_first {
            self.note_writer(claim, now);
        }
        Ok(())
    }

    fn lengthen_sides(&mut self, name: &str) {
        if let Some(sides) = self.sides.get_mut(name) {
            sides.lengthen();
        }
    }

    fn settle_sides(&mut self, name: &str, now: BootInstant) {
        let Some(sides) = self.sides.get_mut(name) else {
            return;
        };
        let (is_held, opens) = sides.settle(now);
        if !is_held {
            self.sides.remove(name);
        }
        if !is_held || opens {
            self.wake(name, usize::MAX);
        }
    }

    /// Takes the hold of a visitor away.
    fn drop_side(
        &mut self,
        name: &str,
        visitor: &VisitorId,
        now: BootInstant,
    ) -> Result<(), LossCause> {
        let sides = self.sides.get_mut(name).ok_or(LossCause::Gone)?;
        let Some(at) = sides.holds.iter().position(|it| it.visitor == *visitor) else {
            let holder = sides.holder().map(ToString::to_string);
            return Err(holder.map_or(LossCause::Gone, LossCause::HeldBy));
        };
        let gone = sides.holds.remove(at);
        let wrote = gone.kind == Kind::Write;
        let left = now.until(gone.ends);
        let is_outlived = !sides.is_written
            && !left.is_zero()
            && left + LEAST_DIFFERENCE < now.until(sides.ends)
            && !sides.holds.is_empty();
        if wrote {
            self.open_window(name, now);
        }
        if !is_outlived {
            self.settle_sides(name, now);
        }
        Ok(())
    }

    /// Renews a hold, which is never shortened by that.
    pub(super) fn renew_side(&mut self, claim: &Claim, now: BootInstant) -> Renewal {
        match self.side_of(claim, now) {
            Ok(hold) => {
                hold.ends = hold.ends.max(now + claim.lease);
                self.lengthen_sides(&claim.name);
                Renewal::Renewed
            }
            Err(cause) => Renewal::Lost(cause),
        }
    }

    /// Frees what a request without an answer may have left of a side.
    pub(super) fn withdraw_side(&mut self, in_doubt: &InDoubt, now: BootInstant) {
        if self.forget_writer(&in_doubt.name, &in_doubt.visitor) {
            // Readers need not wait for it any more.
            self.wake(&in_doubt.name, usize::MAX);
        }
        let _ = self.drop_side(&in_doubt.name, &in_doubt.visitor, now);
    }
}
