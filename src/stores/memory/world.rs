//! The state that the clients of one in-memory world share.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{NODE, unreachable};
use crate::ground::claim::{Form, Kind, VisitorId};
use crate::ground::clock::{BootInstant, Timeline};
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::ground::notify::Notifier;
use crate::ground::sync::Mutex;

/// Fewer holds than these are not worth a look for those that have ended.
const LEAST_SWEPT: usize = 256;

/// The locks that several clients of one process share, as several processes share one server.
pub(crate) struct World {
    pub(super) state: Mutex<State>,
    pub(super) timeline: Timeline,
}

impl Default for World {
    fn default() -> World {
        World {
            state: Mutex::default(),
            timeline: Timeline::of_a_world(),
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) holds: HashMap<Arc<str>, Entry>,
    pub(super) counters: HashMap<Arc<str>, Counter>,
    pub(super) sides: HashMap<Arc<str>, Sides>,
    pub(super) notes: HashMap<Arc<str>, Notes>,
    pub(super) places: HashMap<(Arc<str>, Arc<str>), Vec<Place>>,
    /// Those who wait for fair locks.
    pub(super) lines: HashMap<Arc<str>, VecDeque<InLine>>,
    /// With so many holds it is time to look for those that have ended.
    pub(super) sweep_at: usize,
    pub(super) clients: Vec<Weak<Notifier>>,
    /// The last fencing token of any lock.
    last_fence: u64,
    pub(super) faults: Faults,
}

pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) visitor: VisitorId,
    pub(super) count: u32,
    pub(super) ends: BootInstant,
}

/// A number that several share, and when it ends, if it does.
pub(super) struct Counter {
    pub(super) count: i64,
    pub(super) ends: Option<BootInstant>,
    /// The owners of what was taken from it, and the ends of their leases.
    pub(super) owners: Vec<(VisitorId, BootInstant)>,
}

/// A read-write lock that somebody has.
pub(super) struct Sides {
    /// Whether it is a writer's; those who read beside it read inside it.
    pub(super) is_written: bool,
    /// The longest of its holds.
    pub(super) ends: BootInstant,
    pub(super) holds: Vec<SideHold>,
}

/// Those who wait for a read-write lock.
#[derive(Default)]
pub(super) struct Notes {
    /// Those who wait to write, in the order in which they came.
    pub(super) writers: Vec<Note>,
    /// The number of writers that were in, and of those that came.
    pub(super) phase: u64,
    pub(super) next: u64,
    /// How long the farthest reader that was turned away needs to come, and how many these are.
    pub(super) turned: Option<(Duration, u64)>,
    pub(super) window: Option<Window>,
    /// When they are of no use any more.
    pub(super) ends: Option<BootInstant>,
}

/// The time in which writers leave a free lock to readers.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) ends: BootInstant,
    /// The writer behind which it is.
    pub(super) behind: u64,
    /// The readers that have not come yet, of which the last ends it.
    pub(super) due: u64,
}

/// One that waits to write, and until when it counts.
pub(super) struct Note {
    pub(super) visitor: VisitorId,
    pub(super) came: u64,
    pub(super) ends: BootInstant,
}

/// The place of one that waits on a condition, until it has heard that it was signalled.
pub(super) struct Place {
    pub(super) ticket: VisitorId,
    /// It looks before this, or is dead.
    pub(super) due: BootInstant,
    pub(super) is_signalled: bool,
}

/// One that waits for a fair lock.
pub(super) struct InLine {
    pub(super) visitor: VisitorId,
    /// Since when it neither looks nor listens, as far as others have seen while the lock was free.
    pub(super) absent_since: Option<BootInstant>,
}

/// One hold of a side.
pub(super) struct SideHold {
    pub(super) kind: Kind,
    pub(super) visitor: VisitorId,
    pub(super) count: u32,
    pub(super) ends: BootInstant,
}

/// The faults that a test has asked for.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) renewals_to_drop: u32,
    pub(crate) messages_to_lose: u32,
    pub(crate) answers_to_lose: u32,
    pub(crate) is_silent: bool,
}

impl Faults {
    /// Whether the answer to a request that was executed is lost.
    fn loses_the_answer(&mut self) -> bool {
        let is_lost = self.answers_to_lose > 0;
        self.answers_to_lose -= u32::from(is_lost);
        is_lost
    }
}

/// A step whose answer is lost if a test wants that.
fn answered<T>(step: impl FnOnce(&mut State) -> T) -> impl FnOnce(&mut State) -> Option<T> {
    |state| {
        let answer = step(state);
        (!state.faults.loses_the_answer()).then_some(answer)
    }
}

impl World {
    /// Runs `step` on the state as it stands now, expired holds gone; an error while the world is told to be silent.
    pub(super) fn with<T>(
        &self,
        kind: Kind,
        lock: &Arc<str>,
        step: impl FnOnce(&mut State) -> T,
    ) -> Result<T> {
        self.with_any(lock, |state| {
            let form = kind.rules().form;
            if state.form_of(lock).is_some_and(|it| it != form) {
                return Err(Error::WrongType {
                    lock: Arc::clone(lock),
                    node: NODE.into(),
                    reason: "a lock of another kind".to_owned(),
                });
            }
            Ok(step(state))
        })?
    }

