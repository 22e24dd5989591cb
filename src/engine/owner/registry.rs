//! The living threads that ever used a lock, and the owners that are no threads, by number.
//!
//! A fork may catch a mutex locked by a thread that the child does not have. So there are several registries; a process
//! uses those that it found open, and leaves the others alone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use crate::engine::owner::Owner;

type Threads = BTreeMap<u64, Weak<Owner>>;

struct Registry {
    /// The process that uses it; 0 for none yet.
    pid: AtomicU32,
    threads: Mutex<Threads>,
}

/// A child that was caught with one of them locked has one less for itself and its own children.
static REGISTRIES: [Registry; 16] = [const {
    Registry {
        pid: AtomicU32::new(0),
        threads: Mutex::new(BTreeMap::new()),
    }
}; 16];

/// The registries of process `pid`, open: more than one if several threads came first at once.
fn open(pid: u32) -> impl Iterator<Item = MutexGuard<'static, Threads>> {
    let mine = REGISTRIES
        .iter()
        .filter(move |registry| registry.pid.load(Ordering::Acquire) == pid);
    mine.map(|registry| registry.threads.lock())
        .map(|threads| threads.unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn insert(token: &Arc<Owner>) {
    let mut threads = open(token.pid).next().or_else(|| adopt(token.pid));
    // Without any a thread is only not found by its number.
    if let Some(threads) = &mut threads {
        threads.insert(token.id, Arc::downgrade(token));
    }
}

/// Makes one the registry of `pid` that nobody had locked.
fn adopt(pid: u32) -> Option<MutexGuard<'static, Threads>> {
    REGISTRIES.iter().find_map(|registry| registry.adopt(pid))
}

impl Registry {
    fn adopt(&self, pid: u32) -> Option<MutexGuard<'_, Threads>> {
        let mut threads = match self.threads.try_lock() {
            Ok(threads) => threads,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.pid.swap(pid, Ordering::AcqRel) != pid {
            // They are of another process.
            std::mem::forget(std::mem::take(&mut *threads));
        }
        Some(threads)
    }
}

pub(super) fn find(pid: u32, id: u64) -> Option<Arc<Owner>> {
    open(pid).find_map(|threads| threads.get(&id)?.upgrade())
}

pub(super) fn remove(pid: u32, id: u64) {
    for mut threads in open(pid) {
        threads.remove(&id);
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
        let is_listed = || {
            let mut mine = REGISTRIES
                .iter()
                .filter(|registry| registry.pid.load(Ordering::Acquire) == pid);
            mine.any(|registry| {
                let threads = registry.threads.lock();
                threads.is_ok_and(|threads| threads.contains_key(&id))
            })
        };
        assert!(is_listed() && find(pid, id).is_some_and(|it| Arc::ptr_eq(&it, &owner)));
        drop(owner);
        assert!(!is_listed() && find(pid, id).is_none());
    }

    #[test]
    fn a_process_that_adopts_a_registry_finds_none_of_another_process_in_it() {
        let registry = Registry {
            pid: AtomicU32::new(0),
            threads: Mutex::default(),
        };
        registry.adopt(1).unwrap().insert(7, Weak::new());
        assert_eq!(registry.adopt(1).unwrap().len(), 1);
        assert!(registry.adopt(2).unwrap().is_empty());
        // One that a fork has caught locked is nobody's.
        let _locked = registry.threads.lock();
        assert!(registry.adopt(3).is_none());
    }
}
