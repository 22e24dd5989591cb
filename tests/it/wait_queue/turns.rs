//! The turns that processes leave to each other. Each client stands for a process.

use super::*;

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
    assert!(
        in_turn * 10 >= settled.len() * 7,
        "{in_turn} of {}: {counts:?}",
        settled.len()
    );
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
    let lock = Client::open(&server.url()).unwrap().lock("orders");
    let start = Instant::now();
    for _ in 0..100 {
        lock.lock().unwrap();
        lock.unlock().unwrap();
    }
    // Two round trips for each pair, and not the 10 ms that a turn may take.
    assert!(start.elapsed() < ms(1000), "{:?}", start.elapsed());
}
