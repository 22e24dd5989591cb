//! The locks in a database, on a real MariaDB.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod errors;
mod fork;
mod idle;
mod max_connections;
mod rows;
mod statements;
mod table_lock;
#[cfg(feature = "tls")]
mod tls;
mod transaction;
mod versioned;

pub(crate) use fork::play;
use redlatch::{Builder, Client};

use crate::support::{Database, MariaDb, ms};

/// An empty database with the tables of the locks.
fn database() -> Database<'static> {
    database_on(MariaDb::shared())
}

fn database_on(server: &MariaDb) -> Database<'_> {
    let database = server.database();
    make_tables(&database);
    database
}

/// Creates the lock tables, which is slow on a busy disk.
pub(crate) fn make_tables(database: &Database<'_>) {
    let patient = client_with(database, Client::builder().command_timeout(ms(20_000)));
    patient.create_tables().unwrap();
}

fn client(database: &Database<'_>) -> Client {
    client_with(database, Client::builder())
}

fn client_with(database: &Database<'_>, builder: Builder) -> Client {
    builder.open(&database.url()).unwrap()
}
