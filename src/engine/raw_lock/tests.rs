//! The visitor of a wait, by the rules of its kind; how long a lock rests for pollers, and how acquisitions count.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::engine::raw_lock::wait_visitor::WaitVisitor;
use crate::ground::claim::{Rules, VisitorId};
use crate::{Client, Error, Lock};

/// The numbers of the visitors of three attempts, the second of which leaves something that is cleared up.
fn visitors(rules: &'static Rules) -> [String; 3] {
    let mut visitor = WaitVisitor::new(rules);
    [1, 2, 3].map(|number| {
        let next = visitor.next(|| VisitorId::new("client", 1, number));
        if number == 2 {
            visitor.retire();
        }
        next.to_string()
    })
}

#[test]
fn a_wait_has_one_visitor_where_a_refused_one_leaves_a_place_and_nothing_is_cleared_up() {
    const PLACED: Rules = Rules {
        places_in_store: true,
        ..Rules::PLAIN
    };
    let each = ["client:1:1", "client:1:2", "client:1:3"];
    assert_eq!(visitors(&Rules::PLAIN), each);
    assert_eq!(
        visitors(&PLACED),
        ["client:1:1", "client:1:1", "client:1:3"]
    );
}

#[test]
fn a_lock_that_is_polled_for_rests_for_longer_than_a_poller_pauses() {
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
fn a_writer_that_reads_inside_enters_again() {
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
fn so_many_permits_are_taken_as_are_wanted() {
    let client = Client::in_memory();
    let seats = client.semaphore("seats");
    seats.try_set(5).unwrap();
    let taken = seats.try_acquire(3).unwrap().unwrap();
    assert_eq!(seats.available().unwrap(), 2);
    drop(taken);
    assert_eq!(seats.available().unwrap(), 5);
}
