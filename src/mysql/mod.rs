//! Row locks, optimistic updates and transactions in MySQL and MariaDB. Feature `mysql`.
//!
//! All of them need a client that was opened with a `mysql://` or `mysqls://` URL. The methods are
//! [`Client::row_lock`](crate::Client::row_lock), [`Client::lock_many`](crate::Client::lock_many),
//! [`Client::versioned`](crate::Client::versioned) and [`Guard::transaction`](crate::Guard::transaction).
//!
//! Statements take [`Params`], into which tuples convert. Queries return rows as tuples, single values or a [`Row`]. These
//! types are from the crate `mysql` 28. Its documentation says where [`params!`] and [`Row::get`] panic. [`Row::get_opt`]
//! does not panic.
//!
//! ```no_run
//! use redlatch::Client;
//! use redlatch::mysql::{RowTarget, Wait};
//!
//! let client = Client::open("mysql://app:secret@127.0.0.1/shop")?;
//! let accounts = RowTarget::table("accounts", "id")?;
//! let mut guard = client.row_lock(&accounts, 42).lock(Wait::Forever)?;
//! let found: Option<(String, i64)> = guard
//!     .tx()
//!     .query_first("SELECT owner, balance FROM accounts WHERE id = ?", (42,))?;
//! # Ok::<(), redlatch::Error>(())
//! ```

mod allowed_statements;
pub(crate) mod database;
pub(crate) mod row_lock;
pub(crate) mod transaction;
pub(crate) mod versioned;
pub(crate) mod versioned_row;

pub use crate::ground::error::database::DatabaseError;
#[doc(no_inline)]
pub use crate::stores::mysql::values::{
    Column, FromRow, FromRowError, FromValue, FromValueError, Params, Row, ToValue, Value, params,
};
pub use row_lock::{Isolation, RowGuard, RowLock, RowTarget, Wait};
pub use transaction::Tx;
pub use versioned::{Check, Versioned};
pub use versioned_row::{Changes, Outcome, Step, VersionedRow};
