//! Locks on rows of the user's tables, on a server as it comes and on one that undoes a transaction whose wait was
//! refused.

use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use redlatch::mysql::{Check, DateTime, Isolation, RowGuard, RowTarget, Value, Wait};
use redlatch::{Client, Error, Interrupt};

use super::{client, client_with, database_on};
use crate::support::{Database, MariaDb, eventually, ms};

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
                fn $law() {
                    super::$law(super::rolling_back());
                }
            )*
        }
    };
}

on_both_servers! {
    a_row_belongs_to_one_until_it_commits_rolls_back_or_is_dropped
    a_wait_ends_when_it_should
    a_missing_row_is_told_and_locks_nothing
    only_the_primary_key_finds_rows
    a_deadlock_is_told_and_the_transaction_is_over
    many_rows_are_locked_in_one_order
    names_make_their_own_rows
    an_idle_holder_is_ended
    what_ends_a_transaction_is_refused_and_the_level_can_be_chosen
    a_killed_holder_frees_the_row_at_once
    an_interrupt_and_a_shutdown_end_a_wait
    a_refused_wait_leaves_no_statement_outside_of_a_transaction
    a_savepoint_tells_whether_its_transaction_still_stands
    a_wait_for_a_connection_ends_as_any_other
    a_key_of_another_kind_is_refused_and_locks_nothing
    a_statement_without_limit_is_no_panic
    no_rows_are_no_lock
    what_a_transaction_leaves_in_its_session_ends_with_it
}

/// A server that rolls back the whole transaction when a wait for a row is over.
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
    matches!(result, Err(Error::WaitTimeout { .. }))
}

fn is_send<T: Send>() {}

fn a_row_belongs_to_one_until_it_commits_rolls_back_or_is_dropped(server: &'static MariaDb) {
    is_send::<RowGuard>();
    let (database, accounts) = with_accounts(server);
    let (mine, theirs) = (client(&database), client(&database));
    let lock = mine.row_lock(&accounts, 1);
    let other = theirs.row_lock(&accounts, 1);
    for ending in 0..3 {
        let mut guard = lock.lock(Wait::Forever).unwrap();
        guard
            .tx()
            .exec(
                "UPDATE accounts SET balance = balance - 10 WHERE id = 1",
                (),
            )
            .unwrap();
        assert!(other.try_lock().unwrap().is_none());
        let elsewhere = theirs.row_lock(&accounts, 2).try_lock().unwrap();
        assert!(elsewhere.is_some(), "another row");
        match ending {
            0 => guard.commit().unwrap(),
            1 => guard.rollback().unwrap(),
            _ => drop(guard),
        }
        assert!(other.try_lock().unwrap().is_some());
        let balance: i64 = database.first("SELECT balance FROM accounts WHERE id = 1");
        assert_eq!(balance, 90, "ending {ending}");
    }
}

fn a_wait_ends_when_it_should(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    let lock = client.row_lock(&accounts, 1);
    let guard = lock.lock(Wait::Never).unwrap();
    for wait in [ms(0), ms(150), ms(1000), ms(1500), ms(2300)] {
        let start = Instant::now();
        let refused = lock.lock(Wait::For(wait));
        assert!(is_timeout(&refused), "{refused:?}");
        let took = start.elapsed();
        assert!(
            took >= wait && took < wait + ms(900),
            "{took:?} for {wait:?}"
        );
    }
    let error = lock.lock(Wait::Never).unwrap_err();
    assert!(error.to_string().contains("accounts[1]"), "{error}");
    thread::scope(|scope| {
        let forever = scope.spawn(|| lock.lock(Wait::Forever).map(drop));
        let timed = scope.spawn(|| lock.lock(Wait::For(Duration::from_secs(20))).map(drop));
        thread::sleep(ms(1200));
        assert!(!forever.is_finished() && !timed.is_finished());
        let freed = Instant::now();
        drop(guard);
        forever.join().unwrap().unwrap();
        timed.join().unwrap().unwrap();
        assert!(freed.elapsed() < ms(900), "{:?}", freed.elapsed());
    });
}

