//! Transactions that hold a lock, and the statements that may run in them.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::hold::Hold;
use crate::engine::raw_lock::RawLock;
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Result};
use crate::ground::events;
use crate::guard::{Guard, HeldLevel, OwnedGuard};
use crate::mysql::allowed_statements::{ALLOWED, changes_session, first_word};
use crate::stores::mysql::values::{FromRow, Params};
use crate::stores::mysql::{MySql, Session};

/// The server ends a transaction that is idle for this time, so that a hung holder does not block other clients.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// The open transaction of a lock. It runs the holder's statements.
///
/// Statements that might end the transaction or change the settings of its session return [`Error::Unsupported`]. The
/// session has the server's time zone, and the server's `sql_mode` plus strict mode: a value that does not fit its column is
/// an error. After a [`DatabaseError::Deadlock`] or [`DatabaseError::WaitTimeout`] the server may have rolled the transaction
/// back, so every later statement and the commit fail with the same error.
///
/// Only writes to tables with transactions (InnoDB) are rolled back. Writes to a MyISAM or Aria table remain. If the
/// text of a statement contains `@` or `GET_LOCK`, the session ends after the transaction, so that no user variable or
/// named lock remains. Those that only a stored function or a trigger sets may remain for the next transaction.
///
/// [`DatabaseError::Deadlock`]: crate::mysql::DatabaseError::Deadlock
/// [`DatabaseError::WaitTimeout`]: crate::mysql::DatabaseError::WaitTimeout
#[derive(Debug)]
pub struct Tx<'a> {
    pub(crate) session: &'a mut Session,
}

impl Tx<'_> {
    /// Sets the time limit of each following statement; `Duration::MAX` is no limit.
    ///
    /// Defaults to one [`command_timeout`](crate::Builder::command_timeout), which always limits the commit and the
    /// rollback.
    pub fn statement_timeout(&mut self, timeout: Duration) {
        self.session.statement_timeout = timeout;
    }

    /// Runs a statement with its parameters (`?`, or `:name` with [`params!`](crate::mysql::params!)), and returns
    /// the number of affected rows.
    ///
    /// # Errors
    ///
    /// - [`Error::Unsupported`]: the statement might end the transaction, or the parameters do not fit the statement;
    /// - [`DatabaseError::WaitTimeout`], [`DatabaseError::Deadlock`]: another transaction has locked a row;
    /// - [`DatabaseError::TransactionLost`]: the connection was lost, or was closed because the statement got no reply
    ///   in time. The server then rolls the transaction back;
    /// - [`Error::Unavailable`], [`Error::Permission`], [`DatabaseError::Schema`], [`DatabaseError::Sql`]: the server
    ///   refused the statement; the error contains the server's message;
    /// - [`Error::Forked`]: in a forked child.
    ///
    /// [`DatabaseError::WaitTimeout`]: crate::mysql::DatabaseError::WaitTimeout
    /// [`DatabaseError::Deadlock`]: crate::mysql::DatabaseError::Deadlock
    /// [`DatabaseError::TransactionLost`]: crate::mysql::DatabaseError::TransactionLost
    /// [`DatabaseError::Schema`]: crate::mysql::DatabaseError::Schema
    /// [`DatabaseError::Sql`]: crate::mysql::DatabaseError::Sql
    pub fn exec(&mut self, statement: &str, params: impl Into<Params>) -> Result<u64> {
        self.check_allowed(statement)?;
        Ok(self.session.execute(statement, params.into())?.1)
    }

    /// Runs a query and returns its rows, each as one value, a tuple or a [`Row`](crate::mysql::Row).
    ///
    /// If a requested type is a number, the bytes of a BIT, BINARY or BLOB column are parsed as digits. Read such a
    /// column as `Vec<u8>`, or convert it on the server: `SELECT flags + 0`.
    ///
    /// # Errors
    ///
    /// Those of [`Tx::exec`]; [`Error::Unsupported`] if a row does not have the requested type.
    pub fn query<T: FromRow>(
        &mut self,
        statement: &str,
        params: impl Into<Params>,
    ) -> Result<Vec<T>> {
        self.check_allowed(statement)?;
        self.session.query(statement, params.into())
    }

    /// Runs a query and returns its first row; `None` if there are no rows.
    ///
    /// # Errors
    ///
    /// Those of [`Tx::query`].
    pub fn query_first<T: FromRow>(
        &mut self,
        statement: &str,
        params: impl Into<Params>,
    ) -> Result<Option<T>> {
        Ok(self.query(statement, params)?.into_iter().next())
    }

    fn check_allowed(&mut self, statement: &str) -> Result<()> {
        match first_word(statement) {
            Some(word) if ALLOWED.contains(&&*word) => {
                if changes_session(statement) {
                    self.session.is_tainted = true;
                }
                Ok(())
            }
            word => {
                let reason = format!(
                    "{} is refused in the transaction of a lock, because it may end the transaction silently; run \
                        it elsewhere. Allowed are {}",
                    word.as_deref().unwrap_or("this statement"),
                    ALLOWED.join(", ")
                );
                Err(Error::unsupported(&self.session.subject, reason))
            }
        }
    }
}

