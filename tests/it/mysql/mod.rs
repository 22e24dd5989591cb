//! The locks in a database, on a real MariaDB.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod errors;
mod fork;
mod rows;
mod statements;
mod table_lock;
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
    // Making a table takes long on a busy disk.
    client_with(&database, Client::builder().command_timeout(ms(20_000)))
        .create_tables()
        .unwrap();
    database
}

fn client(database: &Database<'_>) -> Client {
    client_with(database, Client::builder())
}

fn client_with(database: &Database<'_>, builder: Builder) -> Client {
    builder.open(&database.url()).unwrap()
}
