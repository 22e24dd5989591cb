//! The session of a holder: which statements end its transaction, and which settings stay.

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

pub(super) fn statements_that_end_a_transaction_are_refused(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    for (isolation, name) in [
        (Isolation::ReadCommitted, "READ-COMMITTED"),
        (Isolation::RepeatableRead, "REPEATABLE-READ"),
        (Isolation::Serializable, "SERIALIZABLE"),
    ] {
        let lock = client.row_lock(&accounts, 1).with_isolation(isolation);
        let mut guard = lock.lock(Wait::Never).unwrap();
        // The server refreshes this table only if it was not read for 100 ms.
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
        // An error of the user's own statement does not end it.
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
