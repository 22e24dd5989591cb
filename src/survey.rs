//! The look of an operator at all locks of a place.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::engine::client_inner::ClientInner;
use crate::ground::error::Result;
use crate::ground::sync;
use crate::ground::time;
use crate::redlock::Redlock;
use crate::store::{LockInfo, Position, Scope, SurveyOf};

/// An iterator over the locks that somebody holds, made by [`Client::locks`] and [`Redlock::locks`].
///
/// It asks the store page by page while it is read, and pauses after each page for as long as that took, so that a server
/// in trouble is at most half as busy with it as it could be. Nothing is written. Each name comes once, in no order. A
/// lock that is taken, given back or moved to another master of a cluster meanwhile may come or may not.
#[derive(Debug)]
#[must_use = "iterators are lazy: no request is sent until it is read"]
pub struct Locks {
    inner: Arc<ClientInner>,
    scope: Scope,
    position: Position,
    /// The locks of the last page that are still to be told, and the names of all that were.
    page: VecDeque<LockInfo>,
    seen: HashSet<Arc<str>>,
    /// How long the last page took.
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

    /// Has it also return the locks of [`Client::token_lock`]: each string with a time to live and at most 256 bytes, since
    /// a token looks like any other text. Defaults to off.
    pub fn with_tokens(mut self) -> Locks {
        self.scope.has_tokens = true;
        self
    }

    /// Has it also return semaphores and latches: each string that is a number, held or not. Defaults to off.
    pub fn with_counters(mut self) -> Locks {
        self.scope.has_counters = true;
        self
    }

    /// Asks for the next page.
    fn turn(&mut self) -> Result<()> {
        self.position.is_over |= self.inner.is_forked();
        self.inner.not_forked(&self.scope.prefix)?;
        sync::sleep(self.pause);
        let begun = time::now();
        let (all, position) = (SurveyOf::All(&self.scope), &mut self.position);
        let found = self
            .inner
            .ask("ask", |store, by| store.survey(all, position, by));
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
    /// Returns an iterator over the locks that somebody holds and whose names begin with `prefix`, behind the key prefix of
    /// the client; those of Redisson, too.
    ///
    /// In Redis each master is scanned (`SCAN` with a `COUNT` of 512, never `KEYS`), and a hash is a lock if each of its
    /// fields is that of a hold and it has a time to live; of no hash more than 64 fields are read. In a database the lock
    /// table is read. Semaphores and latches are left out unless [`Locks::with_counters`] is called, and token locks unless
    /// [`Locks::with_tokens`] is. `docs/rights.md` of the repository has the rights that the user needs.
    ///
    /// # Errors
    ///
    /// Each item may be an error, after which the iterator ends: [`Error::Unreachable`](crate::Error::Unreachable),
    /// [`Error::Exhausted`](crate::Error::Exhausted), [`Error::Unavailable`](crate::Error::Unavailable),
    /// [`Error::Permission`](crate::Error::Permission), [`Error::Untrusted`](crate::Error::Untrusted),
    /// [`Error::Unexpected`](crate::Error::Unexpected), `Error::Database`, or [`Error::Forked`](crate::Error::Forked) in a
    /// forked child. A page takes [`command_timeout`](crate::Builder::command_timeout) at most.
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
    /// Returns an iterator over the locks that somebody holds and whose names begin with `prefix`; see [`Client::locks`].
    ///
    /// All nodes are read before the first lock is returned. [`LockInfo::nodes`] says how many of them have the hold: fewer
    /// than a majority are what an attempt or a dead node has left. With [`canonical`](crate::RedlockBuilder::canonical) the
    /// locks are tokens, so [`Locks::with_tokens`] is on.
    ///
    /// # Errors
    ///
    /// Those of [`Client::locks`] for each node that cannot be asked; the locks of the others follow.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::{Client, Redlock};
    ///
    /// let redlock = Redlock::new([Client::in_memory(), Client::in_memory(), Client::in_memory()])?;
    /// let guard = redlock.lock("orders:42").guard()?;
    /// let info = redlock.locks("").next().expect("somebody holds it")?;
    /// assert_eq!((&*info.name, info.nodes), ("orders:42", Some((3, 3))));
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn locks(&self, prefix: &str) -> Locks {
        let locks = Locks::new(self.inner(), prefix);
        match self.is_canonical() {
            true => locks.with_tokens(),
            false => locks,
        }
    }
}
