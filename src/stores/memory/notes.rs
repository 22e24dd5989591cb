//! The turns of those who wait for a read-write lock: writers in the order in which they came, and readers after each of them.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use super::world::{Note, Notes, State, Window};
use crate::ground::claim::{COUNTS_AS_WAITING, Claim, Kind, Queueing, VisitorId};
use crate::ground::clock::BootInstant;

/// A visitor that is turned away for the turn of another looks again after this time, whatever messages come.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

/// So long notes stand behind the last look of a writer, and of a reader.
const KEPT: Duration = Duration::from_secs(9);
const KEPT_FOR_READERS: Duration = Duration::from_secs(3);

/// With so many notes it is time to look for those that are of no use.
const LEAST_SWEPT: usize = 256;

/// Why a visitor does not get a lock: the one before it, until when that is, and the word that it is to come back with.
pub(super) struct TurnedAway {
    pub(super) holder: Option<VisitorId>,
    pub(super) ends: BootInstant,
    pub(super) memo: Option<Box<str>>,
}

/// The writer behind which a reader was told to come.
fn told(memo: &Option<Box<str>>) -> Option<u64> {
    memo.as_ref()?.parse().ok()
}

impl Notes {
    /// The live writer that came first, of those that came before.
    fn first(&self, now: BootInstant, before: Option<u64>) -> Option<&Note> {
        let came_before = |it: &&Note| before.is_none_or(|before| it.came < before);
        let mut writers = self.writers.iter().filter(came_before);
        writers.find(|it| now < it.ends)
    }

    fn came(&self, visitor: &VisitorId) -> Option<u64> {
        let mut writers = self.writers.iter();
        writers.find(|it| it.visitor == *visitor).map(|it| it.came)
    }

    /// Notes that a reader was turned away that waits, behind a writer of which it may not have been told since the last one
    /// left the lock to readers.
    fn turn_away(&mut self, claim: &Claim, now: BootInstant, behind: u64) {
        if let Queueing::Waits { need, memo, .. } = &claim.queueing {
            let is_after = |told| self.window.is_none_or(|it| told > it.behind);
            let is_told = told(memo).is_some_and(|told| told == behind || is_after(told));
            let is_more = self.turned.is_none() || !is_told;
            let (longest, count) = self.turned.unwrap_or_default();
            self.turned = Some((longest.max(*need), count + u64::from(is_more)));
            self.ends = self.ends.max(Some(now + KEPT_FOR_READERS));
        }
    }

    /// Notes that a reader has come that was told to come behind a writer.
    fn has_come(&mut self, behind: u64) {
        match (&mut self.window, &mut self.turned) {
            (Some(window), _) if behind == window.behind && window.due > 0 => window.due -= 1,
            (Some(window), _) if behind < window.behind => {}
            // It was not waited for: the writer has given up.
            (_, Some((_, count))) if *count > 1 => *count -= 1,
            (_, turned) => *turned = None,
        }
    }

    /// Until when a free lock is still kept for readers.
    fn kept_until(&self, now: BootInstant) -> Option<BootInstant> {
        let window = self.window.filter(|it| it.due > 0 && now < it.ends);
        window.map(|it| it.ends)
    }

    /// Whether nothing is noted. Then no writer that comes in begins a phase.
    fn are_empty(&self) -> bool {
        let has_none = self.writers.is_empty() && self.turned.is_none() && self.window.is_none();
        has_none && self.phase == 0
    }

    fn are_over(&self, now: BootInstant) -> bool {
        self.ends.is_none_or(|ends| ends <= now)
    }
}