fn a_missing_row_is_told_and_locks_nothing(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    let error = client
        .row_lock(&accounts, 77)
        .lock(Wait::Never)
        .unwrap_err();
    assert!(
        matches!(&error, Error::RowNotFound { key, .. } if key == "77"),
        "{error}"
    );
    let result = client.lock_many(&accounts, [1, 77], Wait::Never);
    assert!(matches!(result, Err(Error::RowNotFound { .. })));
    assert!(client.row_lock(&accounts, 1).try_lock().unwrap().is_some());
    database.run("INSERT INTO accounts VALUES (77, 'x', 0)");
}

fn only_the_primary_key_finds_rows(server: &'static MariaDb) {
    let (database, _) = with_accounts(server);
    database.run(
        "CREATE TABLE pairs (a INT, b INT, PRIMARY KEY (a, b));\n\
         CREATE TABLE heap (id INT PRIMARY KEY) ENGINE=MyISAM;\n\
         CREATE VIEW seen AS SELECT * FROM accounts",
    );
    let client = client(&database);
    for (table, key) in [
        ("accounts", "balance"),
        ("accounts", "code"),
        ("accounts", "nothing"),
        ("pairs", "a"),
        ("heap", "id"),
        ("seen", "id"),
        ("absent", "id"),
    ] {
        let target = RowTarget::table(table, key).unwrap();
        let error = client.row_lock(&target, 1).lock(Wait::Never).unwrap_err();
        assert!(
            matches!(error, Error::Schema { .. }),
            "{table}.{key}: {error}"
        );
        assert!(error.to_string().contains(table), "{error}");
    }
    for name in ["a b", "a`", "", "a;b"] {
        assert!(RowTarget::table(name, "id").is_err());
        assert!(RowTarget::table("accounts", name).is_err());
    }
    // A number for a text column would read every row.
    let texts = RowTarget::table("texts", "name").unwrap();
    let guard = client.row_lock(&texts, 7).lock(Wait::Never).unwrap();
    assert!(
        client
            .row_lock(&texts, "Anna")
            .try_lock()
            .unwrap()
            .is_some()
    );
    assert!(client.row_lock(&texts, "7").try_lock().unwrap().is_none());
    drop(guard);
}

