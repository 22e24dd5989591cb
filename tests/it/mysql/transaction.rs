//! Transactions that commit only while the lock is held.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::mysql::DatabaseError;
use redlatch::{Client, Error, LossCause};

use super::{client, client_with, database};
use crate::support::{Database, ms};

fn with_stock() -> Database<'static> {
    let database = database();
    database.run("CREATE TABLE stock (id INT PRIMARY KEY, qty INT NOT NULL);\nINSERT INTO stock VALUES (1, 100)");
    database
}

fn qty(database: &Database<'_>) -> i64 {
    database.first("SELECT qty FROM stock WHERE id = 1")
}

#[test]
fn a_transaction_commits_on_success_and_rolls_back_otherwise() {
    let database = with_stock();
    let client = client(&database);
    let guard = client.lock("stock:1").guard().unwrap();
    let seen = guard.transaction(|tx| {
        let touched = tx.exec("UPDATE stock SET qty = qty - ? WHERE id = ?", (1, 1))?;
        assert_eq!(touched, 1);
        let rows: Vec<(i64, i64)> = tx.query("SELECT id, qty FROM stock", ())?;
        assert_eq!(rows, [(1, 99)]);
        tx.query_first::<i64>("SELECT qty FROM stock WHERE id = ?", (1,))
    });
    assert_eq!(seen.unwrap(), Some(99));
    assert_eq!(qty(&database), 99);
    #[derive(Debug)]
    enum AppError {
        Refused,
        Lock(#[allow(dead_code)] Error),
    }
    impl From<Error> for AppError {
        fn from(error: Error) -> AppError {
            AppError::Lock(error)
        }
    }
    let refused = guard.transaction(|tx| {
        tx.exec("UPDATE stock SET qty = 0", ())?;
        Err::<(), _>(AppError::Refused)
    });
    assert!(matches!(refused, Err(AppError::Refused)));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        guard.transaction(|tx| {
            tx.exec("UPDATE stock SET qty = 0", ())?;
            if true {
                std::panic::panic_any("as planned");
            }
            Ok::<_, Error>(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(qty(&database), 99);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

#[test]
fn a_transaction_keeps_the_lock_even_past_the_lease() {
    let database = with_stock();
    let (mine, theirs) = (
        client_with(&database, Client::builder().watchdog_timeout(ms(600))),
        client_with(&database, Client::builder().watchdog_timeout(ms(600))),
    );
    let lock = mine.lock("stock:1");
    let guard = lock.guard().unwrap();
    let fence = guard.fencing_token().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = theirs.lock("stock:1").guard().unwrap();
            let qty = qty(&database);
            (guard.fencing_token().unwrap(), qty)
        });
        guard
            .transaction(|tx| {
                tx.exec("UPDATE stock SET qty = qty - 1 WHERE id = 1", ())?;
                // Three leases, in which the watchdog does not renew the row.
                thread::sleep(ms(1800));
                assert!(!waiter.is_finished());
                tx.exec("UPDATE stock SET qty = qty - 1 WHERE id = 1", ())?;
                Ok::<_, Error>(())
            })
            .unwrap();
        assert!(guard.is_valid(), "the commit has set a new lease");
        assert_eq!(lock.hold_count().unwrap(), 1);
        thread::sleep(ms(1500));
        assert!(guard.is_valid(), "the watchdog goes on");
        assert!(!waiter.is_finished());
        guard.unlock().unwrap();
        assert_eq!(waiter.join().unwrap(), (fence + 1, 98));
    });
}

#[test]
fn a_rollback_after_the_lease_loses_the_lock_and_writes_nothing() {
    let database = with_stock();
    let client = client(&database);
    let lock = client.lock("stock:1").with_lease_time(ms(300));
    let guard = lock.guard().unwrap();
    let result = guard.transaction(|tx| {
        tx.exec("UPDATE stock SET qty = 0", ())?;
        thread::sleep(ms(500));
        Err::<(), _>(Box::<dyn std::error::Error>::from("undo it"))
    });
    assert_eq!(result.unwrap_err().to_string(), "undo it");
    assert_eq!(qty(&database), 100);
    let loss = guard.lost().recv_timeout(ms(2000)).unwrap();
    assert_eq!(loss.cause, LossCause::LeaseEnded);
}

#[test]
fn a_fixed_lease_commits_late_and_is_over_then() {
    let database = with_stock();
    let client = client(&database);
    let lock = client.lock("stock:1").with_lease_time(ms(300));
    let guard = lock.guard().unwrap();
    guard
        .transaction(|tx| {
            tx.exec("UPDATE stock SET qty = 7", ())?;
            thread::sleep(ms(500));
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_eq!(qty(&database), 7);
    assert!(!guard.is_valid());
    assert!(guard.unlock().unwrap_err().is_lost());
}

#[test]
fn a_lost_lock_runs_nothing() {
    let database = with_stock();
    // The next renewal is ten seconds away: the client does not know of the loss yet.
    let client = client(&database);
    let guard = client.lock("stock:1").guard().unwrap();
    database.run("UPDATE redlatch SET owner = 'somebody', fence = fence + 1");
    assert!(guard.is_valid());
    let result = guard.transaction(|_| -> Result<(), Error> { panic!("it ran") });
    let Err(Error::Lost { cause, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(cause, LossCause::HeldBy("somebody".to_owned()));
    assert!(!guard.is_valid());
}

#[test]
fn a_killed_connection_writes_nothing_and_says_so() {
    let database = with_stock();
    let client = client(&database);
    let guard = client.lock("stock:1").guard().unwrap();
    let result = guard.transaction(|tx| {
        tx.exec("UPDATE stock SET qty = 0", ())?;
        let id: u64 = tx.query_first("SELECT CONNECTION_ID()", ())?.unwrap();
        database.run(&format!("KILL {id}"));
        thread::sleep(ms(100));
        let error = tx.exec("UPDATE stock SET qty = 1", ()).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Database(DatabaseError::TransactionLost { .. })
            ),
            "{error}"
        );
        Ok::<_, Error>(())
    });
    let error = result.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Database(DatabaseError::TransactionLost { .. })
        ),
        "{error}"
    );
    assert!(error.is_lost());
    assert_eq!(qty(&database), 100);
    // Killed before the commit.
    let result = guard.transaction(|tx| {
        tx.exec("UPDATE stock SET qty = 0", ())?;
        let id: u64 = tx.query_first("SELECT CONNECTION_ID()", ())?.unwrap();
        database.run(&format!("KILL {id}"));
        thread::sleep(ms(100));
        Ok::<_, Error>(())
    });
    assert!(result.unwrap_err().is_lost());
    assert_eq!(qty(&database), 100);
    assert!(guard.is_valid(), "the lock itself was not harmed");
    guard.unlock().unwrap();
}

#[test]
fn statements_that_end_a_transaction_are_refused() {
    let database = with_stock();
    let client = client(&database);
    let lock = client.lock("stock:1");
    let guard = lock.guard().unwrap();
    guard
        .transaction(|tx| {
            tx.exec("UPDATE stock SET qty = 5", ())?;
            for statement in [
                "COMMIT",
                "/*!COMMIT*/",
                "CREATE TABLE t (a INT)",
                "SET autocommit = 1",
            ] {
                let error = tx.exec(statement, ()).unwrap_err();
                assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            }
            let error = tx.exec("UPDATE stock SET qty = 6; COMMIT", ()).unwrap_err();
            assert!(
                matches!(
                    error,
                    Error::Database(DatabaseError::Sql { code: 1064, .. })
                ),
                "{error}"
            );
            // The lock itself cannot be used inside.
            let start = Instant::now();
            let error = lock.try_lock().unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            let error = guard.transaction(|_| Ok::<_, Error>(())).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert!(start.elapsed() < Duration::from_millis(500));
            Err::<(), _>(Box::<dyn std::error::Error>::from("undo it"))
        })
        .unwrap_err();
    assert_eq!(qty(&database), 100);
    guard.unlock().unwrap();
    let memory = Client::in_memory();
    let guard = memory.lock("stock:1").guard().unwrap();
    assert_eq!(guard.fencing_token(), None);
    let error = guard.transaction(|_| Ok::<_, Error>(())).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn a_released_hold_has_no_transaction() {
    let database = with_stock();
    let client = client(&database);
    let lock = client.lock("stock:1");
    let guard = lock.guard().unwrap();
    lock.unlock().unwrap();
    let error = guard.transaction(|_| Ok::<_, Error>(())).unwrap_err();
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
}

#[test]
fn the_transactions_of_many_holders_lose_nothing() {
    let database = with_stock();
    let client = client(&database);
    let lock = client.lock("stock:1");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let guard = lock.guard().unwrap();
                    guard
                        .transaction(|tx| {
                            // Read, compute, write: safe only under the lock.
                            let qty: i64 = tx
                                .query_first("SELECT qty FROM stock WHERE id = 1", ())?
                                .unwrap();
                            thread::yield_now();
                            tx.exec("UPDATE stock SET qty = ? WHERE id = 1", (qty - 1,))
                        })
                        .unwrap();
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(qty(&database), 20);
}

#[test]
fn a_row_that_is_pinned_past_its_lease_is_refused_in_time() {
    let database = with_stock();
    let (mine, theirs) = (client(&database), client(&database));
    let guard = mine
        .lock("stock:1")
        .with_lease_time(ms(300))
        .guard()
        .unwrap();
    guard
        .transaction(|_| {
            thread::sleep(ms(500));
            for wait in [0, 50, 300, 800, 1100, 1300, 1900] {
                let start = Instant::now();
                let lock = theirs.lock("stock:1");
                // Another thread, because this one would get a deadlock error.
                let got = thread::scope(|scope| {
                    let waiter = scope.spawn(|| lock.try_lock_for(ms(wait)));
                    waiter.join().unwrap()
                });
                assert!(matches!(got, Ok(false)), "{wait} ms: {got:?}");
                assert!(start.elapsed() >= ms(wait));
                assert!(start.elapsed() < ms(wait + 5000), "{:?}", start.elapsed());
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    assert!(theirs.lock("stock:1").try_lock_for(ms(300)).unwrap());
}

#[test]
fn owned_guard_transactions_run_on_any_thread_one_at_a_time() {
    let database = with_stock();
    // The acquisition inside the transaction waits for the row at the server, for up to 2 s on a quiet machine.
    let patient = Client::builder().command_timeout(Duration::from_secs(10));
    let client = client_with(&database, patient);
    let lock = client.lock("stock:1");
    let guard = lock.owned().unwrap();
    thread::scope(|scope| {
        let sells = || {
            guard.transaction(|tx| {
                tx.exec("UPDATE stock SET qty = qty - 1 WHERE id = 1", ())?;
                // Another transaction of the hold, and another owner.
                let second = thread::scope(|scope| {
                    let second = scope.spawn(|| guard.transaction(|_| Ok::<_, Error>(())));
                    second.join().unwrap()
                });
                assert!(
                    matches!(second, Err(Error::Unsupported { .. })),
                    "{second:?}"
                );
                assert!(lock.try_owned().unwrap().is_none());
                Ok::<_, Error>(())
            })
        };
        scope.spawn(sells).join().unwrap().unwrap();
    });
    assert_eq!(qty(&database), 99);
    assert!(guard.is_valid());
    assert!(guard.fencing_token().is_some());
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
    let guard = lock.owned().unwrap();
    assert!(lock.force_unlock().unwrap());
    let refused = guard.transaction(|tx| tx.exec("UPDATE stock SET qty = 0", ()));
    assert!(refused.unwrap_err().is_lost());
    assert_eq!(qty(&database), 99);
}
