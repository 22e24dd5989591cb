//! The threads of this process: their numbers, and what each of them holds.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::engine::hold::Hold;
use crate::ground::claim::Kind;
use crate::ground::sync::Mutex;

/// One thread of this process: its number and what it holds.
///
/// Its holds keep a `Weak` to its life, so that those of a thread that ended stop being renewed. Numbers come from a counter
/// and are never used twice, unlike the operating system's thread ids.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) id: u64,
    /// The process that the thread belongs to.
    pid: u32,
    alive: Arc<()>,
    pub(crate) held: OwnerHolds,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Owner>>> = const { RefCell::new(None) };
    /// Outlives the thread's other values: a thread that ends keeps its number.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

impl Owner {
    /// Returns the token of the calling thread, which belongs to process `pid`; `None` once the thread is past its
    /// thread-local destructors, where nothing can be known to be its own any more.
    pub(crate) fn current(pid: u32) -> Option<Arc<Owner>> {
        let current = |current: &RefCell<Option<Arc<Owner>>>| {
            let mut current = current.borrow_mut();
            match &*current {
                Some(token) if token.pid == pid => Arc::clone(token),
                _ => {
                    let token = Owner::register(pid);
                    // What a forked thread brings along stays untouched: others may have been busy with it.
                    std::mem::forget(current.replace(Arc::clone(&token)));
                    token
                }
            }
        };
        CURRENT.try_with(current).ok()
    }

    fn register(pid: u32) -> Arc<Owner> {
        let token = Arc::new(Owner {
            id: new_number(),
            pid,
            alive: Arc::default(),
            held: OwnerHolds::default(),
        });
        registry::insert(&token);
        token
    }

    /// What lives as long as this thread.
    pub(crate) fn liveness(&self) -> Weak<()> {
        Arc::downgrade(&self.alive)
    }

    /// Returns the token of the living thread of process `pid` with this number.
    pub(crate) fn find(pid: u32, id: u64) -> Option<Arc<Owner>> {
        registry::find(pid, id)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            registry::remove(self.pid, self.id);
        } else {
            // In a forked child: other threads may have been busy with it at the fork.
            std::mem::forget(std::mem::take(&mut self.held));
        }
    }
}

fn new_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(number);
    number
}

/// Returns the number that this library has given the calling thread.
///
/// Numbers start at 1 and are never used twice in a process.
/// [`Lock::is_held_by_thread`](crate::Lock::is_held_by_thread) takes such a number.
///
/// # Examples
///
/// ```
/// let here = redlatch::current_thread_id();
/// let there = std::thread::spawn(redlatch::current_thread_id).join().unwrap();
/// assert_ne!(here, there);
/// ```
pub fn current_thread_id() -> u64 {
    match Owner::current(std::process::id()) {
        Some(token) => token.id,
        None => match NUMBER.get() {
            0 => new_number(),
            number => number,
        },
    }
}

/// What one thread holds and has lost, by client and name.
#[derive(Debug, Default)]
pub(crate) struct OwnerHolds {
    stacks: Mutex<ByName>,
    /// The locks made of others that this thread has held, by each of their parts.
    parts: Mutex<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    /// The whole that each part was held by last.
    of: HashMap<LockKey, LockKey>,
    /// With so many parts it is time to forget some.
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct ByName {
    stacks: HashMap<LockKey, Stack>,
    /// How many holds began on this thread.
    begun: u64,
    /// With so many names it is time to forget some.
    sweep_at: usize,
}

/// So many names with nothing but a loss that was never unlocked are remembered, those of the latest holds.
const LOSSES_KEPT: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LockKey {
    /// The number of the client in this process.
    pub(crate) client: u64,
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
}

#[derive(Debug, Default)]
struct Stack {
    /// Which of the holds that began on this thread the last one was.
    began: u64,
    /// The hold that counts: what `lock()` re-enters and `unlock()` leaves.
    current: Option<Arc<Hold>>,
    /// Levels of holds that were lost and never unlocked, and the last of them; an `unlock()` without a current hold
    /// uses one up. Only a count, so that a program which lets every lease run out does not pile up memory.
    lapsed: u32,
    last_lost: Option<Arc<Hold>>,
}

impl OwnerHolds {
    pub(crate) fn current(&self, key: &LockKey) -> Option<Arc<Hold>> {
        self.stacks.lock().stacks.get(key)?.current.clone()
    }

