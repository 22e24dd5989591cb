//! What a client of a database can do beside locking: look after its tables.

use std::time::Duration;

use crate::client::Client;
use crate::error::Result;
use crate::row_lock::store;
use crate::stores::mysql::MySql;

impl Client {
    /// Makes the tables of the locks, [`lock_table`](crate::Builder::lock_table) and that of the named rows, unless they
    /// are there.
    ///
    /// Nothing else makes them, and each client makes sure of the lock table before its first lock. It needs the right
    /// `CREATE`; locking needs `SELECT`, `INSERT` and `UPDATE`.
    ///
    /// # Errors
    ///
    /// [`Error::Permission`](crate::Error::Permission); as [`Client::check_schema`] if a table of that name is something else;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the client is not one of a database.
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
        self.database()?.create_tables()
    }

    /// Makes sure that the tables of the locks are there and are what the locks rely on: engine, primary key, columns.
    ///
    /// # Errors
    ///
    /// [`Error::Schema`](crate::Error::Schema) that says what is missing or wrong; [`Error::Unsupported`](crate::Error::Unsupported) if the client is not one of a
    /// database.
    pub fn check_schema(&self) -> Result<()> {
        self.database()?.check_schema()
    }

    /// Forgets the names of locks that have been free for `free_for`, at most `limit` of them, and returns how many.
    ///
    /// The row of a lock stays when it is unlocked, for its fencing number. Names without number (one per order, say)
    /// would fill the table; this is for them. It needs the right `DELETE`.
    ///
    /// A name that comes back starts with the server's time as its number, so numbers go on rising all the same, unless
    /// the server's clock is set back by more than `free_for` afterwards, or its place is taken by a server whose clock is
    /// that far behind. With an hour there is room for both.
    ///
    /// # Errors
    ///
    /// [`Error::Permission`](crate::Error::Permission), [`Error::Unreachable`](crate::Error::Unreachable), …; [`Error::Unsupported`](crate::Error::Unsupported) if the client is not one of a database.
    pub fn purge(&self, free_for: Duration, limit: u32) -> Result<u64> {
        self.database()?.purge(free_for, limit)
    }

    fn database(&self) -> Result<&MySql> {
        store(self.core(), &"(client)".into())
    }
}
