#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::engine::raw_lock::RawLock;
use crate::{Client, Error, Lock, MultiLock};

#[test]
fn a_polled_lock_stays_free_longer_than_pollers_pause() {
    let client = Client::in_memory();
    let rest = |lock: &Lock| lock.raw_lock().poll_pause();
    assert_eq!(rest(&client.lock("orders:1")), None);
    let spins = client.spin_lock("orders:1");
    assert_eq!(rest(&spins), Some(Duration::from_millis(128 + 64 + 10)));
    let (first, longest) = (Duration::from_millis(1), Duration::from_millis(40));
    let spins = spins.with_backoff(first, longest);
    assert_eq!(rest(&spins), Some(Duration::from_millis(40 + 20 + 10)));
}

#[test]
fn a_writer_may_read_and_reenter() {
    let client = Client::in_memory();
    let orders = client.read_write_lock("orders");
    let (read, write) = (orders.read(), orders.write());
    write.lock().unwrap();
    read.lock().unwrap();
    write.lock().unwrap();
    assert_eq!(
        [&write, &read].map(|lock| lock.hold_count().unwrap()),
        [2, 1]
    );
    for lock in [&write, &write, &read] {
        lock.unlock().unwrap();
    }
    read.lock().unwrap();
    assert!(matches!(write.try_lock(), Err(Error::Upgrade { .. })));
}

#[test]
fn the_requested_number_of_permits_is_acquired() {
    let client = Client::in_memory();
    let seats = client.semaphore("seats");
    seats.try_set(5).unwrap();
    let taken = seats.try_acquire(3).unwrap().unwrap();
    assert_eq!(seats.available().unwrap(), 2);
    drop(taken);
    assert_eq!(seats.available().unwrap(), 5);
}

#[test]
fn all_multi_locks_have_one_class() {
    let client = Client::in_memory();
    let class = |names: [&str; 2]| {
        let members = names.map(|name| client.lock(name));
        let lock = MultiLock::of(&members).unwrap();
        let RawLock { inner, class, .. } = lock.raw_lock();
        inner.counters.class(*class).to_owned()
    };
    assert_eq!(class(["a:1", "b:1"]), "multi_lock");
    assert_eq!(class(["a:2", "b:2"]), "multi_lock");
}
