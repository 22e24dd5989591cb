//! Locks on rows of the user's tables, on a server with default settings and on a server with
//! `innodb_rollback_on_timeout`.

mod locking;
mod sessions;
mod waiting;

use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::mysql::DatabaseError;
use redlatch::mysql::{Isolation, RowGuard, RowTarget, Wait};
use redlatch::{Client, Error, Interrupt};

use locking::*;
use sessions::*;
use waiting::*;

use super::{client, client_with, database_on, make_tables};
use crate::support::{Database, MariaDb, ms};

macro_rules! on_both_servers {
    ($($law:ident)*) => {
        mod as_it_comes {
            $(
                #[test]
                fn $law() {
                    super::$law(crate::support::MariaDb::shared());
                }
            )*
        }

        mod rollback_on_timeout {
            $(
                #[test]
                #[ignore = "another server: make test-all"]
                fn $law() {
                    super::$law(super::rolling_back());
                }
            )*
        }
    };
}

on_both_servers! {
    a_row_lock_lasts_until_commit_rollback_or_drop
    a_wait_ends_at_its_timeout_or_when_the_row_is_free
    a_missing_row_is_reported_and_locks_nothing
    only_the_primary_key_finds_rows
    a_deadlock_is_reported_and_ends_the_transaction
    many_rows_are_locked_in_one_order
    names_make_their_own_rows
    an_idle_holder_is_ended
    statements_that_end_a_transaction_are_refused
    a_killed_holder_frees_the_row_at_once
    an_interrupt_and_a_shutdown_end_a_wait
    a_wait_for_a_connection_ends_like_any_other
    an_empty_list_of_keys_is_refused
}

/// A server that rolls back the whole transaction when a lock wait times out.
fn rolling_back() -> &'static MariaDb {
    static SERVER: OnceLock<MariaDb> = OnceLock::new();
    SERVER.get_or_init(|| MariaDb::with(&["--innodb-rollback-on-timeout=ON"]))
}

fn with_accounts(server: &'static MariaDb) -> (Database<'static>, RowTarget) {
    let database = database_on(server);
    database.run(
        "CREATE TABLE accounts (id INT PRIMARY KEY, code VARCHAR(20), balance INT NOT NULL, KEY (code));\n\
         INSERT INTO accounts VALUES (1, 'a', 100), (2, 'b', 100), (3, 'c', 100), (4, 'd', 100);\n\
         CREATE TABLE texts (name VARCHAR(50) PRIMARY KEY);\n\
         INSERT INTO texts VALUES ('Anna'), ('berta'), ('7')",
    );
    (database, RowTarget::table("accounts", "id").unwrap())
}

fn is_timeout<T>(result: &Result<T, Error>) -> bool {
    matches!(
        result,
        Err(Error::Database(DatabaseError::WaitTimeout { .. }))
    )
}

fn is_send<T: Send>() {}
