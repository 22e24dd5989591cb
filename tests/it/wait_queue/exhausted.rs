//! Waits that time out while other threads use all connections of their client.

use redlatch::Result;

use super::*;

const WAIT: Duration = ms(2000);

/// So many threads that threads with a connection are refused, and many threads get no connection.
const THREADS: usize = 300;

type Make = fn(&Client) -> Lock;

/// A client whose replies take 40 ms, with four connections.
fn slow(server: &RedisServer) -> (Proxy, Client) {
    slow_with(server, ms(40), 4)
}

fn slow_with(server: &RedisServer, delay: Duration, connections: u32) -> (Proxy, Client) {
    let proxy = Proxy::to(server.addr());
    proxy.next(usize::MAX, None, Fault::DelayReply(delay));
    let client = Client::builder().pool_size(connections);
    let client = client.open(&proxy.url());
    (proxy, client.unwrap())
}

/// Lets all threads wait at the same time, and checks that they are refused, not out of connections.
#[track_caller]
fn all_are_refused(what: &str, wait: impl Fn() -> Result<bool> + Sync) {
    let start = Barrier::new(THREADS);
    let others = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                match wait() {
                    Ok(false) => {}
                    other => others.lock().unwrap().push(other),
                }
            });
        }
    });
    let others = others.into_inner().unwrap();
    let is_wrong = |it: &Result<bool>| matches!(it, Ok(true) | Err(Error::Exhausted { .. }));
    // On a busy machine, some replies are late.
    assert!(
        !others.iter().any(is_wrong) && others.len() < THREADS,
        "{what}: {} times, such as {:?}",
        others.len(),
        others.first()
    );
}

#[test]
fn locks_that_are_held_are_refused_with_a_busy_pool() {
    let server = RedisServer::start();
    let (_proxy, client) = slow(&server);
    let other = Client::open(&server.url()).unwrap();
    let kinds: [(&str, Make); 7] = [
        ("lock", |client| client.lock("lock")),
        ("token", |client| client.token_lock("token")),
        ("fenced", |client| client.fenced_lock("fenced")),
        ("fair", |client| client.fair_lock("fair")),
        ("spin", |client| client.spin_lock("spin")),
        ("write", |client| client.read_write_lock("rw").write()),
        ("read", |client| {
            client.read_write_lock("for-readers").read()
        }),
    ];
    let held = other.read_write_lock("for-readers").write();
    held.lock().unwrap();
    for (kind, make) in kinds {
        if kind != "read" {
            make(&other).lock().unwrap();
        }
        all_are_refused(kind, || make(&client).try_lock_for(WAIT));
    }
}

#[test]
fn counts_are_refused_with_a_busy_pool() {
    let server = RedisServer::start();
    let (_proxy, client) = slow(&server);
    let other = Client::open(&server.url()).unwrap();
    assert!(other.latch("latch").try_set(1).unwrap());
    let semaphore = client.semaphore("permits");
    all_are_refused("semaphore", || {
        Ok(semaphore.try_acquire_for(1, WAIT)?.is_some())
    });
    let semaphore = client.permit_semaphore("ids");
    all_are_refused("permit semaphore", || {
        Ok(semaphore.try_acquire_for(1, WAIT)?.is_some())
    });
    let latch = client.latch("latch");
    all_are_refused("latch", || latch.wait_for(WAIT));
}
