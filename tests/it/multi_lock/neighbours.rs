//! Threads of the same client that want one part alone.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn threads_that_want_one_part_let_it_have_its_turn() {
    let server = RedisServer::start();
    for client in [client(&server), Client::in_memory()] {
        let (a, b) = (client.lock("a"), client.lock("b"));
        let both = MultiLock::of([&a, &b]).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        b.run(|_| thread::sleep(ms(10))).unwrap();
                    }
                });
            }
            thread::sleep(ms(200));
            let got = both.try_lock_for(ms(10_000)).unwrap();
            is_over.store(true, Ordering::SeqCst);
            assert!(got, "they hand it to one another for ever");
            both.unlock().unwrap();
        });
    }
}

#[test]
fn a_part_that_is_to_be_read_is_not_in_the_way_of_others_who_read_it() {
    let server = RedisServer::start();
    for client in [client(&server), Client::in_memory()] {
        let orders = client.read_write_lock("orders");
        let both = MultiLock::of([&client.lock("a"), &orders.read()]).unwrap();
        orders.write().lock().unwrap();
        assert!(!elsewhere(|| both.try_lock().unwrap()));
        orders.read().lock().unwrap();
        assert!(!elsewhere(|| both.try_lock().unwrap()), "it is written");
        orders.write().unlock().unwrap();
        assert!(elsewhere(
            || both.try_lock().unwrap() && both.unlock().is_ok()
        ));
        orders.read().unlock().unwrap();
    }
}

#[test]
fn a_part_that_the_thread_has_by_itself_is_an_overlap_whoever_was_in_the_way_before() {
    let server = RedisServer::start();
    let (one, other) = (client(&server), client(&server));
    let both = MultiLock::of([&one.lock("a"), &one.lock("b")]).unwrap();
    let theirs = other.lock("b");
    elsewhere(|| {
        let guard = theirs.guard().unwrap();
        assert!(!elsewhere(|| both.try_lock().unwrap()));
        guard.unlock().unwrap();
    });
    theirs.lock().unwrap();
    let outcome = both.try_lock_for(ms(2000));
    assert!(matches!(outcome, Err(Error::Overlap { .. })), "{outcome:?}");
    theirs.unlock().unwrap();
}

#[test]
fn a_part_that_is_to_be_written_comes_when_nobody_reads_it() {
    let server = RedisServer::start();
    let client = client(&server);
    let orders = client.read_write_lock("orders");
    let a = client.lock("a");
    let both = MultiLock::of([&a, &orders.write()]).unwrap();
    orders.read().lock().unwrap();
    let before = server.int(&["DBSIZE"]);
    assert!(!elsewhere(|| both.try_lock_for(ms(1500)).unwrap()));
    assert_eq!(
        server.int(&["DBSIZE"]),
        before,
        "the other part is given back"
    );
    orders.read().unlock().unwrap();
    assert!(both.try_lock_for(ms(2500)).unwrap());
    both.unlock().unwrap();
}