fn a_deadlock_is_told_and_the_transaction_is_over(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client_with(
        &database,
        Client::builder().command_timeout(Duration::from_secs(5)),
    );
    let barrier = Barrier::new(2);
    let crossed = |first: i32, second: i32| {
        let mut guard = client
            .row_lock(&accounts, first)
            .lock(Wait::Forever)
            .unwrap();
        barrier.wait();
        let moved = guard.tx().exec(
            "UPDATE accounts SET balance = balance + 1 WHERE id = ?",
            (second,),
        );
        match moved {
            Ok(_) => guard.commit().map(|()| true),
            Err(error @ Error::Deadlock { .. }) => {
                // A statement after it would stand alone, outside of any transaction.
                let again = guard.tx().exec("UPDATE accounts SET balance = 0", ());
                assert!(matches!(again, Err(Error::Deadlock { .. })), "{again:?}");
                assert!(matches!(guard.commit(), Err(Error::Deadlock { .. })));
                assert!(error.to_string().contains("lock_many"), "{error}");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    };
    let (one, two) = thread::scope(|scope| {
        let two = scope.spawn(|| crossed(2, 1));
        (crossed(1, 2).unwrap(), two.join().unwrap().unwrap())
    });
    assert!(one != two, "one of them is the victim");
    let sum: i64 = database.first("SELECT CAST(SUM(balance) AS SIGNED) FROM accounts");
    assert_eq!(sum, 401);
}

fn many_rows_are_locked_in_one_order(server: &'static MariaDb) {
    // A server of its own, as the count of deadlocks is the server's.
    let server = server.another();
    let database = server.database();
    let client = client(&database);
    client.create_tables().unwrap();
    database.run(
        "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL);\n\
         INSERT INTO accounts VALUES (1, 100), (2, 100), (3, 100), (10, 100)",
    );
    let accounts = RowTarget::table("accounts", "id").unwrap();
    thread::scope(|scope| {
        for number in 0..8i32 {
            let (client, accounts) = (&client, &accounts);
            scope.spawn(move || {
                let keys = [1, 2, 3, 10];
                for round in 0..25 {
                    let from = keys[((number + round) % 4) as usize];
                    let to = keys[((number * 3 + round * 2 + 1) % 4) as usize];
                    let mut guard = client
                        .lock_many(accounts, [from, to], Wait::For(Duration::from_secs(20)))
                        .unwrap();
                    for (key, amount) in [(from, -1), (to, 1)] {
                        guard
                            .tx()
                            .exec(
                                "UPDATE accounts SET balance = balance + ? WHERE id = ?",
                                (amount, key),
                            )
                            .unwrap();
                    }
                    guard.commit().unwrap();
                }
            });
        }
    });
    let sum: i64 = database.first("SELECT CAST(SUM(balance) AS SIGNED) FROM accounts");
    assert_eq!(sum, 400);
    let (_, deadlocks): (String, u64) =
        database.first("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'");
    assert_eq!(deadlocks, 0);
    // The same row by two names, and all or none.
    let held = client.row_lock(&accounts, 3).lock(Wait::Never).unwrap();
    let refused = client.lock_many(&accounts, [1, 1, 3], Wait::Never);
    assert!(is_timeout(&refused));
    assert!(client.row_lock(&accounts, 1).try_lock().unwrap().is_some());
    drop(held);
}

fn names_make_their_own_rows(server: &'static MariaDb) {
    let database = database_on(server);
    let (mine, theirs) = (client(&database), client(&database));
    let named = RowTarget::named();
    let guard = mine.row_lock(&named, "nightly").lock(Wait::Never).unwrap();
    assert!(
        theirs
            .row_lock(&named, "nightly")
            .try_lock()
            .unwrap()
            .is_none()
    );
    assert!(
        theirs
            .row_lock(&named, "Nightly")
            .try_lock()
            .unwrap()
            .is_some()
    );
    assert!(
        theirs
            .row_lock(&named, "nightly ")
            .try_lock()
            .unwrap()
            .is_some()
    );
    drop(guard);
    let both = theirs
        .lock_many(&named, ["b", "a", "b"], Wait::Never)
        .unwrap();
    assert!(mine.row_lock(&named, "a").try_lock().unwrap().is_none());
    both.commit().unwrap();
    // A name that is too long is not cut to one that somebody else has.
    let longest = "x".repeat(255);
    let guard = mine.row_lock(&named, &*longest).lock(Wait::Never).unwrap();
    for name in [longest.clone() + "y", longest + "z"] {
        let error = mine.row_lock(&named, name).lock(Wait::Never).unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        assert!(error.to_string().contains("255"), "{error}");
    }
    drop(guard);
    let rows: u64 = database.first("SELECT COUNT(*) FROM redlatch_rows");
    assert_eq!(rows, 6);
    // Many at once make one row.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let guard = mine.row_lock(&named, "fresh").lock(Wait::Forever).unwrap();
                guard.commit().unwrap();
            });
        }
    });
}

fn an_idle_holder_is_ended(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    let lock = client
        .row_lock(&accounts, 1)
        .with_idle_limit(Some(ms(1000)));
    let mut guard = lock.lock(Wait::Never).unwrap();
    guard
        .tx()
        .exec("UPDATE accounts SET balance = 0", ())
        .unwrap();
    let start = Instant::now();
    let next = client
        .row_lock(&accounts, 1)
        .lock(Wait::For(Duration::from_secs(10)))
        .unwrap();
    assert!(start.elapsed() < ms(4000), "{:?}", start.elapsed());
    let error = guard
        .tx()
        .exec("UPDATE accounts SET balance = 1", ())
        .unwrap_err();
    assert!(matches!(error, Error::TransactionLost { .. }), "{error}");
    assert!(guard.commit().unwrap_err().is_lost());
    drop(next);
    let guard = lock.lock(Wait::Never).unwrap();
    thread::sleep(ms(2500));
    assert!(guard.commit().unwrap_err().is_lost());
    let sum: i64 = database.first("SELECT CAST(SUM(balance) AS SIGNED) FROM accounts");
    assert_eq!(sum, 400, "nothing was written");
}

