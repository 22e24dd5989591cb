//! The current holds of one owner, and its lost holds that were not yet unlocked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::engine::hold::Hold;
use crate::ground::claim::{Kind, LockId};
use crate::ground::sync::Mutex;

#[derive(Debug, Default)]
pub(crate) struct OwnerHolds {
    pub(super) stacks: Mutex<ByName>,
    /// Maps each member of a `MultiLock` to the `MultiLock` that last held the member.
    pub(super) parts: Mutex<HashMap<LockKey, LockKey>>,
}

#[derive(Debug, Default)]
pub(super) struct ByName {
    /// A tree, because a hash map takes more memory per hold, and more time if there are few holds.
    pub(super) stacks: BTreeMap<LockKey, Stack>,
    /// The number of holds that the owner began. It may wrap around.
    begun: u32,
    /// When `stacks` has this many entries, `push` removes the old entries.
    pub(super) sweep_at: usize,
}

/// An owner keeps the last lost hold of a lock until an unlock, or until at least this many later holds have begun.
pub(super) const LOSSES_KEPT: u32 = 256;

/// If `stacks` has fewer entries than this, `push` removes no old entries.
pub(super) const LEAST_SWEPT: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LockKey {
    pub(crate) client: u64,
    pub(crate) lock: LockId,
}

impl LockKey {
    pub(crate) fn other_side(&self) -> Option<LockKey> {
        let side = self.lock.kind.rules().side?;
        let (kind, name) = (side.other, Arc::clone(&self.lock.name));
        let lock = LockId { kind, name };
        Some(LockKey { lock, ..*self })
    }

    /// The locks that exclude this lock: the opposite side of a read-write lock, and other kinds with the same key.
    pub(super) fn kin(&self) -> impl Iterator<Item = LockKey> {
        const SAME_KEY: [Kind; 3] = [Kind::Reentrant, Kind::Fenced, Kind::Fair];
        let LockId { kind, name } = &self.lock;
        let has_kin = SAME_KEY.contains(kind);
        let others = SAME_KEY.iter().filter(move |it| has_kin && *it != kind);
        let key_of = |kind: &Kind| {
            let (kind, name) = (*kind, Arc::clone(name));
            let lock = LockId { kind, name };
            LockKey { lock, ..*self }
        };
        self.other_side().into_iter().chain(others.map(key_of))
    }
}

#[derive(Debug, Default)]
pub(super) struct Stack {
    /// The owner numbers its holds. This is the number of the last hold of this stack.
    began: u32,
    /// The hold that `lock()` re-enters and `unlock()` releases.
    current: Option<Arc<Hold>>,
    /// The number of levels of lost holds that were not yet unlocked. An `unlock()` without a current hold uses up one
    /// level. Only the last lost hold is kept, so that a program that never unlocks does not leak memory.
    lapsed: u32,
    last_lost: Option<Arc<Hold>>,
}

impl OwnerHolds {
    pub(crate) fn current(&self, key: &LockKey) -> Option<Arc<Hold>> {
        self.stacks.lock().stacks.get(key)?.current.clone()
    }

    /// Returns the name of a held lock that overlaps with the lock `key`: they have a member in common, or members that
    /// exclude each other. `parts` are the members of a `MultiLock`. Every other lock has one member: itself.
    pub(crate) fn overlapping(&self, key: &LockKey, parts: Option<&[LockKey]>) -> Option<Arc<str>> {
        let whole_of = self.parts.lock();
        if parts.is_none() && whole_of.is_empty() {
            return None;
        }
        let mine = parts.unwrap_or(std::slice::from_ref(key)).iter();
        let mine = mine.flat_map(|part| std::iter::once(part.clone()).chain(part.kin()));
        let mut held = mine.filter_map(|part| match whole_of.get(&part) {
            Some(whole) if whole != key && self.stands(whole) => Some(Arc::clone(&whole.lock.name)),
            _ if parts.is_some() && self.stands(&part) => Some(Arc::clone(&part.lock.name)),
            _ => None,
        });
        held.next()
    }

    pub(crate) fn stands(&self, key: &LockKey) -> bool {
        let current = self.current(key);
        current.is_some_and(|hold| hold.excludes_overlap())
    }

    /// Makes `hold` the current hold of its stack. If the stack already has a current hold, the old hold was lost.
    pub(crate) fn push(&self, key: &LockKey, parts: Option<&Arc<[LockKey]>>, hold: Arc<Hold>) {
        if let Some(parts) = parts {
            let mut whole_of = self.parts.lock();
            whole_of.retain(|_, whole| self.stands(whole));
            whole_of.extend(parts.iter().map(|part| (part.clone(), key.clone())));
        }
        // Dropped after the mutex is unlocked, because the end of a hold's tracing span calls the user's subscriber.
        let _forgotten;
        let mut by_name = self.stacks.lock();
        by_name.begun = by_name.begun.wrapping_add(1);
        let began = by_name.begun;
        if by_name.stacks.len() >= by_name.sweep_at {
            _forgotten = by_name.sweep();
        }
        let stack = by_name.stacks.entry(key.clone()).or_default();
        stack.began = began;
        if let Some(lost) = stack.current.replace(hold) {
            stack.lapsed = stack.lapsed.saturating_add(lost.count());
            stack.last_lost = Some(lost);
        }
    }

    pub(crate) fn remove_if_released(&self, key: &LockKey, hold: &Arc<Hold>) {
        let stacks = &mut self.stacks.lock().stacks;
        if let Some(stack) = stacks.get_mut(key) {
            if stack.is_of(hold) && hold.count() == 0 {
                stack.current = None;
            }
            if stack.is_empty() {
                stacks.remove(key);
            }
        }
    }

    /// Called when a level of the lost `hold` is unlocked. `lapsed` counts the levels of `hold` only after a `push`.
    pub(crate) fn remove_lapsed_level(&self, key: &LockKey, hold: &Arc<Hold>) {
        let stacks = &mut self.stacks.lock().stacks;
        if let Some(stack) = stacks.get_mut(key).filter(|stack| !stack.is_of(hold)) {
            stack.lapsed = stack.lapsed.saturating_sub(1);
            if stack.is_empty() {
                stacks.remove(key);
            }
        }
    }

    pub(crate) fn take_lapsed(&self, key: &LockKey) -> Option<Arc<Hold>> {
        let stacks = &mut self.stacks.lock().stacks;
        let stack = stacks.get_mut(key)?;
        stack.lapsed = stack.lapsed.checked_sub(1)?;
        let lost = stack.last_lost.clone();
        if let Some(lost) = &lost {
            lost.remove_lost_level();
        }
        if stack.is_empty() {
            stacks.remove(key);
        }
        lost
    }
}

impl ByName {
    /// Called when the number of names has doubled since the last call, so that the amortised cost is constant.
    fn sweep(&mut self) -> Vec<Stack> {
        let mut forgotten = Vec::new();
        let begun = self.begun;
        self.stacks.retain(|_, stack| {
            let current = stack.current.as_ref();
            let is_over = current.is_none_or(|hold| !hold.excludes_overlap());
            let goes = is_over && begun.wrapping_sub(stack.began) > LOSSES_KEPT;
            if goes {
                forgotten.push(std::mem::take(stack));
            }
            !goes
        });
        self.sweep_at = (self.stacks.len() * 2).max(LEAST_SWEPT);
        forgotten
    }
}

impl Stack {
    fn is_of(&self, hold: &Arc<Hold>) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| Arc::ptr_eq(current, hold))
    }

    fn is_empty(&self) -> bool {
        self.current.is_none() && self.lapsed == 0
    }
}
