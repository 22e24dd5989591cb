//! The owners of holds: threads, `OwnedGuard`s and semaphore permits. Threads can pass `OwnedGuard`s and permits on.

mod holds;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub(crate) use crate::engine::owner::holds::LockKey;
use crate::engine::owner::holds::OwnerHolds;
use crate::ground::process;

/// Each hold keeps a `Weak` of its owner's `alive`, so that the hold is not renewed after the owner is dropped. Ids come
/// from a counter and are never reused, unlike the operating system's thread ids.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) id: u64,
    pid: u32,
    alive: Arc<()>,
    pub(crate) held: OwnerHolds,
}

/// The living owners, except owners of permits. The key has the process id, so a forked child has its own owners.
static OWNERS: Mutex<Owners> = Mutex::new(BTreeMap::new());

type Owners = BTreeMap<(u32, u64), Weak<Owner>>;

/// The id of the process that uses [`OWNERS`]; 0 if no process has used it.
static USED_BY: AtomicU32 = AtomicU32::new(0);

/// Returns `None` in a forked child if a thread of its parent had locked the mutex at the fork.
fn owners(pid: u32) -> Option<MutexGuard<'static, Owners>> {
    // `USED_BY` is set before the mutex is locked. So a child that is forked while the mutex is locked finds its
    // parent's id, and only tries to lock the mutex.
    let user = USED_BY.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire);
    if user.is_ok() || user == Err(pid) {
        return Some(OWNERS.lock().unwrap_or_else(PoisonError::into_inner));
    }
    let owners = OWNERS.try_lock().ok()?;
    USED_BY.store(pid, Ordering::Release);
    Some(owners)
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Owner>>> = const { RefCell::new(None) };
    /// A `Cell<u64>` has no destructor, so an ending thread can read it even while other thread-locals are dropped.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

impl std::panic::RefUnwindSafe for Owner {}

impl Owner {
    /// Returns `None` once the thread has dropped its thread-local values.
    pub(crate) fn current(pid: u32) -> Option<Arc<Owner>> {
        let current = |current: &RefCell<Option<Arc<Owner>>>| {
            let mut current = current.borrow_mut();
            match &*current {
                Some(token) if token.pid == pid => Arc::clone(token),
                _ => {
                    let token = Owner::register(pid, current_thread_id());
                    // A forked child leaks its parent's owner, whose drop could wait for a mutex locked at the fork.
                    std::mem::forget(current.replace(Arc::clone(&token)));
                    token
                }
            }
        };
        CURRENT.try_with(current).ok()
    }

    fn register(pid: u32, id: u64) -> Arc<Owner> {
        let owner = Owner::of(pid, id);
        if let Some(mut owners) = owners(pid) {
            owners.insert((pid, id), Arc::downgrade(&owner));
        }
        owner
    }

    fn of(pid: u32, id: u64) -> Arc<Owner> {
        Arc::new(Owner {
            id,
            pid,
            alive: Arc::default(),
            held: OwnerHolds::default(),
        })
    }

    pub(crate) fn without_thread(pid: u32) -> Arc<Owner> {
        Owner::register(pid, new_number())
    }

    /// Permits get an owner of their own, because threads can pass permits on.
    pub(crate) fn of_handle(pid: u32) -> Arc<Owner> {
        Owner::of(pid, current_thread_id())
    }

    pub(crate) fn liveness(&self) -> Weak<()> {
        Arc::downgrade(&self.alive)
    }

    pub(crate) fn find(pid: u32, id: u64) -> Option<Arc<Owner>> {
        owners(pid)?.get(&(pid, id))?.upgrade()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.pid != process::id() {
            // In a forked child, `held` is leaked, because another thread may have locked its mutex at the fork.
            std::mem::forget(std::mem::take(&mut self.held));
        } else if let Some(mut owners) = owners(self.pid) {
            let key = (self.pid, self.id);
            if owners.get(&key).is_some_and(|it| it.strong_count() == 0) {
                owners.remove(&key);
            }
        }
    }
}

fn new_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the number that this library has given the calling thread.
///
/// Numbers start at 1. A process never uses a number twice, and each [`OwnedGuard`](crate::OwnedGuard) has a number of its
/// own. [`Lock::is_held_by_thread`](crate::Lock::is_held_by_thread) takes such a number.
///
/// # Examples
///
/// ```
/// let here = redlatch::current_thread_id();
/// let there = std::thread::spawn(redlatch::current_thread_id).join().unwrap();
/// assert_ne!(here, there);
/// ```
pub fn current_thread_id() -> u64 {
    if NUMBER.get() == 0 {
        NUMBER.set(new_number());
    }
    NUMBER.get()
}
