//! The locks in a database, on a real MariaDB.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod errors;
mod rows;
mod statements;
mod table_lock;
mod transaction;
mod versioned;

use redlatch::{Builder, Client};

use crate::kit::{Database, MariaDb};

/// An empty database with the tables of the locks.
fn database() -> Database<'static> {
    let database = MariaDb::shared().database();
    Client::open(&database.url())
        .unwrap()
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
