//! Fairness between processes whose waiters poll and so cannot be notified. Each client represents a process.

use std::sync::atomic::AtomicBool;

use super::*;

type Lane = fn(&Client) -> Lock;

/// Three clients have two threads each that acquire again at once.
#[track_caller]
fn nobody_starves(lane: Lane) {
    let server = RedisServer::start();
    // A busy machine must not count as an outage.
    let open = || {
        Client::builder()
            .command_timeout(ms(10_000))
            .open(&server.url())
    };
    let clients = [(); 3].map(|()| open().unwrap());
    let turns = [(); 3].map(|()| AtomicU32::new(0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (client, turns) in clients.iter().zip(&turns).chain(clients.iter().zip(&turns)) {
            let (lock, is_over) = (lane(client), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    lock.lock().unwrap();
                    thread::sleep(ms(10));
                    lock.unlock().unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        thread::sleep(ms(12_000));
        is_over.store(true, Ordering::SeqCst);
    });
    let turns = turns.map(AtomicU32::into_inner);
    let least = turns.iter().sum::<u32>() / 12;
    assert!(turns.iter().all(|it| *it >= least.max(20)), "{turns:?}");
}

#[test]
fn spin_locks_rotate_among_the_processes() {
    nobody_starves(|client| client.spin_lock("orders"));
}

#[test]
fn token_locks_rotate_among_the_processes() {
    nobody_starves(|client| client.token_lock("orders"));
}
