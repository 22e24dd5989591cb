use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::engine::client_inner::ClientInner;
use crate::ground::claim::Kind;
use crate::ground::error::Result;
use crate::ground::{sync, time};
use crate::redlock::Redlock;
use crate::store::{LockInfo, Position, Scope, SurveyOf};

/// An iterator over held locks. [`Client::locks`] and [`Redlock::locks`] return it.
///
/// The iterator reads the store page by page. After each page the iterator pauses for as long as reading the page took, to
/// limit the load of the server. It writes nothing. Each name is returned once, in no particular order. A lock that is
/// acquired, released or moved to another master during the iteration may be missing.
#[derive(Debug)]
#[must_use = "iterators are lazy: no request is sent until it is read"]
pub struct Locks {
    inner: Arc<ClientInner>,
    scope: Scope,
    position: Position,
    page: VecDeque<LockInfo>,
    seen: HashSet<Arc<str>>,
    pause: Duration,
}

impl Locks {
    fn new(inner: &Arc<ClientInner>, prefix: &str) -> Locks {
        Locks {
            inner: Arc::clone(inner),
            scope: Scope {
                prefix: inner.key_prefix.before(prefix),
                has_tokens: false,
                has_counters: false,
            },
            position: Position::default(),
            page: VecDeque::new(),
            seen: HashSet::new(),
            pause: Duration::ZERO,
        }
    }

    /// Includes the locks of [`Client::token_lock`]. Tokens look like any other text. So the iterator returns every
    /// string of 1 to 256 bytes with a TTL, except auxiliary keys of locks. Defaults to off.
    pub fn with_tokens(mut self) -> Locks {
        self.scope.has_tokens = true;
        self
    }

    /// Includes semaphores and latches, and every other key whose value is an integer. Defaults to off.
    pub fn with_counters(mut self) -> Locks {
        self.scope.has_counters = true;
        self
    }

    fn turn(&mut self) -> Result<()> {
        self.position.is_over |= self.inner.is_forked();
        self.inner.not_forked(&self.scope.prefix)?;
        sync::sleep(self.pause);
        let begun = time::now();
        let (all, position) = (SurveyOf::All(&self.scope), &mut self.position);
        let inner = &self.inner;
        let found = inner.ask("ask", |store, by| store.survey(all, position, by));
        self.pause = time::since(begun);
        for info in found? {
            if self.seen.insert(Arc::clone(&info.name)) {
                self.page.push_back(info.discreet());
            }
        }
        Ok(())
    }
}

impl Iterator for Locks {
    type Item = Result<LockInfo>;

    fn next(&mut self) -> Option<Result<LockInfo>> {
        loop {
            if let Some(info) = self.page.pop_front() {
                return Some(Ok(info));
            }
            if self.position.is_over {
                return None;
            }
            if let Err(error) = self.turn() {
                return Some(Err(error));
            }
        }
    }
}

impl Client {
    /// Returns an iterator over the held locks whose names begin with the client's key prefix, followed by `prefix`. Locks
    /// that Redisson holds are included.
    ///
    /// In Redis each master is scanned (`SCAN` with a `COUNT` of 512, never `KEYS`). A hash with a TTL counts as a lock
    /// if it has the field of one hold, or the fields of a read-write lock. At most 64 holds of a lock are returned. In
    /// a database the client reads the lock table. [`Locks::with_counters`] includes semaphores and latches.
    /// [`Locks::with_tokens`] includes token locks. `docs/rights.md` of the repository lists the needed rights.
    ///
    /// # Errors
    ///
    /// An item may be an error. The iterator ends after that item. The errors are
    /// [`Error::Unreachable`](crate::Error::Unreachable), [`Error::Exhausted`](crate::Error::Exhausted),
    /// [`Error::Unavailable`](crate::Error::Unavailable), [`Error::Permission`](crate::Error::Permission),
    /// [`Error::Untrusted`](crate::Error::Untrusted), [`Error::Unexpected`](crate::Error::Unexpected), `Error::Database`,
    /// and [`Error::Forked`](crate::Error::Forked) in a forked child. Reading a page takes
    /// [`command_timeout`](crate::Builder::command_timeout) at most.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let guard = client.lock("orders:42").guard()?;
    /// let names: Vec<_> = client
    ///     .locks("orders:")
    ///     .map(|info| info.map(|info| info.name.to_string()))
    ///     .collect::<Result<_, _>>()?;
    /// assert_eq!(names, ["orders:42"]);
    /// guard.unlock()?;
    /// assert!(client.locks("").next().is_none());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn locks(&self, prefix: &str) -> Locks {
        Locks::new(&self.inner, prefix)
    }
}

impl Redlock {
    /// Returns an iterator over the held locks whose names begin with `prefix`; see [`Client::locks`].
    ///
    /// All nodes are read before the first lock is returned. The first number of [`LockInfo::nodes`] is the number of nodes
    /// with the hold. If this number is below a majority, the hold is left over from a failed attempt, or nodes have
    /// failed. For a [`canonical`](crate::RedlockBuilder::canonical) Redlock, token locks are included.
    ///
    /// # Errors
    ///
    /// Those of [`Client::locks`], one for each node that cannot be read. The locks of the other nodes follow.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::{Client, Redlock};
    ///
    /// let redlock = Redlock::new([Client::in_memory(), Client::in_memory(), Client::in_memory()])?;
    /// let guard = redlock.lock("orders:42").guard()?;
    /// let info = redlock.locks("").next().expect("it is held")?;
    /// assert_eq!((&*info.name, info.nodes), ("orders:42", Some((3, 3))));
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn locks(&self, prefix: &str) -> Locks {
        let mut locks = Locks::new(&self.inner, prefix);
        locks.scope.has_tokens = self.kind == Kind::Token;
        locks
    }
}
