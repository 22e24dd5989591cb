//! The rights of a row lock, and which rows it finds.

use super::*;
use redlatch::mysql::DatabaseError;

pub(super) fn a_row_lock_lasts_until_commit_rollback_or_drop(server: &'static MariaDb) {
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

pub(super) fn a_missing_row_is_reported_and_locks_nothing(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    let error = client
        .row_lock(&accounts, 77)
        .lock(Wait::Never)
        .unwrap_err();
    assert!(
        matches!(&error, Error::Database(DatabaseError::RowNotFound { key, .. }) if key == "77"),
        "{error}"
    );
    let result = client.lock_many(&accounts, [1, 77], Wait::Never);
    assert!(matches!(
        result,
        Err(Error::Database(DatabaseError::RowNotFound { .. }))
    ));
    assert!(client.row_lock(&accounts, 1).try_lock().unwrap().is_some());
    database.run("INSERT INTO accounts VALUES (77, 'x', 0)");
}

pub(super) fn only_the_primary_key_finds_rows(server: &'static MariaDb) {
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
            matches!(error, Error::Database(DatabaseError::Schema { .. })),
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

pub(super) fn a_deadlock_is_reported_and_ends_the_transaction(server: &'static MariaDb) {
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
            Err(error @ Error::Database(DatabaseError::Deadlock { .. })) => {
                // A later statement would run outside of any transaction.
                let again = guard.tx().exec("UPDATE accounts SET balance = 0", ());
                assert!(
                    matches!(again, Err(Error::Database(DatabaseError::Deadlock { .. }))),
                    "{again:?}"
                );
                assert!(matches!(
                    guard.commit(),
                    Err(Error::Database(DatabaseError::Deadlock { .. }))
                ));
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

pub(super) fn many_rows_are_locked_in_one_order(server: &'static MariaDb) {
    // A private server, because the server counts deadlocks.
    let server = server.another();
    let database = server.database();
    let client = client(&database);
    make_tables(&database);
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

pub(super) fn names_make_their_own_rows(server: &'static MariaDb) {
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
    // A name that is too long is not truncated to another name.
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
    // Concurrent inserts make one row.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let guard = mine.row_lock(&named, "fresh").lock(Wait::Forever).unwrap();
                guard.commit().unwrap();
            });
        }
    });
}

pub(super) fn an_empty_list_of_keys_is_refused(server: &'static MariaDb) {
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
