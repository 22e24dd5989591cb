//! Optimistic updates: none is lost, and the test could detect a lost one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use mysql::prelude::Queryable;
use redlatch::mysql::DatabaseError;
use redlatch::mysql::{Changes, Check, Step, Versioned};
use redlatch::{Client, Error};

use super::{client, client_with, database};
use crate::support::{Database, ms};

const WRITERS: u64 = 8;
const ROUNDS: u64 = 25;

fn with_stock() -> Database<'static> {
    let database = database();
    database.run(
        "CREATE TABLE stock (id INT PRIMARY KEY, qty INT NOT NULL, note VARCHAR(20) NULL, \
         version INT NOT NULL DEFAULT 0, at0 DATETIME NULL, at3 DATETIME(3) NULL, \
         at6 TIMESTAMP(6) NULL, loose INT NULL);\n\
         INSERT INTO stock (id, qty) VALUES (1, 0), (2, 0)",
    );
    database
}

fn qty(database: &Database<'_>) -> u64 {
    database.first("SELECT qty FROM stock WHERE id = 1")
}

fn versioned(database: &Database<'_>, check: Check) -> Versioned {
    // On a busy machine a statement may wait for a row longer than the server's timeout.
    client_with(database, Client::builder().command_timeout(ms(20_000)))
        .versioned("stock", "id", &["qty", "note"], check)
        .unwrap()
        .with_attempts(1000)
}

#[test]
fn no_update_is_lost_by_any_check() {
    let database = with_stock();
    for check in [
        Check::Version("version".into()),
        Check::UpdatedAt("at0".into()),
        Check::UpdatedAt("at3".into()),
        Check::UpdatedAt("at6".into()),
    ] {
        database.run("UPDATE stock SET qty = 0");
        let stock = versioned(&database, check.clone());
        let attempts = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let outcome = stock
                            .update_with(1, |row| {
                                let qty: i64 = row.get("qty")?;
                                // Long enough that other threads write meanwhile.
                                thread::sleep(ms(1));
                                Ok::<_, Error>(Step::Set(Changes::new().set("qty", qty + 1), ()))
                            })
                            .unwrap();
                        assert!(outcome.written);
                        attempts.fetch_add(u64::from(outcome.attempts), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(qty(&database), WRITERS * ROUNDS, "{check:?}");
        assert!(
            attempts.load(Ordering::Relaxed) > WRITERS * ROUNDS,
            "there were conflicts: {check:?}"
        );
    }
}

#[test]
fn a_loop_without_checks_loses_updates() {
    let database = with_stock();
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let mut conn = database.conn();
                for _ in 0..ROUNDS {
                    let qty: i64 = conn
                        .query_first("SELECT qty FROM stock WHERE id = 1")
                        .unwrap()
                        .unwrap();
                    thread::yield_now();
                    conn.exec_drop("UPDATE stock SET qty = ? WHERE id = 1", (qty + 1,))
                        .unwrap();
                }
            });
        }
    });
    assert!(qty(&database) < WRITERS * ROUNDS);
}

