//! The head start that a process leaves to others. Each client represents a process.

use std::sync::atomic::AtomicBool;

use super::*;

/// Each client has one thread that acquires again at once.
#[test]
fn none_of_four_busy_processes_waits_for_two_seconds() {
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
            // The time that other processes need to receive the message and acquire.
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
