//! A server at `max_connections`.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use mysql::{Conn, Opts, OptsBuilder};
use redlatch::{Client, Error};

use super::{client_with, database_on};
use crate::support::{Database, MariaDb, ms};

/// A client whose first renewal is due after this time.
const FIRST_RENEWAL: Duration = Duration::from_millis(700);

fn server() -> MariaDb {
    MariaDb::with(&["--max-connections=24"])
}

fn quick(database: &Database<'_>) -> Client {
    let builder = Client::builder().watchdog_timeout(FIRST_RENEWAL * 3);
    client_with(database, builder.command_timeout(ms(4000)))
}

/// Fills the server up to its limit of connections.
fn fill(database: &Database<'_>) -> Vec<Conn> {
    let mut taken = Vec::new();
    let options = Opts::from_url(&database.url()).unwrap();
    while let Ok(conn) = Conn::new(OptsBuilder::from_opts(options.clone()).prefer_socket(false)) {
        taken.push(conn);
    }
    assert!(!taken.is_empty());
    taken
}

#[test]
fn holds_survive_max_connections_at_their_renewal() {
    let server = server();
    let database = database_on(&server);
    let client = quick(&database);
    let guards = ["a", "b", "c"].map(|name| client.lock(name).guard().unwrap());
    let _full = fill(&database);
    thread::sleep(FIRST_RENEWAL * 4);
    for guard in guards {
        assert!(guard.is_valid(), "{guard:?}");
        guard.unlock().unwrap();
    }
}

#[test]
fn holds_taken_at_max_connections_are_renewed() {
    let server = server();
    let database = database_on(&server);
    let client = quick(&database);
    assert!(!client.lock("a").is_locked().unwrap());
    let _full = fill(&database);
    let guard = client.lock("a").guard().unwrap();
    thread::sleep(FIRST_RENEWAL * 4);
    assert!(guard.is_valid(), "{guard:?}");
    guard.unlock().unwrap();
}

#[test]
fn a_burst_at_max_connections_leaves_the_client_usable() {
    let server = server();
    let database = database_on(&server);
    let client = quick(&database);
    let guard = client.lock("held").guard().unwrap();
    let _full = fill(&database);
    let together = Barrier::new(6);
    thread::scope(|scope| {
        for number in 0..6 {
            let (lock, together) = (client.lock(&format!("own:{number}")), &together);
            scope.spawn(move || {
                together.wait();
                // Fails while another thread uses the only connection.
                drop(lock.try_guard());
            });
        }
    });
    for _ in 0..5 {
        assert!(client.lock("other").try_guard().unwrap().is_some());
    }
    guard.unlock().unwrap();
}

#[test]
fn a_client_refused_at_max_connections_says_so() {
    let server = server();
    let database = database_on(&server);
    let client = quick(&database);
    let _full = fill(&database);
    let began = Instant::now();
    let error = client.lock("held").try_lock().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("1040"), "{error}");
    assert!(began.elapsed() < ms(2000), "{:?}", began.elapsed());
}