    /// The same whatever kind of lock stands there.
    pub(super) fn with_any<T>(
        &self,
        lock: &Arc<str>,
        step: impl FnOnce(&mut State) -> T,
    ) -> Result<T> {
        let mut state = self.state.lock();
        if state.faults.is_silent {
            return Err(unreachable(lock, "a test told it to be silent"));
        }
        if state
            .holds
            .get(lock)
            .is_some_and(|entry| entry.ends <= self.timeline.now())
        {
            state.holds.remove(lock);
        }
        let has_ended = |it: &Counter| it.ends.is_some_and(|ends| ends <= self.timeline.now());
        if state.counters.get(lock).is_some_and(has_ended) {
            state.counters.remove(lock);
        }
        let has_ended = |it: &Sides| it.ends <= self.timeline.now();
        if state.sides.get(lock).is_some_and(has_ended) {
            state.sides.remove(lock);
        }
        Ok(step(&mut state))
    }

    /// Whether a lock of this form, and what stands there, are both hashes of visitors in Redis.
    pub(super) fn is_hash(&self, form: Form, lock: &str) -> bool {
        let is_hash = |form| matches!(form, Form::Hash | Form::ReadWrite);
        is_hash(form) && self.state.lock().form_of(lock).is_some_and(is_hash)
    }

    /// Runs `step` as [`World::with`] does; what it says is lost if a test wants that, and becomes `unknown`.
    pub(super) fn ask<T>(
        &self,
        kind: Kind,
        lock: &Arc<str>,
        unknown: impl FnOnce() -> Result<T>,
        step: impl FnOnce(&mut State) -> T,
    ) -> Result<T> {
        let answer = self.with(kind, lock, answered(step))?;
        answer.map_or_else(unknown, Ok)
    }

    /// The same whatever kind of lock stands there.
    pub(super) fn ask_any<T>(
        &self,
        lock: &Arc<str>,
        unknown: impl FnOnce() -> Result<T>,
        step: impl FnOnce(&mut State) -> T,
    ) -> Result<T> {
        let answer = self.with_any(lock, answered(step))?;
        answer.map_or_else(unknown, Ok)
    }

    /// Takes away the hold of the first of these names that has one, and returns whether one had.
    #[cfg(feature = "test-util")]
    pub(crate) fn expire(&self, names: [&str; 2]) -> bool {
        let mut state = self.state.lock();
        let now = self.timeline.now();
        let mut ended = names.iter().filter_map(|name| {
            let hold = state.holds.remove(*name).map(|it| it.ends);
            hold.or(state.sides.remove(*name).map(|it| it.ends))
        });
        ended.any(|ends| now < ends)
    }

    /// Sets the clock ahead, by which leases end, waits are over, and renewals fall due.
    #[cfg(feature = "test-util")]
    pub(crate) fn advance(&self, by: Duration) {
        self.timeline.advance(by);
    }

    /// Has something fail.
    #[cfg(feature = "test-util")]
    pub(crate) fn fail(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state.lock().faults);
    }
}

impl State {
    /// The form of what stands there.
    fn form_of(&self, name: &str) -> Option<Form> {
        let hold = self.holds.get(name).map(|it| it.kind.rules().form);
        let sides = self.sides.get(name).map(|_| Form::ReadWrite);
        let counter = self.counters.get(name).map(|_| Form::Number);
        hold.or(sides).or(counter)
    }

    /// The hold of `visitor`, or why there is none.
    pub(super) fn hold_of(
        &mut self,
        name: &str,
        visitor: &VisitorId,
    ) -> Result<&mut Entry, LossCause> {
        match self.holds.get_mut(name) {
            Some(entry) if entry.visitor == *visitor => Ok(entry),
            Some(entry) => Err(LossCause::HeldBy(entry.visitor.to_string())),
            None => Err(LossCause::Gone),
        }
    }

    /// Draws the fencing token of a hold of this kind, if it has one.
    pub(super) fn draw_fence(&mut self, kind: Kind) -> Option<u64> {
        kind.rules().is_fenced.then(|| {
            self.last_fence += 1;
            self.last_fence
        })
    }

    pub(super) fn put(&mut self, name: &Arc<str>, entry: Entry, now: BootInstant) {
        // Amortised: until the next time they have to double.
        if self.holds.len() >= self.sweep_at {
            self.holds.retain(|_, entry| now < entry.ends);
            self.sweep_at = (self.holds.len() * 2).max(LEAST_SWEPT);
            self.holds.shrink_to(self.sweep_at);
        }
        self.holds.insert(Arc::clone(name), entry);
    }

    pub(super) fn free(&mut self, kind: Kind, name: &str) {
        self.holds.remove(name);
        match kind.rules().waits_in_store() {
            true => self.tell_first(name),
            // One waiter of each client, as one message wakes one waiter of each process.
            false => self.wake(name, 1),
        }
    }

    /// Wakes so many waiters of each client.
    pub(super) fn wake(&mut self, name: &str, most: usize) {
        if self.faults.messages_to_lose > 0 {
            self.faults.messages_to_lose -= 1;
            return;
        }
        self.clients.retain(|client| client.strong_count() > 0);
        for client in self.clients.iter().filter_map(Weak::upgrade) {
            client.release(name, most);
        }
    }
}
