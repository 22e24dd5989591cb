//! The turns that processes leave to each other. Each client stands for a process.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::observed::noted;

/// The order in which clients got the lock, each with one thread that wants it again at once.
fn order_of(clients: &[Client], rounds: usize) -> Vec<usize> {
    let order = Mutex::new(Vec::new());
    let start = Barrier::new(clients.len());
    thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            let (order, start) = (&order, &start);
            scope.spawn(move || {
                let lock = client.lock("orders");
                start.wait();
                loop {
                    lock.lock().unwrap();
                    let is_over = {
                        let mut order = order.lock().unwrap();
                        order.push(number);
                        order.len() >= rounds
                    };
                    // As long as others take to hear of it and to ask.
                    thread::sleep(ms(2));
                    lock.unlock().unwrap();
                    if is_over {
                        return;
                    }
                }
            });
        }
    });
    order.into_inner().unwrap()
}

#[test]
fn each_process_has_its_turn() {
    let server = RedisServer::start();
    let clients: Vec<_> = (0..4)
        .map(|_| Client::open(&server.url()).unwrap())
        .collect();
    let order = order_of(&clients, 400);
    // After the first rounds, in which they come to know of each other.
    let settled = &order[100..400];
    let counts: Vec<_> = (0..4)
        .map(|client| settled.iter().filter(|it| **it == client).count())
        .collect();
    let in_turn = settled
        .windows(4)
        .filter(|turns| (0..4).all(|client| turns.contains(&client)))
        .count();
    // All of them on a quiet machine; one in eight without turns. A process that is late for its turn spoils four.
    assert!(
        in_turn * 10 >= settled.len() * 4,
        "{in_turn} of {}: {counts:?}",
        settled.len()
    );
}

/// A foreign turn that ended long ago is no reason to wait for the next one.
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
fn a_listener_that_does_not_want_the_lock_costs_little() {
    let server = RedisServer::start();
    let listener = redis::Client::open(server.url()).unwrap();
    let mut listener = listener.get_connection().unwrap();
    let mut listener = listener.as_pubsub();
    listener
        .subscribe("redisson_lock__channel:{orders}")
        .unwrap();
    let (builder, notes) = noted();
    let client = builder.open(&server.url()).unwrap();
    let lock = client.lock("orders");
    for _ in 0..500 {
        lock.lock().unwrap();
        lock.unlock().unwrap();
    }
    let [free, polled] = ["acquired free", "acquired polled"].map(|way| notes.count(way));
    // One in seventeen parts of the time goes by in turns that nobody takes, and each turn takes as long as some pairs. All but
    // the first would wait if a turn were left each time.
    assert!(free > 250, "{free}");
    assert!(polled >= 2, "nobody else would have a turn");
    let asked = server.eval_count();
    assert!(asked < 1100, "{asked} requests for 500 pairs");
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

/// The longest of the waits of a process that is so far away for one permit, which threads of a near one want, too.
fn longest_wait_for_a_permit(distance: Duration, held: Duration) -> Duration {
    let server = RedisServer::start();
    let near = Client::open(&server.url()).unwrap().semaphore("mail");
    let proxy = Proxy::to(server.addr());
    proxy.next(usize::MAX, None, Fault::DelayRequest(distance));
    let far = Client::open(&proxy.url()).unwrap().semaphore("mail");
    assert!(near.try_set(1).unwrap());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let permit = near.acquire(1).unwrap();
                    thread::sleep(held);
                    permit.release().unwrap();
                }
            });
        }
        thread::sleep(ms(200));
        let wait = || {
            let start = Instant::now();
            drop(far.try_acquire_for(1, ms(60_000)).unwrap());
            start.elapsed()
        };
        let longest = (0..5).map(|_| wait()).max().unwrap_or_default();
        is_over.store(true, Ordering::SeqCst);
        longest
    })
}

#[test]
fn a_distant_process_gets_permits() {
    let waits = [(2, 30), (4, 30), (2, 100)]
        .map(|(distance, held)| longest_wait_for_a_permit(ms(distance), ms(held)));
    // About a second on a quiet machine. A busy one may be late for each chance of 10 ms, and has one of 100 ms in ten
    // seconds: this is the time of three of those.
    assert!(waits.iter().all(|it| *it < ms(30_000)), "{waits:?}");
}
