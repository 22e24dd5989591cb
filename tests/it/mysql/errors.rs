//! Faults are typed errors that say what to do, and never contain a password.

use std::time::{Duration, Instant};

use redlatch::mysql::DatabaseError;
use redlatch::{Client, Error};

use super::{client, database, make_tables};
use crate::support::mariadb::password;
use crate::support::{Database, MariaDb, free_port, ms};

/// Asserts that a lock's error names the lock, the node and no password.
fn refusal(database: &Database<'_>, client: &Client) -> Error {
    let error = client.lock("orders").try_lock().unwrap_err();
    let (text, debug) = (error.to_string(), format!("{error:?} {client:?}"));
    assert!(text.contains("orders"), "{text}");
    assert!(
        text.contains("127.0.0.1") && text.contains(&database.name),
        "{text}"
    );
    for secret in [password(), "canary"] {
        assert!(
            !text.contains(secret) && !debug.contains(secret),
            "{text} {debug}"
        );
    }
    error
}

#[test]
fn an_invalid_url_is_refused_without_its_password() {
    for url in [
        "mysql://user:canary@127.0.0.1",
        "mysql://user:canary@127.0.0.1/",
        "mysql://user:canary@127.0.0.1:port/db",
        "mysql://user:canary@127.0.0.1/db?what=canary",
        "mysql://user:canary@127.0.0.1/db?prefer_socket=canary",
        "mysql://user:canary@127.0.0.1/db#canary",
        "mysql://user:canary@127.0.0.1/db/canary",
        "mysql:user:canary",
        "mysql://",
        "mariadb://user:canary@127.0.0.1/db",
        "mysqlx://user:canary@127.0.0.1/db",
    ] {
        let error = Client::open(url).unwrap_err();
        assert!(
            matches!(error, Error::InvalidConfig { .. }),
            "{url}: {error}"
        );
        let text = format!("{error} {error:?}");
        assert!(!text.contains("canary"), "{text}");
    }
    let error = Client::builder()
        .lock_table("a`b")
        .open("mysql://u:p@127.0.0.1/db")
        .unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    let client = Client::open("mysql://user:canary@127.0.0.1/db").unwrap();
    assert!(!format!("{client:?}").contains("canary"));
}

#[test]
fn a_wrong_password_and_a_missing_right_are_reported() {
    let database = database();
    let open = |user: &str, password: &str| Client::open(&database.url_of(user, password)).unwrap();
    let error = refusal(&database, &open("nobody", "canary"));
    assert!(matches!(error, Error::Permission { .. }), "{error}");
    assert!(!error.is_retryable());
    // One right at a time; locking needs three, the rest needs more.
    let (name, password) = ("limited", "canary-limited");
    database.run(&format!(
        "CREATE OR REPLACE USER {name}@'%' IDENTIFIED BY '{password}'"
    ));
    let limited = open(name, password);
    assert!(matches!(
        refusal(&database, &limited),
        Error::Permission { .. }
    ));
    database.run(&format!(
        "GRANT SELECT ON {}.redlatch TO {name}@'%'",
        database.name
    ));
    let error = refusal(&database, &limited);
    assert!(error.to_string().contains("INSERT"), "{error}");
    database.run(&format!(
        "GRANT INSERT, UPDATE ON {}.redlatch TO {name}@'%'",
        database.name
    ));
    let guard = limited.lock("orders").guard().unwrap();
    guard.transaction(|_| Ok::<_, Error>(())).unwrap();
    guard.unlock().unwrap();
    limited.lock("orders").force_unlock().unwrap();
    assert!(matches!(
        limited.purge(Duration::ZERO, 10),
        Err(Error::Permission { .. })
    ));
    assert!(matches!(
        limited.create_tables(),
        Err(Error::Permission { .. })
    ));
}

