//! The order of the queue, its fairness to other processes, and outages.

use super::*;

#[test]
fn threads_are_served_in_order_of_arrival() {
    let server = RedisServer::start();
    for client in [Client::in_memory(), Client::open(&server.url()).unwrap()] {
        let lock = client.lock("orders");
        let order = Mutex::new(Vec::new());
        lock.lock().unwrap();
        thread::scope(|scope| {
            line_up(scope, &lock, 6, |number| {
                client.lock("orders").lock().unwrap();
                order.lock().unwrap().push(number);
                client.lock("orders").unlock().unwrap();
            });
            lock.unlock().unwrap();
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
        assert!(!lock.is_locked().unwrap());
    }
}

#[test]
fn other_processes_are_not_starved() {
    let server = RedisServer::start();
    let stop = Instant::now() + Duration::from_secs(3);
    let counts: Vec<AtomicU32> = (0..4).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        // Each client represents a process.
        for count in &counts {
            let client = Client::open(&server.url()).unwrap();
            for _ in 0..3 {
                let lock = client.lock("orders");
                scope.spawn(move || {
                    while Instant::now() < stop {
                        lock.lock().unwrap();
                        count.fetch_add(1, Ordering::Relaxed);
                        lock.unlock().unwrap();
                    }
                });
            }
        }
    });
    let counts: Vec<u32> = counts
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    // Turns are as long as a process has waiters, so the shares may differ; no process is starved.
    assert!(*least * 3 > *most, "{counts:?}");
}

#[test]
fn five_hundred_waiters_send_few_requests() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    let order = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..500 {
            scope.spawn(|| {
                lock.lock().unwrap();
                order.fetch_add(1, Ordering::Relaxed);
                lock.unlock().unwrap();
            });
        }
        // After their arrival they send no more requests than a single waiter.
        until_at_rest(slice::from_ref(&server), &lock, 500);
        let before = server.eval_count();
        thread::sleep(Duration::from_secs(2));
        let asked = server.eval_count() - before;
        assert!(asked <= 10, "{asked} requests of 500 waiters in 2 s");
        let before = server.eval_count();
        lock.unlock().unwrap();
        eventually(Duration::from_secs(60), "all get through", || {
            order.load(Ordering::Relaxed) == 500
        });
        let requests = server.eval_count() - before;
        assert!(requests < 700, "{requests} requests for 500 acquisitions");
    });
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn an_outage_is_reported_to_every_waiter() {
    let server = RedisServer::start();
    let client = Client::builder()
        .command_timeout(ms(300))
        .outage_timeout(Duration::from_secs(2))
        .open(&server.url())
        .unwrap();
    let holder = Client::open(&server.url()).unwrap();
    holder.lock("orders").lock().unwrap();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..30)
            .map(|number| {
                let lock = client.lock("orders");
                scope.spawn(move || {
                    if number % 2 == 0 {
                        lock.lock()
                    } else {
                        lock.try_lock_for(ms(1500)).map(|_| ())
                    }
                })
            })
            .collect();
        until_queued(&client.lock("orders"), 30);
        server.freeze();
        let start = Instant::now();
        for waiter in waiting {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(
                error.is_retryable() || error.is_ambiguous(),
                "not refused, but {error}"
            );
        }
        assert!(
            start.elapsed() < Duration::from_secs(2) + SLACK,
            "{:?}",
            start.elapsed()
        );
        server.thaw();
    });
}

#[test]
fn a_busy_pool_is_an_error_of_its_own_without_a_wait() {
    let server = RedisServer::start();
    let client = Client::builder().pool_size(1).open(&server.url()).unwrap();
    client.lock("warm").run(|_| ()).unwrap();
    server.freeze();
    thread::scope(|scope| {
        scope.spawn(|| client.lock("a").try_lock());
        thread::sleep(ms(100));
        let lock = client.lock("b");
        let error = lock.try_lock_for(Duration::ZERO).unwrap_err();
        assert!(
            matches!(error, Error::Exhausted { connections: 1, .. }),
            "{error}"
        );
        assert!(error.is_retryable() && !error.is_ambiguous());
        assert!(error.to_string().contains("pool_size"), "{error}");
        // A waiter did not get it in time.
        let (waited, is_taken) = timed(|| lock.try_lock_for(ms(100)).unwrap());
        assert!(!is_taken && waited < ms(1000), "{waited:?}");
        server.thaw();
    });
}
