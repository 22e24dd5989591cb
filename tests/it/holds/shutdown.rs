//! The end of a client that holds, waits and has losses to tell.

use super::*;

#[test]
fn whoever_asks_for_news_after_a_shutdown_hears_at_once() {
    for client in [
        Client::in_memory(),
        Client::open(&RedisServer::start().url()).unwrap(),
    ] {
        let guard = client.lock("orders").guard().unwrap();
        let before = guard.lost();
        client.shutdown();
        for lost in [before, guard.lost()] {
            assert_eq!(lost.recv_timeout(ms(1)).unwrap().cause, LossCause::Closed);
        }
    }
}

#[test]
fn a_hold_that_ends_after_a_shutdown_ended_because_of_it() {
    let client = Client::builder().watchdog_timeout(ms(50));
    let client = client.in_memory().unwrap();
    let guard = client.lock("orders").guard().unwrap();
    client.shutdown();
    eventually(SLACK, "its validity has ended", || !guard.is_valid());
    let error = guard.unlock().unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Lost {
                cause: LossCause::Closed,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_hold_that_is_granted_during_a_shutdown_is_told() {
    for round in 0..60 {
        let client = Client::in_memory();
        let start = Barrier::new(5);
        thread::scope(|scope| {
            for number in 0..4 {
                let (client, start) = (&client, &start);
                scope.spawn(move || {
                    let lock = client.lock(&format!("orders:{number}"));
                    start.wait();
                    loop {
                        match lock.guard() {
                            Ok(guard) => {
                                let lost = guard.lost();
                                if let Ok(loss) = lost.recv_timeout(ms(2)) {
                                    assert_eq!(loss.cause, LossCause::Closed);
                                    return;
                                }
                                if guard.unlock().is_ok() && lost.try_recv().is_ok() {
                                    return;
                                }
                            }
                            Err(Error::Closed { .. }) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            start.wait();
            thread::sleep(Duration::from_micros(round * 50));
            client.shutdown();
            // Whoever got a lock at the last moment stands here until it is told.
        });
    }
}

#[test]
fn a_hold_that_is_granted_too_late_for_the_shutdown_is_told() {
    let (_server, proxy) = server();
    let client = Client::open(&proxy.url()).unwrap();
    let warm = client.lock("warm");
    warm.lock().unwrap();
    warm.unlock().unwrap();
    let asked = proxy.next(1, Some(sha(ACQUIRE).as_bytes()), Fault::DelayReply(ms(200)));
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let guard = client.lock("orders").guard().unwrap();
            guard.lost().recv_timeout(SLACK).map(|loss| loss.cause)
        });
        eventually(SLACK, "it is asked for", || asked.hits() == 1);
        client.shutdown();
        assert_eq!(holder.join().unwrap(), Ok(LossCause::Closed));
    });
}

#[test]
fn a_shutdown_waits_for_no_backlog_of_losses() {
    let mut child = Child::spawn("client with a slow hook", &[]);
    let report = child.expect_line("took", CHILD);
    let took: u64 = report.split(' ').nth(1).unwrap().parse().unwrap();
    // Ten seconds of hooks.
    assert!(ms(took) < ms(500) + SLACK, "{report}");
    assert_eq!(child.expect_line("silent", CHILD), "silent true");
    assert!(child.wait(CHILD).success());
}

pub(super) fn client_with_a_slow_hook() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let server = RedisServer::start();
    let client = quick()
        .on_lost(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            thread::sleep(ms(10));
        })
        .open(&server.url())
        .unwrap();
    for number in 0..1000 {
        let lock = client.lock(&format!("orders:{number}"));
        lock.with_lease_time(LONG).lock().unwrap();
    }
    server.cmd(&["FLUSHALL"]);
    for number in 0..1000 {
        let lost = client.lock(&format!("orders:{number}")).unlock();
        assert!(lost.unwrap_err().is_lost());
    }
    let start = Instant::now();
    client.shutdown();
    say(&format!("took {}", start.elapsed().as_millis()));
    thread::sleep(ms(50));
    let told = calls.load(Ordering::SeqCst);
    thread::sleep(ms(200));
    say(&format!("silent {}", told == calls.load(Ordering::SeqCst)));
}

fn shut_down_in_time(builder: Builder, end: impl FnOnce(Client)) {
    let server = RedisServer::start();
    let client = builder
        .command_timeout(ms(500))
        .watchdog_timeout(ms(600))
        .on_lost(|_| thread::sleep(Duration::from_secs(20)))
        .open(&server.url())
        .unwrap();
    let lock = client.lock("lost");
    lock.with_lease_time(ms(20)).lock().unwrap();
    let waiter = client.lock("waited for");
    let guard = client.lock("waited for").guard().unwrap();
    thread::scope(|scope| scope.spawn(|| waiter.try_lock_for(ms(50))).join().unwrap()).unwrap();
    drop((lock, waiter));
    thread::sleep(ms(100));
    server.freeze();
    // A renewal, a release in the background, a hook and a listener are all under way.
    guard.unlock().unwrap_err();
    let start = Instant::now();
    end(client);
    let took = start.elapsed();
    server.thaw();
    assert!(took < ms(500) + SLACK, "{took:?}");
}

#[test]
fn a_shutdown_ends_in_time_whatever_hangs() {
    shut_down_in_time(quick(), |client| client.shutdown());
    shut_down_in_time(quick(), drop);
}