fn what_ends_a_transaction_is_refused_and_the_level_can_be_chosen(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    for (isolation, name) in [
        (Isolation::ReadCommitted, "READ-COMMITTED"),
        (Isolation::RepeatableRead, "REPEATABLE-READ"),
        (Isolation::Serializable, "SERIALIZABLE"),
    ] {
        let lock = client.row_lock(&accounts, 1).with_isolation(isolation);
        let mut guard = lock.lock(Wait::Never).unwrap();
        // The server renews this table only if nobody has looked at it for 100 ms.
        thread::sleep(ms(200));
        let level: Option<String> = guard
            .tx()
            .query_first(
                "SELECT trx_isolation_level FROM information_schema.INNODB_TRX \
                 WHERE trx_mysql_thread_id = CONNECTION_ID()",
                (),
            )
            .unwrap();
        assert_eq!(level.unwrap().replace(' ', "-"), name);
        for statement in [
            "DROP TABLE accounts",
            "begin",
            "ALTER TABLE accounts ADD x INT",
        ] {
            let error = guard.tx().exec(statement, ()).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        }
        assert!(client.row_lock(&accounts, 1).try_lock().unwrap().is_none());
        // What the user's own statement does wrong does not end it.
        assert!(guard.tx().exec("UPDATE nothing SET a = 1", ()).is_err());
        assert!(guard.tx().query::<i64>("SELECT 'text'", ()).is_err());
        guard
            .tx()
            .exec("UPDATE accounts SET balance = 7 WHERE id = 1", ())
            .unwrap();
        guard.commit().unwrap();
    }
}

fn a_killed_holder_frees_the_row_at_once(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    let mut guard = client.row_lock(&accounts, 1).lock(Wait::Never).unwrap();
    let id: u64 = guard
        .tx()
        .query_first("SELECT CONNECTION_ID()", ())
        .unwrap()
        .unwrap();
    database.run(&format!("KILL {id}"));
    let next = client
        .row_lock(&accounts, 1)
        .lock(Wait::For(ms(3000)))
        .unwrap();
    assert!(guard.commit().unwrap_err().is_lost());
    drop(next);
}

fn an_interrupt_and_a_shutdown_end_a_wait(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let holder = client(&database);
    let guard = holder.lock_many(&accounts, [1, 2], Wait::Forever).unwrap();
    let waiting = client(&database);
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let lock = waiting.row_lock(&accounts, 1);
        let (waiting, accounts, interrupt) = (&waiting, &accounts, &interrupt);
        let one = scope.spawn({
            let lock = lock.clone();
            move || lock.lock_interruptibly(Wait::Forever, interrupt)
        });
        let many = scope.spawn(move || {
            waiting.lock_many_interruptibly(accounts, [1, 3], Wait::Forever, interrupt)
        });
        let timed = scope.spawn({
            let lock = lock.clone();
            move || lock.lock_interruptibly(Wait::For(ms(30_000)), interrupt)
        });
        let closed = [
            scope.spawn({
                let lock = lock.clone();
                move || lock.lock(Wait::Forever)
            }),
            scope.spawn(move || waiting.lock_many(accounts, [2], Wait::For(ms(30_000)))),
        ];
        thread::sleep(ms(300));
        let start = Instant::now();
        interrupt.raise();
        for waiter in [one, many, timed] {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Interrupted { .. }), "{error}");
        }
        assert!(start.elapsed() < ms(6000), "{:?}", start.elapsed());
        assert!(closed.iter().all(|waiter| !waiter.is_finished()));
        let start = Instant::now();
        waiting.shutdown();
        for waiter in closed {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Closed { .. }), "{error}");
        }
        assert!(start.elapsed() < ms(6000), "{:?}", start.elapsed());
        // At once, whatever the row is.
        let free = holder.row_lock(accounts, 3);
        let error = free.lock_interruptibly(Wait::Never, interrupt).unwrap_err();
        assert!(matches!(error, Error::Interrupted { .. }), "{error}");
        let error = waiting.row_lock(accounts, 3).try_lock().unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error}");
    });
    guard.commit().unwrap();
    let all = holder.lock_many(&accounts, [1, 2, 3], Wait::Never);
    all.unwrap().commit().unwrap();
}