#[test]
fn a_missing_or_wrong_table_is_reported() {
    let database = MariaDb::shared().database();
    let client = client(&database);
    let error = refusal(&database, &client);
    assert!(
        matches!(error, Error::Database(DatabaseError::Schema { .. })),
        "{error}"
    );
    assert!(error.to_string().contains("create_tables()"), "{error}");
    assert!(matches!(
        client.check_schema(),
        Err(Error::Database(DatabaseError::Schema { .. }))
    ));
    let absent = Client::open(&database.url().replace(&database.name, "absent")).unwrap();
    let error = absent.lock("orders").try_lock().unwrap_err();
    assert!(
        matches!(
            error,
            Error::Database(DatabaseError::Schema { .. }) | Error::Permission { .. }
        ),
        "{error}"
    );
    make_tables(&database);
    client.create_tables().unwrap();
    client.check_schema().unwrap();
    for (change, word) in [
        ("ENGINE=MyISAM", "InnoDB"),
        ("DROP PRIMARY KEY", "primary key"),
        (
            "DROP PRIMARY KEY, ADD PRIMARY KEY (resource(20))",
            "primary key",
        ),
        (
            "DROP PRIMARY KEY, ADD PRIMARY KEY (resource, fence)",
            "primary key",
        ),
        ("MODIFY resource VARCHAR(255) NOT NULL", "resource"),
        ("MODIFY expires_at DATETIME NOT NULL", "expires_at"),
        ("DROP COLUMN acquired_at", "acquired_at"),
    ] {
        database.run(&format!("ALTER TABLE redlatch {change}"));
        // Not even the first lock of a client that never connected.
        let error = refusal(&database, &super::client(&database));
        assert!(
            matches!(error, Error::Database(DatabaseError::Schema { .. })),
            "{change}: {error}"
        );
        assert!(error.to_string().contains(word), "{change}: {error}");
        for checked in [client.check_schema(), client.create_tables()] {
            let error = checked.unwrap_err();
            assert!(
                matches!(error, Error::Database(DatabaseError::Schema { .. })),
                "{change}: {error}"
            );
            assert!(error.to_string().contains(word), "{change}: {error}");
            assert!(error.to_string().contains("table `redlatch`"), "{error}");
            let advice = "alter `redlatch`, or drop it";
            assert!(error.to_string().contains(advice), "{error}");
        }
        let warnings = client.check().unwrap();
        assert!(
            warnings
                .iter()
                .any(|warning| warning.message.contains(word))
        );
        database.run("DROP TABLE redlatch");
        make_tables(&database);
    }
}

#[test]
fn a_read_only_server_and_too_many_connections_are_reported() {
    let server = MariaDb::with(&["--max-connections=10"]);
    let database = server.database();
    let (name, password) = ("plain", "canary-plain");
    make_tables(&database);
    database.run(&format!(
        "CREATE USER {name}@'%' IDENTIFIED BY '{password}';\n\
         GRANT SELECT, INSERT, UPDATE ON {}.* TO {name}@'%'",
        database.name
    ));
    let client = Client::open(&database.url_of(name, password)).unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    database.run("SET GLOBAL read_only = 1");
    let error = refusal(&database, &client);
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("primary"), "{error}");
    assert!(client.check().unwrap()[0].message.contains("read-only"));
    database.run("SET GLOBAL read_only = 0");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    drop((client, lock));
    let mut crowd = Vec::new();
    // At first, the connections of the dropped client may still be closing.
    for _ in 0..2 {
        let connect = || mysql::Conn::new(&*database.url_of(name, password)).ok();
        crowd.extend(std::iter::from_fn(connect).take(20));
        std::thread::sleep(ms(300));
    }
    let client = Client::open(&database.url_of(name, password)).unwrap();
    let error = refusal(&database, &client);
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("pool_size"), "{error}");
    // A waiter survives the outage.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.lock("orders").try_lock_for(Duration::from_secs(20)));
        std::thread::sleep(ms(300));
        drop(crowd);
        assert!(waiter.join().unwrap().unwrap());
    });
}

#[test]
fn a_missing_server_is_reported() {
    let client = Client::builder()
        .command_timeout(ms(1000))
        .open(&format!("mysql://user:canary@127.0.0.1:{}/db", free_port()))
        .unwrap();
    let start = Instant::now();
    let error = client.lock("orders").try_lock().unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.is_retryable() && !error.is_ambiguous());
    assert!(start.elapsed() < ms(2000));
    assert!(!format!("{error} {error:?}").contains("canary"));
    for error in [
        Client::in_memory().create_tables().unwrap_err(),
        Client::in_memory().check_schema().unwrap_err(),
    ] {
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}