impl State {
    /// Whether it is not the turn of a visitor to take a lock that it could take.
    pub(super) fn waits_its_turn(&mut self, claim: &Claim, now: BootInstant) -> Option<TurnedAway> {
        let is_free = !self.sides.contains_key(&claim.name);
        let notes = self.notes.get_mut(&claim.name);
        let notes = notes.filter(|it| !it.are_over(now))?;
        let ends = now + LOOKS_AGAIN;
        let window = notes.kept_until(now);
        match (claim.kind, &claim.queueing) {
            (_, Queueing::Barges) => None,
            (Kind::Write, queueing) => {
                let first = notes.first(now, notes.came(&claim.visitor));
                let holder = first.map(|it| it.visitor.clone());
                let waits = matches!(queueing, Queueing::Waits { .. });
                let window = window.filter(|_| waits);
                let ends = if holder.is_some() { Some(ends) } else { window };
                ends.map(|ends| TurnedAway {
                    holder,
                    ends,
                    memo: None,
                })
            }
            // A free lock is kept for readers for a while behind a writer.
            _ if is_free && window.is_some() => None,
            (_, queueing) => {
                let first = notes.first(now, None)?.visitor.clone();
                let behind = notes.phase + 1;
                // A reader is turned away in the phase in which it first asked, and once.
                if let Queueing::Waits { memo, .. } = queueing
                    && memo.is_some()
                    && told(memo) != Some(behind)
                {
                    return None;
                }
                notes.turn_away(claim, now, behind);
                Some(TurnedAway {
                    holder: Some(first),
                    ends,
                    memo: Some(behind.to_string().into()),
                })
            }
        }
    }

    /// Notes that a visitor was refused that waits. Returns behind which writer it comes, if it reads.
    pub(super) fn note_waiting(&mut self, claim: &Claim, now: BootInstant) -> Option<Box<str>> {
        let Queueing::Waits { takes_place, .. } = claim.queueing else {
            return None;
        };
        if claim.kind == Kind::Write && !takes_place {
            return None;
        }
        // Amortised: until the next time they have doubled.
        if self.notes.len() >= LEAST_SWEPT && self.notes.len().is_power_of_two() {
            self.notes.retain(|_, it| !it.are_over(now));
        }
        let notes = self.notes.entry(Arc::clone(&claim.name)).or_default();
        if notes.are_over(now) {
            *notes = Notes::default();
        }
        if claim.kind == Kind::Read {
            let behind = notes.phase;
            notes.turn_away(claim, now, behind);
            return Some(behind.to_string().into());
        }
        notes.ends = notes.ends.max(Some(now + KEPT));
        let ends = now + COUNTS_AS_WAITING;
        match notes
            .writers
            .iter_mut()
            .find(|it| it.visitor == claim.visitor)
        {
            Some(noted) => noted.ends = ends,
            None => {
                notes.next += 1;
                notes.writers.push(Note {
                    visitor: claim.visitor.clone(),
                    came: notes.next,
                    ends,
                });
            }
        }
        None
    }

    /// Notes that a visitor has the lock to read that may have waited for it.
    pub(super) fn note_reader(&mut self, claim: &Claim) {
        if let Queueing::Waits { memo, .. } = &claim.queueing
            && let (Some(behind), Some(notes)) = (told(memo), self.notes.get_mut(&claim.name))
        {
            notes.has_come(behind);
        }
    }

    /// Notes that a writer is in.
    pub(super) fn note_writer(&mut self, claim: &Claim, now: BootInstant) {
        if let Some(notes) = self.notes.get_mut(&claim.name) {
            notes.phase += 1;
            notes
                .writers
                .retain(|it| it.visitor != claim.visitor && now < it.ends);
        }
    }

    /// Leaves the lock to readers that were turned away, behind a writer.
    pub(super) fn open_window(&mut self, name: &str, now: BootInstant) {
        let Some(notes) = self.notes.get_mut(name) else {
            return;
        };
        if let Some((open, due)) = notes.turned.take() {
            notes.window = Some(Window {
                ends: now + open,
                behind: notes.phase,
                due,
            });
        }
    }

    /// Forgets a writer that waits no more. Returns whether it was noted.
    pub(super) fn forget_writer(&mut self, name: &str, visitor: &VisitorId) -> bool {
        let Some(notes) = self.notes.get_mut(name) else {
            return false;
        };
        let before = notes.writers.len();
        notes.writers.retain(|it| it.visitor != *visitor);
        let was_noted = notes.writers.len() < before;
        if notes.are_empty() {
            self.notes.remove(name);
        }
        was_noted
    }
}
