//! The head start that a process gives the others. Each client stands for a process.

use std::sync::atomic::AtomicBool;

use super::*;

/// Each client has one thread that wants the lock again at once.
#[test]
fn of_four_busy_processes_none_waits_for_two_seconds() {
    let server = RedisServer::start();
    let clients: [Client; 4] = std::array::from_fn(|_| Client::open(&server.url()).unwrap());
    let (start, is_over) = (Barrier::new(clients.len()), AtomicBool::new(false));
    let turns = |client: &Client| {
        let lock = client.lock("orders");
        let (mut turns, mut longest) = (0, Duration::ZERO);
        start.wait();
        while !is_over.load(Ordering::SeqCst) {
            let from = Instant::now();
            lock.lock().unwrap();
            longest = longest.max(from.elapsed());
            turns += 1;
            // As long as others take to hear of it and to ask.
            thread::sleep(ms(2));
            lock.unlock().unwrap();
        }
        (turns, longest)
    };
    let turns = thread::scope(|scope| {
        let threads = clients
            .each_ref()
            .map(|client| scope.spawn(|| turns(client)));
        thread::sleep(ms(3000));
        is_over.store(true, Ordering::SeqCst);
        threads.map(|thread| thread.join().unwrap())
    });
    let least = turns.iter().map(|(turns, _)| turns).sum::<u32>() / 16;
    let is_served = |(turns, longest): &(u32, Duration)| *turns > least && *longest < ms(2000);
    assert!(turns.iter().all(is_served), "{turns:?}");
}

/// A head start that ended long ago is no reason to wait.
#[test]
fn a_lock_that_is_free_for_long_is_taken_at_once() {
    let server = RedisServer::start();
    let connect = || redis::Client::open(server.url()).unwrap().get_connection();
    let mut listeners: Vec<_> = (0..5).map(|_| connect().unwrap()).collect();
    let _listening: Vec<_> = listeners
        .iter_mut()
        .map(|listener| {
            let mut listener = listener.as_pubsub();
            let subscribed = listener.subscribe("redisson_lock__channel:{orders}");
            subscribed.unwrap();
            listener
        })
        .collect();
    let (lock, other) = (
        Client::open(&server.url()).unwrap().lock("orders"),
        Client::open(&server.url()).unwrap().lock("orders"),
    );
    let mut waits = Vec::new();
    for _ in 0..9 {
        // It is waited for, so that its messages arrive.
        other.lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                lock.lock().unwrap();
                lock.unlock().unwrap();
            });
            thread::sleep(ms(20));
            other.unlock().unwrap();
            waiter.join().unwrap();
        });
        other.lock().unwrap();
        other.unlock().unwrap();
        thread::sleep(ms(200));
        let start = Instant::now();
        lock.lock().unwrap();
        waits.push(start.elapsed());
        lock.unlock().unwrap();
    }
    // Each would last 10 ms; a busy machine makes some of them long.
    waits.sort_unstable();
    assert!(waits[1] < ms(8), "{waits:?}");
}

#[test]
fn a_listener_that_does_not_want_the_lock_costs_no_request() {
    let server = RedisServer::start();
    let listener = redis::Client::open(server.url()).unwrap();
    let mut listener = listener.get_connection().unwrap();
    let mut listener = listener.as_pubsub();
    listener
        .subscribe("redisson_lock__channel:{orders}")
        .unwrap();
    let lock = Client::open(&server.url()).unwrap().lock("orders");
    let start = Instant::now();
    for _ in 0..100 {
        lock.lock().unwrap();
        lock.unlock().unwrap();
    }
    let asked = server.eval_count();
    assert!(asked < 220, "{asked} requests for 100 pairs");
    // The longest head start is 10 ms.
    assert!(start.elapsed() < ms(10_000), "{:?}", start.elapsed());
}

#[test]
fn one_who_listens_already_and_begins_to_want_the_lock_gets_it_soon() {
    let server = RedisServer::start();
    let (busy, other) = (
        Client::open(&server.url()).unwrap().lock("orders"),
        Client::open(&server.url()).unwrap().lock("orders"),
    );
    let (is_over, pairs) = (AtomicBool::new(false), AtomicU32::new(0));
    let waits = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                busy.lock().unwrap();
                pairs.fetch_add(1, Ordering::SeqCst);
                busy.unlock().unwrap();
            }
        });
        let waits: Result<Vec<Duration>, Error> = (0..9)
            .map(|_| {
                // Until the other one counts on it no more: its subscription outlasts that.
                let before = pairs.load(Ordering::SeqCst);
                eventually(SLACK * 4, "the other one goes on", || {
                    pairs.load(Ordering::SeqCst) > before + 100
                });
                let start = Instant::now();
                other.lock()?;
                let took = start.elapsed();
                other.unlock()?;
                Ok(took)
            })
            .collect();
        is_over.store(true, Ordering::SeqCst);
        waits
    });
    let mut waits = waits.unwrap();
    waits.sort_unstable();
    // Some milliseconds on a quiet machine. It would take the second after which all who listen have a chance, if no turn
    // were left in between.
    assert!(waits[4] < ms(500), "{waits:?}");
}