fn a_refused_wait_leaves_no_statement_outside_of_a_transaction(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    let other = super::client(&database);
    let balances = || -> (i64, i64) {
        let of = |id| database.first(&format!("SELECT balance FROM accounts WHERE id = {id}"));
        (of(1), of(2))
    };
    // Locked after one or more refusals, in fractions of a second and in whole ones.
    for (held_for, wait) in [
        (ms(100), ms(900)),
        (ms(1300), ms(1900)),
        (ms(1300), ms(30_000)),
    ] {
        for keys in [&[2][..], &[1, 2]] {
            let held = other.row_lock(&accounts, 2).lock(Wait::Never).unwrap();
            let mut guard = thread::scope(|scope| {
                let keys = keys.iter().copied();
                let waiter = scope.spawn(|| client.lock_many(&accounts, keys, Wait::For(wait)));
                thread::sleep(held_for);
                drop(held);
                waiter.join().unwrap().unwrap()
            });
            for key in keys {
                let found = other.row_lock(&accounts, *key).try_lock().unwrap();
                assert!(found.is_none(), "{key} is locked");
            }
            guard
                .tx()
                .exec("UPDATE accounts SET balance = 0", ())
                .unwrap();
            guard.rollback().unwrap();
            assert_eq!(balances(), (100, 100), "it was rolled back");
        }
    }
    // A statement of the user's own that is refused: nothing of the transaction is written, and nothing behind it.
    let held = other.row_lock(&accounts, 2).lock(Wait::Never).unwrap();
    let mut guard = client.row_lock(&accounts, 1).lock(Wait::Never).unwrap();
    let mut tx = guard.tx();
    tx.exec("UPDATE accounts SET balance = 1 WHERE id = 1", ())
        .unwrap();
    let refused = tx.exec("UPDATE accounts SET balance = 1 WHERE id = 2", ());
    assert!(is_timeout(&refused), "{refused:?}");
    let behind = tx.exec("UPDATE accounts SET balance = 2 WHERE id = 1", ());
    assert!(is_timeout(&behind), "{behind:?}");
    assert!(is_timeout(&guard.commit()));
    drop(held);
    assert_eq!(balances(), (100, 100));
}

/// What every commit relies on: no guard commits what came behind a rollback that nobody was told of.
fn a_savepoint_tells_whether_its_transaction_still_stands(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let held = client(&database)
        .row_lock(&accounts, 2)
        .lock(Wait::Never)
        .unwrap();
    let mut conn = database.conn();
    for statement in [
        "SET autocommit = 0, innodb_lock_wait_timeout = 1",
        "START TRANSACTION",
        "SAVEPOINT begun",
        "UPDATE accounts SET balance = 1 WHERE id = 1",
    ] {
        conn.query_drop(statement).unwrap();
    }
    assert!(
        conn.query_drop("UPDATE accounts SET balance = 1 WHERE id = 2")
            .is_err()
    );
    conn.query_drop("UPDATE accounts SET balance = 1 WHERE id = 3")
        .unwrap();
    let undoes_all: bool = database.first("SELECT @@global.innodb_rollback_on_timeout");
    let stands = conn.query_drop("RELEASE SAVEPOINT begun").is_ok();
    assert_eq!(stands, !undoes_all);
    drop(held);
}

