use crate::engine::raw_lock::RawLock;
use crate::ground::claim::{Claim, Form, VisitorId};
use crate::ground::error::{Error, Result};
use crate::lock::Lock;
use crate::store::{Left, LockInfo, LockKind, Outcome, Position, SurveyOf, TOKEN_CUT, shown_token};

impl Lock {
    /// Queries the store for the lock's holders, their processes, the remaining lease and the number of subscribed clients.
    ///
    /// For a side of a read-write lock, the result describes both sides. The query writes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a [`MultiLock`](crate::MultiLock): describe each of its locks instead. Other errors are
    /// those of [`Lock::is_locked`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let lock = client.lock("orders:42");
    /// let guard = lock.guard()?;
    /// let info = lock.describe()?;
    /// assert_eq!(info.holders[0].client.as_deref(), Some(client.id()));
    /// assert_eq!(info.holders[0].count, 1);
    /// guard.unlock()?;
    /// assert!(lock.describe()?.holders.is_empty());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn describe(&self) -> Result<LockInfo> {
        Ok(self.look()?.discreet())
    }

    /// Ends the hold with the id `visitor`, and returns whether that hold existed. Other holds stay.
    ///
    /// The id comes from [`LockInfo::holders`] or [`VisitorId::as_str`]. For a token lock, `visitor` is the token, or
    /// the short form that [`Lock::describe`] returns: four characters, `…` and a hash. The call notifies waiters like
    /// [`Lock::unlock`], and notifies the holder like [`Lock::force_unlock`].
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if the request got no reply. The hold may then have ended. [`Error::Unsupported`] for a
    /// [`MultiLock`](crate::MultiLock). Other errors are those of [`Lock::is_locked`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let lock = client.lock("orders:42");
    /// let stuck = lock.guard()?;
    /// assert!(lock.force_unlock_of(stuck.visitor().as_str())?);
    /// let next = lock.guard()?; // a new hold, which is another visitor
    /// assert!(!lock.force_unlock_of(stuck.visitor().as_str())?);
    /// assert!(next.is_valid());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn force_unlock_of(&self, visitor: &str) -> Result<bool> {
        let Some(visitor) = self.whole(visitor)? else {
            return Ok(false);
        };
        let RawLock { inner, key, .. } = &self.raw_lock;
        let (lock, lease) = (&key.lock, inner.timeouts.watchdog_timeout);
        let claim = Claim {
            count: 1,
            ..Claim::new(lock.kind, &lock.name, visitor, lease)
        };
        let outcome = inner.ask("release", |store, by| {
            store.release(&claim, Left::Nothing, by)
        })?;
        self.was_freed();
        match outcome {
            Outcome::Done(_) => Ok(true),
            Outcome::Gone(_) => Ok(false),
            Outcome::Unknown { error, .. } => Err(error),
        }
    }

    /// Expands the short form of a token; `None` if no holder has the token. Other ids are returned unchanged.
    fn whole(&self, visitor: &str) -> Result<Option<VisitorId>> {
        self.is_one()?;
        let is_token = self.raw_lock.key.lock.kind.rules().form == Form::Text;
        if !is_token || !visitor.contains(TOKEN_CUT) {
            return Ok(Some(VisitorId::of_field(visitor)));
        }
        let mut holders = self.look()?.holders.into_iter();
        let is_it = |token: &str| token == visitor || shown_token(token) == visitor;
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

    fn is_one(&self) -> Result<()> {
        self.raw_lock.ready()?;
        if self.raw_lock.parts().is_some() {
            let reason = "it consists of several locks; call this on each of them";
            return Err(Error::unsupported(self.full_name(), reason));
        }
        Ok(())
    }
}
