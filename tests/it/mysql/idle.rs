//! Connections that nobody uses: something on the way forgets them, or another client needs their room.

use std::thread;

use redlatch::Client;

use super::table_lock::behind_a_proxy;
use super::{client_with, database_on};
use crate::support::{MariaDb, eventually, ms};

#[test]
fn requests_behind_a_balancer_that_forgets_idle_connections_succeed() {
    let server = MariaDb::start();
    let database = database_on(&server);
    let builder = Client::builder()
        .command_timeout(ms(4000))
        .check_idle_after(ms(200));
    let (client, proxy) = behind_a_proxy(&database, &server, builder);
    let lock = client.lock("orders");
    lock.run(|_| ()).unwrap();
    for _ in 0..2 {
        thread::sleep(ms(300));
        proxy.mute();
        assert!(lock.try_lock().unwrap());
        thread::sleep(ms(300));
        proxy.mute();
        lock.unlock().unwrap();
    }
}

#[test]
fn a_client_at_rest_gives_its_connections_back() {
    let server = MariaDb::start();
    let database = database_on(&server);
    let client = client_with(&database, Client::builder().idle_timeout(ms(800)));
    client.lock("orders").run(|_| ()).unwrap();
    assert!(!database.connections().is_empty());
    eventually(ms(8000), "its connections are closed", || {
        database.connections().is_empty()
    });
    client.lock("orders").run(|_| ()).unwrap();
}