fn a_wait_for_a_connection_ends_as_any_other(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let few = Client::builder()
        .command_timeout(Duration::from_secs(30))
        .pool_size(1);
    let client = client_with(&database, few);
    let guard = client.row_lock(&accounts, 1).lock(Wait::Never).unwrap();
    let other = client.row_lock(&accounts, 2);
    for wait in [Wait::Never, Wait::For(ms(500))] {
        let start = Instant::now();
        let error = other.lock(wait).unwrap_err();
        assert!(
            matches!(error, Error::Exhausted { connections: 1, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("row lock"), "{error}");
        let took = start.elapsed();
        assert!(took < ms(6000), "{took:?}");
        assert!(wait == Wait::Never || took >= ms(500), "{took:?}");
    }
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let (other, interrupt) = (&other, &interrupt);
        let waiter = scope.spawn(move || other.lock_interruptibly(Wait::Forever, interrupt));
        let closed = scope.spawn(move || other.lock(Wait::Forever).map(drop));
        thread::sleep(ms(300));
        let start = Instant::now();
        interrupt.raise();
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Interrupted { .. }), "{error}");
        assert!(!closed.is_finished());
        // It goes on as soon as there is a connection.
        let next = scope.spawn(move || other.lock(Wait::For(Duration::from_secs(20))).map(drop));
        guard.commit().unwrap();
        next.join().unwrap().unwrap();
        closed.join().unwrap().unwrap();
        let guard = other.lock(Wait::Never).unwrap();
        let closed = scope.spawn(move || other.lock(Wait::Forever));
        thread::sleep(ms(300));
        client.shutdown();
        let error = closed.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        assert!(start.elapsed() < ms(15_000), "{:?}", start.elapsed());
        drop(guard);
    });
}

fn a_key_of_another_kind_is_refused_and_locks_nothing(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    database.run(
        "CREATE TABLE days (id DATE PRIMARY KEY);\n\
         INSERT INTO days VALUES ('2026-01-01'), ('2026-01-02');\n\
         CREATE TABLE prices (id DECIMAL(9, 2) PRIMARY KEY);\n\
         INSERT INTO prices VALUES (0), (7.50);\n\
         INSERT INTO accounts VALUES (0, 'z', 0), (7, 'y', 0);\n\
         INSERT INTO texts VALUES ('2026-01-01'), ('20260101')",
    );
    let client = client(&database);
    let of = |table, key| RowTarget::table(table, key).unwrap();
    let (texts, days, prices) = (of("texts", "name"), of("days", "id"), of("prices", "id"));
    let day = DateTime {
        year: 2026,
        month: 1,
        day: 1,
        ..DateTime::default()
    };
    let span = Value::from(ms(7000));
    let refused = [
        (&accounts, Value::from("abc")),
        (&accounts, Value::from("7x")),
        (&accounts, Value::from("7")),
        (&accounts, Value::from("")),
        (&accounts, Value::from(day)),
        (&accounts, span.clone()),
        (&prices, Value::from("7.50x")),
        (&texts, Value::from(day)),
        (&texts, span.clone()),
        (&days, Value::from("x")),
        (&days, Value::from("")),
        (&days, span),
    ];
    for (target, key) in refused {
        for error in [
            client.row_lock(target, key.clone()).try_lock().unwrap_err(),
            client
                .lock_many(target, [&key, &key], Wait::Never)
                .unwrap_err(),
        ] {
            assert!(matches!(error, Error::Unsupported { .. }), "{key}: {error}");
        }
    }
    let stock = client
        .versioned(
            "accounts",
            "id",
            &["code"],
            Check::Version("balance".into()),
        )
        .unwrap();
    for key in ["abc", "7x", ""] {
        let error = stock.get(key).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{key}: {error}");
    }
    for (target, key) in [
        (&accounts, Value::from(7)),
        (&prices, Value::from("7.50")),
        (&prices, Value::from(0)),
        (&texts, Value::from("2026-01-01")),
        (&days, Value::from(day)),
        (&days, Value::from("2026-01-01")),
    ] {
        let guard = client.row_lock(target, key.clone()).try_lock();
        assert!(guard.unwrap().is_some(), "{key}");
    }
}