#[test]
fn an_update_counts_only_if_nothing_changed_meanwhile() {
    let database = with_stock();
    let stock = versioned(&database, Check::Version("version".into()));
    let seen = stock.get(1).unwrap().unwrap();
    assert_eq!(seen.get::<i64>("qty").unwrap(), 0);
    assert_eq!(seen.get::<Option<String>>("note").unwrap(), None);
    assert!(matches!(
        seen.get::<i64>("note"),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(
        seen.get::<i64>("version"),
        Err(Error::Unsupported { .. })
    ));
    let changes = Changes::new().set("qty", 5).set("note", "mine");
    assert!(stock.try_update(&seen, &changes).unwrap());
    assert!(!stock.try_update(&seen, &changes).unwrap());
    let (qty, note, version): (i64, String, i64) =
        database.first("SELECT qty, note, version FROM stock WHERE id = 1");
    assert_eq!((qty, &*note, version), (5, "mine", 1));
    // A write of the same value counts as a change.
    let seen = stock.get(1).unwrap().unwrap();
    assert!(
        stock
            .try_update(&seen, &Changes::new().set("qty", 5))
            .unwrap()
    );
    assert!(!stock.try_update(&seen, &Changes::new()).unwrap());
    let wrong = stock.try_update(&seen, &Changes::new().set("version", 1));
    assert!(matches!(wrong, Err(Error::Unsupported { .. })));
    assert!(stock.get(77).unwrap().is_none());
}

#[test]
fn the_update_loop_ends_on_each_outcome() {
    let database = with_stock();
    let stock = versioned(&database, Check::Version("version".into()));
    let stopped = stock
        .update_with(1, |_| Ok::<_, Error>(Step::Stop("sold out")))
        .unwrap();
    assert_eq!(
        (stopped.value, stopped.attempts, stopped.written),
        ("sold out", 1, false)
    );
    let missing = stock.update_with(77, |_| Ok::<_, Error>(Step::Stop(())));
    assert!(matches!(
        missing,
        Err(Error::Database(DatabaseError::RowNotFound { .. }))
    ));
    // Another client always updates first.
    let mut calls = 0;
    let beaten = stock.with_attempts(4).update_with(1, |_| {
        calls += 1;
        database.run("UPDATE stock SET version = version + 1 WHERE id = 1");
        Ok::<_, Error>(Step::Set(Changes::new().set("qty", 1), ()))
    });
    let Err(Error::Database(DatabaseError::Conflict { attempts, lock, .. })) = beaten else {
        panic!("{beaten:?}")
    };
    assert_eq!((attempts, calls, &*lock), (4, 4, "stock[1]"));
    // Deleted between reading and writing.
    let gone = stock.update_with(2, |_| {
        database.run("DELETE FROM stock WHERE id = 2");
        Ok::<_, Error>(Step::Set(Changes::new().set("qty", 1), ()))
    });
    assert!(matches!(
        gone,
        Err(Error::Database(DatabaseError::RowNotFound { .. }))
    ));
    // A row locked by a transaction for a while is a conflict like any other.
    let outcome = thread::scope(|scope| {
        let (sender, locked) = std::sync::mpsc::channel();
        let database = &database;
        scope.spawn(move || {
            let mut conn = database.conn();
            conn.query_drop("BEGIN").unwrap();
            conn.query_drop("SELECT * FROM stock WHERE id = 1 FOR UPDATE")
                .unwrap();
            sender.send(()).unwrap();
            thread::sleep(ms(1500));
            conn.query_drop("ROLLBACK").unwrap();
        });
        locked.recv().unwrap();
        stock.update_with(1, |_| {
            Ok::<_, Error>(Step::Set(Changes::new().set("qty", 9), ()))
        })
    });
    assert!(outcome.unwrap().attempts > 1);
    assert_eq!(qty(&database), 9);
}

#[test]
fn a_time_rises_by_its_own_precision() {
    let database = with_stock();
    for (column, unit) in [("at0", 1_000_000), ("at3", 1000), ("at6", 1)] {
        let stock = versioned(&database, Check::UpdatedAt(column.into()));
        // A column that is ahead of the clock still rises.
        database.run(&format!(
            "UPDATE stock SET {column} = '2037-01-01 00:00:00'"
        ));
        stock
            .update_with(1, |_| Ok::<_, Error>(Step::Set(Changes::new(), ())))
            .unwrap();
        let ahead: i64 = database.first(&format!(
            "SELECT TIMESTAMPDIFF(MICROSECOND, '2037-01-01', {column}) FROM stock WHERE id = 1"
        ));
        // The session's time zone may be UTC; the fraction distinguishes the two.
        assert_eq!(ahead.rem_euclid(60_000_000), unit, "{column}");
    }
}

#[test]
fn a_check_that_cannot_work_is_refused() {
    let database = with_stock();
    let client = client(&database);
    for check in [
        Check::Version("loose".into()),
        Check::Version("note2".into()),
        Check::Version("at3".into()),
        Check::UpdatedAt("version".into()),
    ] {
        let stock = client
            .versioned("stock", "id", &["qty"], check.clone())
            .unwrap();
        let result = stock.update_with(1, |_| Ok::<_, Error>(Step::Set(Changes::new(), ())));
        assert!(
            matches!(result, Err(Error::Database(DatabaseError::Schema { .. }))),
            "{check:?}: {result:?}"
        );
    }
    for (table, key) in [("stock", "qty"), ("absent", "id")] {
        let stock = client
            .versioned(table, key, &[], Check::Version("version".into()))
            .unwrap();
        assert!(matches!(
            stock.get(1),
            Err(Error::Database(DatabaseError::Schema { .. }))
        ));
    }
    for columns in [&["qty", "QTY"][..], &["version"], &["a b"]] {
        let error = client.versioned("stock", "id", columns, Check::Version("version".into()));
        assert!(matches!(error, Err(Error::InvalidConfig { .. })));
    }
}