    /// The name of a lock that is held here and has a part in common with `key`, which is made of `parts`.
    pub(crate) fn overlapping(&self, key: &LockKey, parts: Option<&[LockKey]>) -> Option<Arc<str>> {
        let whole = self.parts.lock();
        if parts.is_none() && whole.of.is_empty() {
            return None;
        }
        let mine = parts.unwrap_or(std::slice::from_ref(key)).iter();
        let mut held = mine.filter_map(|part| match whole.of.get(part) {
            Some(whole) if whole != key && self.stands(whole) => Some(Arc::clone(&whole.name)),
            _ if part != key && self.stands(part) => Some(Arc::clone(&part.name)),
            _ => None,
        });
        held.next()
    }

    /// Whether there is a hold of this name that counts.
    fn stands(&self, key: &LockKey) -> bool {
        self.current(key).is_some_and(|hold| hold.stands())
    }

    /// The name of the lock that this thread holds as `visitor`, through whichever client.
    pub(crate) fn held_as(&self, visitor: &str) -> Option<Arc<str>> {
        let by_name = self.stacks.lock();
        let mut held = by_name.stacks.iter().filter_map(|(key, stack)| {
            let hold = stack.current.as_ref()?;
            (hold.visitor.as_str() == visitor && hold.stands()).then(|| Arc::clone(&key.name))
        });
        held.next()
    }