impl Guard {
    /// Runs `work` in a transaction that commits only if this lock is held at the moment of the commit.
    ///
    /// The transaction first locks the row of the lock. So no other client can acquire the lock until the transaction ends,
    /// even if the lease ends earlier. `work` therefore writes while the lock is held, or writes nothing. The transaction
    /// commits if `work` returns `Ok`, and rolls back if `work` returns `Err` or panics. The data must be in the same
    /// database as the lock. So the client must have a `mysql://` URL.
    ///
    /// The hold is not renewed during the transaction, so [`Guard::is_valid`] may turn false. The commit renews the hold, and
    /// `is_valid` turns true again, unless a fixed lease has ended. Inside `work`, a re-entry or an unlock of this lock by
    /// the holding thread returns [`Error::Unsupported`]. If `work` drops a guard of this lock, the guard unlocks after the
    /// transaction. Any other acquisition of this lock has to wait until the transaction ends. So `work` must not wait
    /// for such an acquisition. The server ends a transaction that is idle for a minute.
    ///
    /// # Errors
    ///
    /// The error of `work`; then nothing was written. In addition:
    ///
    /// - [`Error::Lost`]: the lock was lost before the transaction, and `work` did not run;
    /// - [`Error::NotHeld`]: [`Lock::unlock`](crate::Lock::unlock) unlocked the lock before the transaction, and `work` did
    ///   not run;
    /// - [`DatabaseError::TransactionLost`]: the transaction was lost, and nothing was written;
    /// - [`Error::Unknown`]: the commit got no reply;
    /// - [`Error::Exhausted`]: no connection became free within the
    ///   [`command_timeout`](crate::Builder::command_timeout), and `work` did not run;
    /// - [`Error::Unsupported`]: the lock is not in a database, or another transaction of this hold is open;
    /// - [`Error::Unreachable`], [`Error::Untrusted`], [`Error::Unavailable`], [`Error::Permission`],
    ///   [`Error::Unexpected`], [`DatabaseError::WaitTimeout`], [`DatabaseError::Deadlock`], [`DatabaseError::Schema`],
    ///   [`DatabaseError::Sql`]: the server was not reached, or replied with an error, and nothing was written;
    /// - [`Error::Forked`]: in a forked child.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use redlatch::{Client, Error};
    /// let client = Client::open("mysql://app:secret@127.0.0.1/shop")?;
    /// let guard = client.lock("lock:stock:42").guard()?;
    /// guard.transaction(|tx| {
    ///     tx.exec("UPDATE stock SET left_over = left_over - 1 WHERE id = ?", (42,))?;
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// [`DatabaseError::TransactionLost`]: crate::mysql::DatabaseError::TransactionLost
    /// [`DatabaseError::WaitTimeout`]: crate::mysql::DatabaseError::WaitTimeout
    /// [`DatabaseError::Deadlock`]: crate::mysql::DatabaseError::Deadlock
    /// [`DatabaseError::Schema`]: crate::mysql::DatabaseError::Schema
    /// [`DatabaseError::Sql`]: crate::mysql::DatabaseError::Sql
    pub fn transaction<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        transaction(self.held(), work)
    }
}

