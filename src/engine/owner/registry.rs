//! The living threads that ever used a lock, and the owners that are no threads, by number.
//!
//! A fork may catch the mutex locked by a thread that the child does not have: then the child lists none of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use crate::engine::owner::Owner;

type Owners = BTreeMap<u64, Weak<Owner>>;

struct Registry {
    /// The process that uses it; 0 for none yet.
    pid: AtomicU32,
    owners: Mutex<Owners>,
}

static REGISTRY: Registry = Registry {
    pid: AtomicU32::new(0),
    owners: Mutex::new(BTreeMap::new()),
};

impl Registry {
    /// The owners of process `pid`; `None` if a fork caught them locked, so that they are not found by their numbers.
    fn of(&self, pid: u32) -> Option<MutexGuard<'_, Owners>> {
        if [0, pid].contains(&self.pid.load(Ordering::Acquire)) {
            let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
            self.pid.store(pid, Ordering::Release);
            return Some(owners);
        }
        let mut owners = match self.owners.try_lock() {
            Ok(owners) => owners,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.pid.swap(pid, Ordering::AcqRel) != pid {
            // They are of another process.
            std::mem::forget(std::mem::take(&mut *owners));
        }
        Some(owners)
    }
}

pub(super) fn insert(owner: &Arc<Owner>) {
    if let Some(mut owners) = REGISTRY.of(owner.pid) {
        owners.insert(owner.id, Arc::downgrade(owner));
    }
}

pub(super) fn find(pid: u32, id: u64) -> Option<Arc<Owner>> {
    REGISTRY.of(pid)?.get(&id)?.upgrade()
}

/// Takes out the owner of this number that has ended, if it was listed.
pub(super) fn remove(pid: u32, id: u64) {
    if let Some(mut owners) = REGISTRY.of(pid)
        && owners.get(&id).is_some_and(|it| it.strong_count() == 0)
    {
        owners.remove(&id);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_listed_under_its_process_as_long_as_it_lives() {
        let pid = crate::ground::process::id();
        let owner = Owner::without_thread(pid);
        let id = owner.id;
        let is_listed = || REGISTRY.of(pid).is_some_and(|it| it.contains_key(&id));
        assert!(is_listed() && find(pid, id).is_some_and(|it| Arc::ptr_eq(&it, &owner)));
        drop(owner);
        assert!(!is_listed() && find(pid, id).is_none());
    }

    #[test]
    fn a_process_that_adopts_a_registry_finds_none_of_another_process_in_it() {
        let registry = Registry {
            pid: AtomicU32::new(0),
            owners: Mutex::default(),
        };
        registry.of(1).unwrap().insert(7, Weak::new());
        assert_eq!(registry.of(1).unwrap().len(), 1);
        assert!(registry.of(2).unwrap().is_empty());
        // One that a fork has caught locked is nobody's.
        let _locked = registry.owners.lock();
        assert!(registry.of(3).is_none());
    }
}