    /// Puts a new hold in place, of a lock made of `parts`; the one before it, if any, was lost.
    pub(crate) fn push(&self, key: &LockKey, parts: Option<&Arc<[LockKey]>>, hold: Arc<Hold>) {
        if let Some(parts) = parts {
            let mut whole = self.parts.lock();
            if whole.of.len() >= whole.sweep_at {
                whole.of.retain(|_, whole| self.stands(whole));
                whole.sweep_at = (whole.of.len() * 2).max(LOSSES_KEPT * 2);
                let room = whole.sweep_at;
                whole.of.shrink_to(room);
            }
            let mine = parts.iter().map(|part| (part.clone(), key.clone()));
            whole.of.extend(mine);
        }
        // The span of a hold ends with it: a subscriber's code runs then, which is not to find the mutex locked.
        let _forgotten;
        let mut by_name = self.stacks.lock();
        by_name.begun += 1;
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

    /// Takes `hold` out if it has no level left.
    pub(crate) fn settle(&self, key: &LockKey, hold: &Arc<Hold>) {
        let stacks = &mut self.stacks.lock().stacks;
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

    /// Takes a level out of those that lapsed, because the guard of a hold that was lost has given it back.
    pub(crate) fn leave_lapsed(&self, key: &LockKey, hold: &Arc<Hold>) {
        let stacks = &mut self.stacks.lock().stacks;
        if let Some(stack) = stacks.get_mut(key)
            && !stack
                .current
                .as_ref()
                .is_some_and(|current| Arc::ptr_eq(current, hold))
        {
            stack.lapsed = stack.lapsed.saturating_sub(1);
            if stack.current.is_none() && stack.lapsed == 0 {
                stacks.remove(key);
            }
        }
    }

    /// Uses up one lapsed level. Returns the hold that was lost.
    pub(crate) fn take_lapsed(&self, key: &LockKey) -> Option<Arc<Hold>> {
        let stacks = &mut self.stacks.lock().stacks;
        let stack = stacks.get_mut(key)?;
        stack.lapsed = stack.lapsed.checked_sub(1)?;
        let lost = stack.last_lost.clone();
        if let Some(lost) = &lost {
            lost.forget_level();
        }
        if stack.current.is_none() && stack.lapsed == 0 {
            stacks.remove(key);
        }
        lost
    }
}

impl ByName {
    /// Forgets the holds whose clients are gone, and the oldest losses that nobody has unlocked. Amortised: until the
    /// next time the names have to double. Returns what it has forgotten.
    fn sweep(&mut self) -> Vec<Stack> {
        let mut forgotten = Vec::new();
        // Nobody can unlock these any more.
        self.forget(&mut forgotten, |stack| stack.has_no_client());
        let is_over = |stack: &Stack| !stack.current.as_ref().is_some_and(|hold| hold.stands());
        let over = self.stacks.values().filter(|stack| is_over(stack));
        let mut over: Vec<u64> = over.map(|stack| stack.began).collect();
        if let Some(surplus) = over.len().checked_sub(LOSSES_KEPT + 1) {
            let (_, last_forgotten, _) = over.select_nth_unstable(surplus);
            let last_forgotten = *last_forgotten;
            self.forget(&mut forgotten, |stack| {
                stack.began <= last_forgotten && is_over(stack)
            });
        }
        self.sweep_at = (self.stacks.len() * 2).max(LOSSES_KEPT * 2);
        self.stacks.shrink_to(self.sweep_at);
        forgotten
    }

    fn forget(&mut self, forgotten: &mut Vec<Stack>, which: impl Fn(&Stack) -> bool) {
        self.stacks.retain(|_, stack| {
            let goes = which(stack);
            if goes {
                forgotten.push(std::mem::take(stack));
            }
            !goes
        });
    }
}

impl Stack {
    fn has_no_client(&self) -> bool {
        let latest = self.current.as_ref().or(self.last_lost.as_ref());
        latest.is_some_and(|hold| hold.has_no_client())
    }
}

/// The living threads that ever used a lock, by number.
///
/// A fork may catch a mutex locked by a thread that the child does not have. So there are several registries; a process
/// uses those that it found open, and leaves the others alone.
mod registry {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

    use super::Owner;

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
        REGISTRIES.iter().find_map(|registry| {
            let mut threads = match registry.threads.try_lock() {
                Ok(threads) => threads,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            if registry.pid.swap(pid, Ordering::AcqRel) != pid {
                // They are of another process.
                std::mem::forget(std::mem::take(&mut *threads));
            }
            Some(threads)
        })
    }

    pub(super) fn find(pid: u32, id: u64) -> Option<Arc<Owner>> {
        open(pid).find_map(|threads| threads.get(&id)?.upgrade())
    }

    pub(super) fn remove(pid: u32, id: u64) {
        for mut threads in open(pid) {
            threads.remove(&id);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::{Client, MultiLock};

    /// How many names of locks, and of parts, are remembered for the calling thread.
    fn remembered() -> (usize, usize) {
        let me = Owner::current(std::process::id()).unwrap();
        let names = me.held.stacks.lock().stacks.len();
        let parts = me.held.parts.lock().of.len();
        (names, parts)
    }

    /// Leaves holds behind, and looks whether more and more of them are remembered.
    fn leave(what: &str, leave_one: impl Fn(usize)) {
        // A thread of its own has nothing yet.
        let most = 4 * LOSSES_KEPT;
        (0..2 * most).for_each(leave_one);
        let (names, parts) = remembered();
        assert!(names <= most, "{what}: {names} names are remembered");
        assert!(parts <= most, "{what}: {parts} parts are remembered");
    }

    fn on_a_thread(work: impl FnOnce() + Send + 'static) {
        thread::spawn(work).join().unwrap();
    }

    #[test]
    fn holds_of_clients_that_are_gone_do_not_pile_up() {
        on_a_thread(|| {
            leave("renewed", |_| {
                Client::in_memory().lock("job").lock().unwrap();
            });
        });
        on_a_thread(|| {
            let lease = Duration::from_millis(10);
            leave("with fixed leases", |_| {
                let lock = Client::in_memory().lock("job").with_lease_time(lease);
                lock.lock().unwrap();
            });
        });
    }

    #[test]
    fn multi_locks_that_were_dropped_do_not_pile_up() {
        on_a_thread(|| {
            let client = Client::in_memory();
            leave("multi-locks", |number| {
                let parts = [0, 1].map(|part| client.lock(&format!("{number}-{part}")));
                MultiLock::of(&parts).unwrap().lock().unwrap();
            });
        });
    }

    #[test]
    fn holds_of_clients_that_were_shut_down_do_not_pile_up() {
        on_a_thread(|| {
            let lease = Duration::from_millis(10);
            let clients = std::cell::RefCell::new(Vec::new());
            leave("of clients that were shut down", |_| {
                let client = Client::in_memory();
                client.lock("job").with_lease_time(lease).lock().unwrap();
                client.shutdown();
                clients.borrow_mut().push(client);
            });
        });
    }

    #[test]
    fn what_is_held_is_never_forgotten() {
        on_a_thread(|| {
            let client = Client::in_memory();
            let pairs = LOSSES_KEPT + 10;
            let singles: Vec<_> = (0..LOSSES_KEPT)
                .map(|number| client.lock(&format!("single-{number}")))
                .collect();
            singles.iter().for_each(|lock| lock.lock().unwrap());
            let locks: Vec<_> = (0..pairs)
                .map(|number| {
                    let parts = [0, 1].map(|part| client.lock(&format!("{number}-{part}")));
                    let both = MultiLock::of(&parts).unwrap();
                    both.lock().unwrap();
                    (parts, both)
                })
                .collect();
            let (names, parts) = remembered();
            assert_eq!((names, parts), (pairs + singles.len(), 2 * pairs));
            singles.iter().for_each(|lock| lock.unlock().unwrap());
            for (parts, both) in &locks {
                assert!(matches!(
                    parts[1].try_lock(),
                    Err(crate::Error::Overlap { .. })
                ));
                both.unlock().unwrap();
            }
        });
    }
}
