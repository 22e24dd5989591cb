//! Idle connections: a balancer drops them, or the server needs their capacity for another client: F8, F24.

use super::*;

/// Opens several connections of a client to a server behind `proxy`.
fn warm(proxy: &Proxy, client: &Client) {
    let rule = proxy.next(64, Some(sha(ACQUIRE).as_bytes()), Fault::DelayReply(ms(50)));
    thread::scope(|scope| {
        for thread in 0..6 {
            let lock = client.lock(&format!("n{thread}"));
            scope.spawn(move || lock.run(|_| ()).unwrap());
        }
    });
    rule.lift();
}

#[test]
fn requests_survive_a_balancer_that_drops_idle_connections() {
    let server = RedisServer::start();
    teach(&server);
    let proxy = Proxy::to(server.addr());
    let client = Client::builder()
        .command_timeout(ms(2000))
        .check_idle_after(ms(200))
        .open(&proxy.url())
        .unwrap();
    let lock = client.lock("orders");
    for _ in 0..2 {
        warm(&proxy, &client);
        thread::sleep(ms(300));
        proxy.mute();
        ends_within(ms(2000), || assert!(lock.try_lock().unwrap()));
        warm(&proxy, &client);
        thread::sleep(ms(300));
        proxy.mute();
        ends_within(ms(2000), || lock.unlock().unwrap());
    }
    is_empty(&server);
}

#[test]
#[ignore = "takes long: make test-all"]
fn an_idle_client_closes_its_connections() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let client = quick()
        .watchdog_timeout(ms(900))
        .idle_timeout(ms(800))
        .open(&proxy.url())
        .unwrap();
    warm(&proxy, &client);
    client.lock("held").guard().unwrap().unlock().unwrap();
    assert!(proxy.counters().open >= 6);
    // The pool checks for idle connections every 30 s.
    eventually(ms(35_000), "its connections are closed", || {
        proxy.counters().open == 0
    });
    // The next hold has a renewal connection again, even when the server accepts no further connection.
    let guard = client.lock("held").guard().unwrap();
    let _full = maxclients::fill(&server);
    thread::sleep(ms(1800));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}
