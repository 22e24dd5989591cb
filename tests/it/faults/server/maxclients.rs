//! Servers at `maxclients`, and clients with more threads than connections.

use std::sync::Barrier;

use redis::Connection;
use redlatch::Redlock;

use super::*;

/// Fills the server up to `maxclients`; open connections stay.
pub(super) fn fill(server: &RedisServer) -> Connection {
    let mut connection = redis::Client::open(server.url())
        .and_then(|it| it.get_connection())
        .unwrap();
    redis::cmd("CONFIG")
        .arg(&["SET", "maxclients", "1"])
        .exec(&mut connection)
        .unwrap();
    connection
}

/// Lets this many threads acquire and release locks of their own at the same time, repeatedly.
fn work(threads: usize, span: Duration, lock: impl Fn(&str) -> Lock + Sync) {
    work_but(|why| panic!("{why}"), threads, span, lock);
}

/// Like `work`, where `fails` is called for each call that fails or is refused.
fn work_but(fails: fn(String), threads: usize, span: Duration, lock: impl Fn(&str) -> Lock + Sync) {
    let until = Instant::now() + span;
    let together = Barrier::new(threads);
    thread::scope(|scope| {
        for number in 0..threads {
            let (lock, together) = (&lock, &together);
            scope.spawn(move || {
                let lock = lock(&format!("own:{number}"));
                together.wait();
                while Instant::now() < until {
                    match lock.try_lock() {
                        Ok(true) => {}
                        other => {
                            fails(format!("{other:?}"));
                            continue;
                        }
                    }
                    lock.unlock()
                        .unwrap_or_else(|error| fails(error.to_string()));
                }
            });
        }
    });
}

#[test]
fn an_unlock_waits_for_a_connection_until_its_deadline() {
    let server = RedisServer::start();
    let client = quick()
        .pool_size(1)
        .command_timeout(ms(4000))
        .connect_timeout(ms(4000))
        .open(&server.url())
        .unwrap();
    let [held, other] = ["held", "other"].map(|name| client.lock(name));
    held.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| server.cmd(&["DEBUG", "SLEEP", "2.6"]));
        thread::sleep(ms(200));
        // It uses the only connection until the server continues.
        scope.spawn(|| other.try_lock());
        thread::sleep(ms(200));
        held.unlock().unwrap();
    });
}

#[test]
fn threads_of_a_quorum_share_the_available_connections() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let clients = servers.each_ref().map(|server| {
        let client = quick().pool_size(4).command_timeout(ms(4000));
        client.open(&server.url()).unwrap()
    });
    let redlock = Redlock::builder()
        .nodes(clients)
        .trust_new_nodes()
        .node_timeout(ms(4000))
        .build()
        .unwrap();
    work(2, ms(300), |name| redlock.lock(name));
    let guard = redlock.lock("held").guard().unwrap();
    // Some of the four slots of each pool stay without a connection.
    let _full = servers.each_ref().map(fill);
    work(24, ms(2500), |name| redlock.lock(name));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

#[test]
fn threads_of_a_client_share_the_available_connections() {
    let server = RedisServer::start();
    let client = quick()
        .command_timeout(ms(4000))
        .open(&server.url())
        .unwrap();
    work(2, ms(300), |name| client.lock(name));
    let guard = client.lock("held").guard().unwrap();
    let _full = fill(&server);
    work(12, ms(1500), |name| client.lock(name));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

#[test]
fn holds_taken_at_maxclients_are_renewed() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let clients = servers.each_ref().map(|server| {
        let client = quick().watchdog_timeout(ms(900)).open(&server.url());
        client.unwrap()
    });
    // Its idle connection is checked before use.
    let single = quick().watchdog_timeout(ms(900)).check_idle_after(ms(200));
    let single = single.open(&servers[0].url()).unwrap();
    let redlock = Redlock::builder().nodes(clients).trust_new_nodes();
    let redlock = redlock.build().unwrap();
    assert!(!single.lock("a").is_locked().unwrap());
    assert!(!redlock.lock("b").is_locked().unwrap());
    let _full = servers.each_ref().map(fill);
    let guards = [single.lock("a"), redlock.lock("b")].map(|lock| lock.guard().unwrap());
    thread::sleep(ms(2500));
    for guard in guards {
        assert!(guard.is_valid(), "{guard:?}");
        guard.unlock().unwrap();
    }
}

#[test]
#[ignore = "fails if the machine stands still for 400 ms: make test-all"]
fn a_quorum_at_maxclients_keeps_its_last_connections() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let clients = servers.each_ref();
    let clients = clients.map(|server| quick().open(&server.url()).unwrap());
    let redlock = Redlock::builder().nodes(clients).trust_new_nodes();
    let redlock = redlock.node_timeout(ms(400)).build().unwrap();
    let _full = servers.each_ref().map(fill);
    let guard = redlock.lock("held").guard().unwrap();
    // With so many threads for one connection, some calls fail.
    work_but(|_| {}, 200, ms(5000), |name| redlock.lock(name));
    guard.unlock().unwrap();
}
