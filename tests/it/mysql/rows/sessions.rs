//! The session of a holder: what ends its transaction, and what stays of it.

use super::*;
use redlatch::mysql::DatabaseError;

pub(super) fn an_idle_holder_is_ended(server: &'static MariaDb) {
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
    assert!(
        matches!(
            error,
            Error::Database(DatabaseError::TransactionLost { .. })
        ),
        "{error}"
    );
    assert!(guard.commit().unwrap_err().is_lost());
    drop(next);
    let guard = lock.lock(Wait::Never).unwrap();
    thread::sleep(ms(2500));
    assert!(guard.commit().unwrap_err().is_lost());
    let sum: i64 = database.first("SELECT CAST(SUM(balance) AS SIGNED) FROM accounts");
    assert_eq!(sum, 400, "nothing was written");
}

pub(super) fn what_ends_a_transaction_is_refused_and_the_level_can_be_chosen(
    server: &'static MariaDb,
) {
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

pub(super) fn a_killed_holder_frees_the_row_at_once(server: &'static MariaDb) {
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

/// What every commit relies on: no guard commits what came behind a rollback that nobody was told of.
pub(super) fn a_savepoint_tells_whether_its_transaction_still_stands(server: &'static MariaDb) {
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

pub(super) fn what_a_transaction_leaves_in_its_session_ends_with_it(server: &'static MariaDb) {
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
#[ignore = "takes long: make test-all"]
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
