//! Idle connections: a balancer drops them, or the client is shut down.

use std::thread;

use redlatch::Client;
use redlatch::mysql::{RowTarget, Wait};

use super::table_lock::behind_a_proxy;
use super::{client_with, database_on};
use crate::support::{MariaDb, eventually, ms};

#[test]
#[ignore = "takes long: make test-all"]
fn requests_survive_a_balancer_that_drops_idle_connections() {
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
fn a_shutdown_closes_idle_connections_and_keeps_none() {
    let server = MariaDb::start();
    let database = database_on(&server);
    database
        .run("CREATE TABLE f (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO f VALUES (1, 0)");
    let client = client_with(&database, Client::builder());
    client.lock("orders").run(|_| ()).unwrap();
    let target = RowTarget::table("f", "id").unwrap();
    let mut guard = client.row_lock(&target, 1).lock(Wait::Never).unwrap();
    client.shutdown();
    eventually(ms(5000), "only the transaction has a connection", || {
        database.connections().len() == 1
    });
    guard.tx().exec("UPDATE f SET n = 1", ()).unwrap();
    guard.commit().unwrap();
    eventually(ms(5000), "it is closed", || {
        database.connections().is_empty()
    });
    client.check_schema().unwrap();
    eventually(ms(5000), "the one of the check is closed", || {
        database.connections().is_empty()
    });
}
