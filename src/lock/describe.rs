//! The look of an operator at one lock, and the end of one hold.

use std::sync::Arc;

use crate::engine::raw_lock::RawLock;
use crate::ground::claim::{Claim, Form, Queueing, VisitorId};
use crate::ground::error::{Error, Result};
use crate::lock::Lock;
use crate::store::{CUT, Left, LockInfo, LockKind, Outcome, Position, SurveyOf, shown};

impl Lock {
    /// Asks the store who holds the lock, with all that it shows: the holds, their processes, the end, those who wait.
    ///
    /// Of a read-write lock either side describes both. Nothing is written, and the threads of this client are not
    /// disturbed.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a [`MultiLock`](crate::MultiLock), each of whose locks can be described, and those of
    /// [`Lock::is_locked`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let lock = client.lock("orders:42");
    /// lock.lock()?;
    /// let info = lock.describe()?;
    /// assert_eq!(info.holders[0].client.as_deref(), Some(client.id()));
    /// assert_eq!(info.holders[0].count, 1);
    /// lock.unlock()?;
    /// assert!(lock.describe()?.holders.is_empty());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn describe(&self) -> Result<LockInfo> {
        Ok(self.look()?.discreet())
    }

    /// Ends the hold of this visitor, and returns whether it stood; the lock is left alone if somebody else has it by now.
    ///
    /// The visitor is one of [`LockInfo::holders`], or the `as_str` of a [`VisitorId`]. The hold ends in one step, and those
    /// who wait are told, as by [`Lock::unlock`]. Its holder learns of it as after [`Lock::force_unlock`]. For a token lock
    /// the visitor is the token, or what [`Lock::describe`] shows of it: four signs, `…` and a hash of the whole token.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if the request got no answer, so that the hold may have ended or not; [`Error::Unsupported`] for a
    /// [`MultiLock`](crate::MultiLock); and those of [`Lock::is_locked`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let lock = client.lock("orders:42");
    /// lock.lock()?;
    /// let stuck = lock.describe()?.holders[0].visitor.clone();
    /// assert!(lock.force_unlock_of(&stuck)?);
    /// lock.lock()?; // a new hold, which is another visitor
    /// assert!(!lock.force_unlock_of(&stuck)?);
    /// assert!(lock.is_held_by_current_thread()?);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn force_unlock_of(&self, visitor: &str) -> Result<bool> {
        let Some(visitor) = self.whole(visitor)? else {
            return Ok(false);
        };
        let RawLock { inner, key, .. } = &self.raw_lock;
        let claim = Claim {
            kind: key.lock.kind,
            name: Arc::clone(&key.lock.name),
            visitor,
            count: 1,
            lease: inner.timeouts.watchdog_timeout,
            is_renewed: false,
            inside: None,
            queueing: Queueing::default(),
        };
        let outcome = inner.ask("release", |store, by| {
            store.release(&claim, Left::Nothing, by)
        })?;
        self.was_freed();
        match outcome {
            Outcome::Done(_) => Ok(true),
            Outcome::Gone(_) => Ok(false),
            Outcome::Unknown { error, .. } => Err(error),
            Outcome::Refused(never) => match never {},
        }
    }

    /// The visitor in full; `None` if nobody holds the lock by a token that is this one, or is shown so.
    fn whole(&self, visitor: &str) -> Result<Option<VisitorId>> {
        self.is_one()?;
        let is_token = self.raw_lock.key.lock.kind.rules().form == Form::Text;
        if !is_token || !visitor.contains(CUT) {
            return Ok(Some(VisitorId::of_field(visitor)));
        }
        let mut holders = self.look()?.holders.into_iter();
        let is_it = |token: &str| token == visitor || shown(token) == visitor;
        let found = holders.find(|holder| is_it(&holder.visitor));
        Ok(found.map(|holder| VisitorId::of_field(holder.visitor)))
    }

    fn look(&self) -> Result<LockInfo> {
        self.is_one()?;
        let RawLock { inner, key, .. } = &self.raw_lock;
        let (one, mut position) = (SurveyOf::One(&key.lock), Position::default());
        let told = inner.ask("ask", |store, by| store.survey(one, &mut position, by))?;
        let node = || inner.store.node(Some(&key.lock.name));
        let free = || LockInfo::free(&key.lock.name, LockKind::of(key.lock.kind), node());
        Ok(told.into_iter().next().unwrap_or_else(free))
    }

    /// Refuses a lock that is made of several, each of which has holds of its own.
    fn is_one(&self) -> Result<()> {
        self.raw_lock.ready()?;
        match &self.raw_lock.parts {
            None => Ok(()),
            Some(_) => {
                let reason = "it consists of several locks; call this on each of them";
                Err(Error::unsupported(self.full_name(), reason))
            }
        }
    }
}