impl OwnedGuard {
    /// Runs `work` on the calling thread, in a transaction that commits only if this lock is held at the moment of the
    /// commit; see [`Guard::transaction`](crate::Guard::transaction).
    ///
    /// # Errors
    ///
    /// Those of [`Guard::transaction`](crate::Guard::transaction). [`Error::Unsupported`] may also mean that another
    /// thread has an open transaction of this guard.
    pub fn transaction<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        transaction(self.held(), work)
    }
}

fn transaction<T, E: From<Error>>(
    held: &HeldLevel,
    work: impl FnOnce(&mut Tx<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let (raw_lock, database, hold) = held.parts();
    raw_lock.ready()?;
    let mut pin = Pin::begin(raw_lock, database, hold)?;
    // `session` is dropped before `pin`: the row must be unlocked before the watchdog renews the hold.
    let Some(mut session) = pin.store.pin(&hold.extension(), IDLE_LIMIT)? else {
        let store = pin.store;
        drop(pin);
        let cause = store.cause_of_loss(&hold.extension())?;
        raw_lock.inner.watchdog.lose(hold, cause.clone());
        return Err(E::from(hold.lost_error(cause)));
    };
    let value = work(&mut Tx {
        session: &mut session,
    })?;
    pin.commit(session)?;
    Ok(value)
}

/// A hold whose row a transaction has locked. The watchdog does not renew the hold until the `Pin` is dropped.
struct Pin<'a> {
    raw_lock: &'a RawLock,
    store: &'a MySql,
    hold: &'a Arc<Hold>,
    committed: Option<(BootInstant, Duration)>,
}

impl<'a> Pin<'a> {
    fn begin(
        raw_lock: &'a RawLock,
        store: Option<&'a MySql>,
        hold: &'a Arc<Hold>,
    ) -> Result<Pin<'a>> {
        let unsupported = |reason: &str| Error::unsupported(&hold.name, reason);
        let store = store.ok_or_else(|| {
            unsupported("only a lock in a database can run a transaction; open the client with a mysql:// URL")
        })?;
        if hold.is_held()
            && let Some(cause) = hold.lapse()
        {
            raw_lock.inner.watchdog.end(hold, cause);
        }
        if let Some(cause) = hold.loss_cause() {
            return Err(hold.lost_error(cause));
        }
        if !hold.is_held() {
            return Err(raw_lock.given_back(hold));
        }
        if !hold.pin() {
            let reason = "this hold already has an open transaction; use that one";
            return Err(unsupported(reason));
        }
        Ok(Pin {
            raw_lock,
            store,
            hold,
            committed: None,
        })
    }

    fn commit(&mut self, mut session: Session) -> Result<()> {
        let sent = BootInstant::now();
        let claim = self.hold.extension();
        // `claim.lease` is zero if a fixed lease has ended. The hold is then not extended. The writes are committed
        // nevertheless, because the locked row kept other clients out.
        let is_extended = !claim.lease.is_zero();
        session.statement_timeout = self.store.command_timeout;
        if is_extended && !self.store.extend_pinned(&mut session, &claim)? {
            return Err(session.lost("the row of the lock changed its owner while it was locked"));
        }
        session.commit()?;
        self.committed = is_extended.then_some((sent, claim.lease));
        Ok(())
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        // In a forked child, the hold and the watchdog belong to the parent process.
        let inner = &self.raw_lock.inner;
        if inner.is_forked() {
            return;
        }
        self.hold.unpin(self.committed);
        for level in self.hold.take_put_off() {
            match self.raw_lock.release(self.hold, level) {
                // `NotHeld`: `Lock::unlock` has already released this level of the re-entrant hold.
                Ok(()) | Err(Error::NotHeld { .. }) => {}
                Err(error) => events::unlock_failed(&self.hold.name, &error),
            }
        }
        // The hold was not renewed during the transaction, so the watchdog checks the hold at once.
        inner.watchdog.check_now(&self.hold.name);
    }
}
