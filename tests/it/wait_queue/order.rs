//! The order of the queue, its fairness to others, and holds that end for other reasons than an unlock.

use super::*;

#[test]
fn who_comes_first_is_served_first() {
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
        // Each client stands for a process.
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
    // Turns are as long as there are waiters in a process, so the shares may differ; nobody is starved.
    assert!(*least * 3 > *most, "{counts:?}");
}

#[test]
fn five_hundred_waiters_make_no_storm() {
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
        // They come, and then ask no more than one of them would.
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
fn an_outage_is_told_to_everybody_in_line() {
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

/// Hands `lock`, which the calling thread holds, to the first of `waiters` threads in line, which keeps it without ever
/// unlocking it; then `part`s it from the lock. Returns how long after that the second has had it.
fn parted(lock: &Lock, fixed: Option<Duration>, part: impl FnOnce()) -> Duration {
    lock.lock().unwrap();
    let (sender, got) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let (keep, kept) = crossbeam_channel::bounded::<()>(0);
        for number in 0..2 {
            let (sender, kept) = (sender.clone(), kept.clone());
            scope.spawn(move || {
                let lock = match fixed {
                    Some(lease) if number == 0 => lock.with_lease_time(lease),
                    _ => lock.clone(),
                };
                lock.lock().unwrap();
                sender.send(Instant::now()).unwrap();
                // Until the other end is dropped.
                let _ = kept.recv();
                let _ = lock.unlock();
            });
            until_queued(lock, number + 1);
        }
        lock.unlock().unwrap();
        let handed = got.recv_timeout(SLACK).unwrap();
        until_queued(lock, 1);
        part();
        let parted = match fixed {
            Some(lease) => handed + lease,
            None => Instant::now(),
        };
        let second = got.recv_timeout(SLACK * 2);
        drop(keep);
        second.unwrap().saturating_duration_since(parted)
    })
}

#[test]
fn a_lock_that_is_forced_open_goes_to_the_next_in_line_at_once() {
    let server = RedisServer::start();
    for client in [Client::in_memory(), Client::open(&server.url()).unwrap()] {
        let lock = client.lock("orders");
        let took = parted(&lock, None, || assert!(lock.force_unlock().unwrap()));
        assert!(took < ms(500), "{took:?}");
    }
}

#[test]
fn a_lease_that_ends_in_the_line_goes_to_the_next_at_once() {
    let server = RedisServer::start();
    for client in [Client::in_memory(), Client::open(&server.url()).unwrap()] {
        let took = parted(&client.lock("orders"), Some(ms(300)), || {});
        assert!(took < ms(400), "{took:?}");
    }
}

#[test]
fn a_lock_that_vanished_is_found_by_the_next_in_line_in_a_second() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let took = parted(&client.lock("orders"), None, || {
        server.cmd(&["FLUSHALL"]);
    });
    assert!(took < ms(1600), "{took:?}");
}

#[test]
fn a_hold_that_turns_out_lost_goes_to_the_next_in_line_at_once() {
    let server = RedisServer::start();
    let client = Client::builder()
        .watchdog_timeout(ms(600))
        .open(&server.url())
        .unwrap();
    let took = parted(&client.lock("orders"), None, || {
        server.cmd(&["FLUSHALL"]);
    });
    // The renewal that finds it gone comes after a third of the lease.
    assert!(took < ms(700), "{took:?}");
}

#[test]
fn a_crowd_at_its_deadline_is_refused_although_it_cannot_ask_at_once() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    proxy.next(usize::MAX, None, Fault::DelayReply(ms(20)));
    // All attempts of the crowd take 600 ms: time enough before the deadline, and too much for what is added to it.
    let client = Client::builder().pool_size(4).open(&proxy.url()).unwrap();
    let holder = Client::open(&server.url()).unwrap().lock("orders");
    holder.lock().unwrap();
    let (start, refused) = (Barrier::new(120), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..120 {
            scope.spawn(|| {
                start.wait();
                match client.lock("orders").try_lock_for(ms(3_000)) {
                    Ok(false) => refused.fetch_add(1, Ordering::Relaxed),
                    other => panic!("{other:?}"),
                }
            });
        }
    });
    assert_eq!(refused.into_inner(), 120);
    holder.unlock().unwrap();
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
        // One that waits did not get it in time.
        let (waited, is_taken) = timed(|| lock.try_lock_for(ms(100)).unwrap());
        assert!(!is_taken && waited < ms(1000), "{waited:?}");
        server.thaw();
    });
}
