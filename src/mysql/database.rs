//! The lock tables: create, check and purge.

use std::time::Duration;

use crate::client::Client;
use crate::ground::error::Result;
use crate::mysql::row_lock::store;
use crate::stores::mysql::MySql;

impl Client {
    /// Creates the [`lock_table`](crate::Builder::lock_table) and the table of the [named
    /// rows](crate::mysql::RowTarget::named), unless they exist.
    ///
    /// No other call creates these tables. Each client checks the lock table before its first lock. This call needs the
    /// right `CREATE`; locking needs `SELECT`, `INSERT` and `UPDATE`. Each statement is limited to one
    /// [`command_timeout`](crate::Builder::command_timeout), which may be too short for a slow disk.
    ///
    /// # Errors
    ///
    /// [`Error::Permission`](crate::Error::Permission) without the right `CREATE`,
    /// [`DatabaseError::WaitTimeout`](crate::mysql::DatabaseError::WaitTimeout) while another session alters a table,
    /// and those of [`Client::check_schema`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let client = redlatch::Client::open("mysql://app:secret@127.0.0.1/shop")?;
    /// client.create_tables()?;
    /// client.lock("lock:orders:42").run(|_| println!("alone"))?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn create_tables(&self) -> Result<()> {
        self.tables()?.create_tables()
    }

    /// Checks that the lock tables exist and have the engine, primary key and columns that the locks need.
    ///
    /// # Errors
    ///
    /// - [`DatabaseError::Schema`](crate::mysql::DatabaseError::Schema): a table is missing or wrong; the error contains the
    ///   reason;
    /// - [`Error::Unsupported`](crate::Error::Unsupported): the client is not for a database;
    /// - [`Error::Unreachable`](crate::Error::Unreachable), [`Error::Untrusted`](crate::Error::Untrusted),
    ///   [`Error::Exhausted`](crate::Error::Exhausted), [`Error::Unavailable`](crate::Error::Unavailable),
    ///   [`Error::Permission`](crate::Error::Permission), [`DatabaseError::Sql`](crate::mysql::DatabaseError::Sql),
    ///   [`Error::Unexpected`](crate::Error::Unexpected): the server could not be queried;
    /// - [`Error::Forked`](crate::Error::Forked): the client was created before this process was forked.
    pub fn check_schema(&self) -> Result<()> {
        self.tables()?.check_schema()
    }

    /// Deletes at most `limit` rows of locks that were unlocked at least `free_for` ago, and returns their number.
    ///
    /// The row of a lock stays after an unlock, because it contains the fencing token. Without this call, names that are
    /// used only once would fill the table. Rows of holds that expired without an unlock stay. The right `DELETE` is needed.
    ///
    /// When a lock is acquired after its row was deleted, its first fencing token is the server's time. So its tokens keep
    /// rising, unless the server's clock goes back by more than `free_for`, for example at a failover. One hour is safe.
    ///
    /// # Errors
    ///
    /// [`DatabaseError::WaitTimeout`](crate::mysql::DatabaseError::WaitTimeout) or
    /// [`DatabaseError::Deadlock`](crate::mysql::DatabaseError::Deadlock) if a transaction has locked one of the rows, and
    /// those of [`Client::check_schema`]. The call may have deleted some rows before an error.
    pub fn purge(&self, free_for: Duration, limit: u32) -> Result<u64> {
        self.tables()?.purge(free_for, limit)
    }

    fn tables(&self) -> Result<&MySql> {
        store(self, &"(client)".into())
    }
}
