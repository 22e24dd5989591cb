//! The shutdown of a client with holds, waits and unreported losses.

use super::*;

#[test]
fn a_shutdown_notifies_earlier_and_later_loss_receivers() {
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
    let client = Client::builder().watchdog_timeout(ms(500));
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
    // A renewal, a background release, a hook and a subscription are in progress.
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