fn a_statement_without_limit_is_no_panic(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    for ending in 0..3 {
        let mut guard = client.row_lock(&accounts, 1).lock(Wait::Never).unwrap();
        let mut tx = guard.tx();
        for limit in [Duration::from_secs(u64::MAX / 4), Duration::MAX] {
            tx.statement_timeout(limit);
            assert_eq!(tx.query::<i64>("SELECT 1", ()).unwrap(), [1]);
        }
        match ending {
            0 => guard.commit().unwrap(),
            1 => guard.rollback().unwrap(),
            _ => drop(guard),
        }
    }
    let guard = client.lock("without limit").guard().unwrap();
    let done = guard.transaction(|tx| {
        tx.statement_timeout(Duration::MAX);
        tx.exec("UPDATE accounts SET balance = 5 WHERE id = 1", ())
    });
    assert_eq!(done.unwrap(), 1);
}

fn no_rows_are_no_lock(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    for target in [accounts, RowTarget::named()] {
        let error = client
            .lock_many(&target, Vec::<i64>::new(), Wait::Never)
            .unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("no key"), "{error}");
    }
}

fn what_a_transaction_leaves_in_its_session_ends_with_it(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    let lock = client.row_lock(&accounts, 1);
    for ending in 0..3 {
        let name = format!("{}.{ending}", database.name);
        let mut guard = lock.lock(Wait::Never).unwrap();
        let mut tx = guard.tx();
        let got: Vec<i64> = tx.query("SELECT GET_LOCK(?, 0)", (&*name,)).unwrap();
        assert_eq!(got, [1]);
        tx.exec("SELECT @secret := 'of the first'", ()).unwrap();
        match ending {
            0 => guard.commit().unwrap(),
            1 => guard.rollback().unwrap(),
            _ => drop(guard),
        }
        eventually(ms(5000), "the lock is free", || {
            database.first(&format!("SELECT IS_FREE_LOCK('{name}')"))
        });
        let mut guard = lock.lock(Wait::Never).unwrap();
        let seen: Vec<Option<String>> = guard.tx().query("SELECT @secret", ()).unwrap();
        assert_eq!(seen, [None]);
        guard.commit().unwrap();
    }
    // Another transaction costs no other connection.
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut guard = lock.lock(Wait::Never).unwrap();
        ids.extend(
            guard
                .tx()
                .query::<u64>("SELECT CONNECTION_ID()", ())
                .unwrap(),
        );
        guard.commit().unwrap();
    }
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn what_the_server_does_behind_a_commit_does_not_reach_a_session() {
    for kind in ["CHAIN", "RELEASE"] {
        let server = MariaDb::with(&[&format!("--completion-type={kind}")]);
        let database = database_on(&server);
        database.run(
            "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL);
             INSERT INTO accounts VALUES (1, 100);
             COMMIT",
        );
        let client = client(&database);
        let accounts = RowTarget::table("accounts", "id").unwrap();
        let row = client.row_lock(&accounts, 1);
        for round in 0..4 {
            let guard = row.lock(Wait::For(ms(2000)));
            let mut guard = guard.unwrap_or_else(|error| panic!("{kind}, {round}: {error}"));
            guard
                .tx()
                .exec("UPDATE accounts SET balance = balance - 1 WHERE id = 1", ())
                .unwrap();
            match round {
                0..2 => guard.commit().unwrap(),
                _ => guard.rollback().unwrap(),
            }
        }
        let (balance,): (i32,) = database.first("SELECT balance FROM accounts WHERE id = 1");
        assert_eq!(balance, 98, "{kind}");
        // A waiter begins anew after each refusal.
        let guard = row.lock(Wait::Forever).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| row.lock(Wait::For(ms(10_000))).map(drop));
            thread::sleep(ms(1500));
            drop(guard);
            waiter.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_limit_of_the_server_hides_no_column_of_a_key() {
    let server = MariaDb::with(&["--init-connect=SET sql_select_limit = 1"]);
    let database = database_on(&server);
    database.run("CREATE TABLE seats (hall INT, seat INT, PRIMARY KEY (hall, seat))");
    let halls = RowTarget::table("seats", "hall").unwrap();
    let refusal = client(&database).row_lock(&halls, 1).lock(Wait::For(ms(0)));
    assert!(matches!(refusal, Err(Error::Schema { .. })), "{refusal:?}");
}
