//! The threads of this process: their numbers, and what each of them holds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::claim::Kind;
use crate::hold::Hold;

/// One thread of this process: its number and what it holds.
///
/// Its holds keep a `Weak` to its life, so that those of a thread that ended stop being renewed. Numbers come from a counter
/// and are never used twice, unlike the operating system's thread ids.
#[derive(Debug)]
pub(crate) struct ThreadToken {
    pub(crate) id: u64,
    alive: Arc<()>,
    pub(crate) held: Stacks,
}

thread_local! {
    static CURRENT: Arc<ThreadToken> = ThreadToken::register();
}

impl ThreadToken {
    /// Returns the token of the calling thread.
    pub(crate) fn current() -> Arc<ThreadToken> {
        // A thread that is past its thread-local destructors holds nothing any more; it gets a number of its own.
        CURRENT
            .try_with(Arc::clone)
            .unwrap_or_else(|_| ThreadToken::register())
    }

    fn register() -> Arc<ThreadToken> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let token = Arc::new(ThreadToken {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            alive: Arc::default(),
            held: Stacks::default(),
        });
        registry::insert(&token);
        token
    }

    /// What lives as long as this thread.
    pub(crate) fn life(&self) -> Weak<()> {
        Arc::downgrade(&self.alive)
    }

    /// Returns the token of the living thread with this number.
    pub(crate) fn find(id: u64) -> Option<Arc<ThreadToken>> {
        registry::find(id)
    }
}

impl Drop for ThreadToken {
    fn drop(&mut self) {
        registry::remove(self.id);
    }
}

/// Returns the number under which this library knows the calling thread.
///
/// Numbers start at 1 and are never used twice in a process. [`Lock::is_held_by_thread`](crate::Lock::is_held_by_thread)
/// takes one.
///
/// # Examples
///
/// ```
/// let here = redlatch::current_thread_id();
/// let there = std::thread::spawn(redlatch::current_thread_id).join().unwrap();
/// assert_ne!(here, there);
/// ```
pub fn current_thread_id() -> u64 {
    ThreadToken::current().id
}

/// What one thread holds and has lost, by client and name.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    stacks: Mutex<HashMap<StackKey, Stack>>,
    /// The locks made of others that this thread has held, by each of their parts.
    parts: Mutex<HashMap<StackKey, StackKey>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StackKey {
    /// The number of the client in this process.
    pub(crate) client: u64,
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
}

#[derive(Debug, Default)]
struct Stack {
    /// The hold that counts: what `lock()` re-enters and `unlock()` leaves.
    current: Option<Arc<Hold>>,
    /// Levels of holds that were lost and never unlocked, and the last of them; an `unlock()` without a current hold
    /// uses one up. Only a count, so that a program which lets every lease run out does not pile up memory.
    lapsed: u32,
    last_lost: Option<Arc<Hold>>,
}

impl Stacks {
    pub(crate) fn current(&self, key: &StackKey) -> Option<Arc<Hold>> {
        self.stacks.lock().get(key)?.current.clone()
    }

    /// The name of a lock that is held here and has a part in common with `key`, which is made of `parts`.
    pub(crate) fn overlapping(
        &self,
        key: &StackKey,
        parts: Option<&[StackKey]>,
    ) -> Option<Arc<str>> {
        let is_held = |key: &StackKey| self.current(key).is_some_and(|hold| hold.is_held());
        let mut whole = self.parts.lock();
        if parts.is_none() && whole.is_empty() {
            return None;
        }
        whole.retain(|_, whole| is_held(whole));
        let mine = parts.unwrap_or(std::slice::from_ref(key)).iter();
        let mut held = mine.filter_map(|part| match whole.get(part) {
            Some(whole) if whole != key => Some(Arc::clone(&whole.name)),
            _ if part != key && is_held(part) => Some(Arc::clone(&part.name)),
            _ => None,
        });
        held.next()
    }

    /// Puts a new hold in place, of a lock made of `parts`; the one before it, if any, was lost.
    pub(crate) fn push(&self, key: &StackKey, parts: Option<&Arc<[StackKey]>>, hold: Arc<Hold>) {
        for part in parts.into_iter().flat_map(|parts| parts.iter()) {
            self.parts.lock().insert(part.clone(), key.clone());
        }
        let mut stacks = self.stacks.lock();
        let stack = stacks.entry(key.clone()).or_default();
        if let Some(lost) = stack.current.replace(hold) {
            stack.lapsed = stack.lapsed.saturating_add(lost.count());
            stack.last_lost = Some(lost);
        }
    }

    /// Takes `hold` out if it has no level left.
    pub(crate) fn settle(&self, key: &StackKey, hold: &Arc<Hold>) {
        let mut stacks = self.stacks.lock();
        if let Some(stack) = stacks.get_mut(key) {
            if stack
                .current
                .as_ref()
                .is_some_and(|current| Arc::ptr_eq(current, hold))
                && hold.count() == 0
            {
                stack.current = None;
            }
            if stack.current.is_none() && stack.lapsed == 0 {
                stacks.remove(key);
            }
        }
    }

    /// Uses up one lapsed level. Returns the hold that was lost.
    pub(crate) fn take_lapsed(&self, key: &StackKey) -> Option<Arc<Hold>> {
        let mut stacks = self.stacks.lock();
        let stack = stacks.get_mut(key)?;
        stack.lapsed = stack.lapsed.checked_sub(1)?;
        let lost = stack.last_lost.clone();
        if stack.current.is_none() && stack.lapsed == 0 {
            stacks.remove(key);
        }
        lost
    }
}

/// The living threads that ever used a lock, by number.
mod registry {
    use std::collections::HashMap;
    use std::sync::{Arc, Weak};

    use parking_lot::Mutex;

    use super::ThreadToken;

    static THREADS: Mutex<Option<HashMap<u64, Weak<ThreadToken>>>> = Mutex::new(None);

    pub(super) fn insert(token: &Arc<ThreadToken>) {
        THREADS
            .lock()
            .get_or_insert_default()
            .insert(token.id, Arc::downgrade(token));
    }

    pub(super) fn find(id: u64) -> Option<Arc<ThreadToken>> {
        THREADS.lock().as_ref()?.get(&id)?.upgrade()
    }

    pub(super) fn remove(id: u64) {
        if let Some(threads) = THREADS.lock().as_mut() {
            threads.remove(&id);
        }
    }
}
