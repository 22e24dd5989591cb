//! Locks on rows of the user's tables.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::mysql::{Isolation, RowGuard, RowTarget, Wait};
use redlatch::{Client, Error};

use super::{client, client_with, database};
use crate::kit::{Database, MariaDb, ms};

fn with_accounts() -> (Database<'static>, RowTarget) {
    let database = database();
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

#[test]
fn a_row_belongs_to_one_until_it_commits_rolls_back_or_is_dropped() {
    is_send::<RowGuard>();
    let (database, accounts) = with_accounts();
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

#[test]
fn a_wait_ends_when_it_should() {
    let (database, accounts) = with_accounts();
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

#[test]
fn a_missing_row_is_told_and_locks_nothing() {
    let (database, accounts) = with_accounts();
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

#[test]
fn only_the_primary_key_finds_rows() {
    let (database, _) = with_accounts();
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

#[test]
fn a_deadlock_is_told_and_the_transaction_is_over() {
    let (database, accounts) = with_accounts();
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

#[test]
fn many_rows_are_locked_in_one_order() {
    let server = MariaDb::start();
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

#[test]
fn names_make_their_own_rows() {
    let database = database();
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

#[test]
fn an_idle_holder_is_ended() {
    let (database, accounts) = with_accounts();
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

#[test]
fn what_ends_a_transaction_is_refused_and_the_level_can_be_chosen() {
    let (database, accounts) = with_accounts();
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

#[test]
fn a_killed_holder_frees_the_row_at_once() {
    let (database, accounts) = with_accounts();
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
