//! What two looks tell apart.

use super::super::event::EventKind::{
    Acquired, Disconnected, Ended, Expired, Forced, HandedOver, Held, NodeBack, NodeLost,
};
use super::*;

#[test]
fn what_is_held_at_first_was_not_seen_to_begin() {
    let mut watch = Fixture::new();
    assert_eq!(watch.apply(0, &[held("orders:1", 7, 29)]), one(Held));
    assert_eq!(watch.apply(1, &[held("orders:1", 7, 28)]), []);
    let two = [held("orders:1", 7, 27), held("orders:2", 8, 30)];
    assert_eq!(watch.apply(2, &two), [(Acquired, "orders:2".to_owned())]);
    assert_eq!(watch.state.events.len(), 1, "the table shows the first one");
}

#[test]
fn a_hold_goes_on_through_renewals_and_is_seen_for_as_long() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 21)]);
    for second in 1..60 {
        let left = 30 - second % 10;
        assert_eq!(watch.apply(second, &[held("orders:1", 7, left)]), []);
    }
    let lock = &watch.state.locks["orders:1"];
    assert_eq!(lock.holds[0].since, watch.at(0));
    assert_eq!((lock.seen, lock.holds[0].full), (watch.at(59), seconds(30)));
    let events = {
        let snapshot = watch.snapshot(60, &[], &[]);
        watch.state.apply(snapshot)
    };
    assert_eq!(events[0].lasted, Some(seconds(60)));
    assert_eq!(
        events[0].words(),
        "orders:1 free, web-3/812 thread 7 held it ≥ 1m 00s"
    );
}

#[test]
fn an_unlock_a_hand_over_and_an_expiry_differ() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    assert_eq!(watch.apply(1, &[]), one(Ended));
    watch.apply(2, &[held("orders:1", 7, 30)]);
    assert_eq!(watch.apply(3, &[held("orders:1", 8, 30)]), one(HandedOver));
    watch.apply(31, &[held("orders:1", 8, 2)]);
    assert_eq!(watch.apply(33, &[]), one(Expired));
    watch.apply(34, &[held("orders:1", 8, 1)]);
    // It would have had time left.
    watch.apply(35, &[held("orders:1", 8, 29)]);
    watch.apply(60, &[held("orders:1", 8, 4)]);
    assert_eq!(watch.apply(62, &[]), one(Ended));
}

/// A hold that is renewed has nearly its whole lease at each look; how it ended during a long pause is not known.
#[test]
fn an_end_in_a_long_pause_is_not_called_an_expiry() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    assert_eq!(watch.apply(60, &[]), one(Ended));
}

#[test]
fn a_lock_taken_after_an_expiry_was_not_handed_over() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    watch.apply(28, &[held("orders:1", 7, 1)]);
    let both = [one(Expired), one(Acquired)].concat();
    assert_eq!(watch.apply(30, &[held("orders:1", 8, 29)]), both);
}

#[test]
fn a_hold_that_was_ended_here_was_ended_by_force() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    watch.state.record_forced(format!("{CLIENT}:7:1"));
    assert_eq!(watch.apply(1, &[]), one(Forced));
    watch.apply(2, &[held("orders:1", 8, 29)]);
    watch.state.record_forced(format!("{CLIENT}:8:1"));
    let both = [one(Forced), one(Acquired)].concat();
    assert_eq!(watch.apply(3, &[held("orders:1", 9, 29)]), both);
}

#[test]
fn readers_come_and_go_one_by_one() {
    let mut watch = Fixture::new();
    let readers = |threads: &[u64]| {
        let mut info = held("orders:1", 0, 29);
        let holders = threads.iter().map(|it| held("", *it, 0).holders.remove(0));
        info.holders = holders.collect();
        [info]
    };
    watch.apply(0, &readers(&[1, 2]));
    assert_eq!(watch.apply(1, &readers(&[1, 2, 3])), one(Acquired));
    assert_eq!(watch.apply(2, &readers(&[1, 3])), one(Ended));
    let all = [one(Ended), one(Acquired), one(Acquired)].concat();
    assert_eq!(watch.apply(3, &readers(&[1, 4, 5])), all);
    assert_eq!(watch.state.rows(watch.at(3)).len(), 3);
}

#[test]
fn of_more_holds_than_are_read_none_is_told() {
    let mut watch = Fixture::new();
    let readers = |threads: std::ops::Range<u64>| {
        let mut info = held("orders:1", 0, 29);
        info.holders = threads
            .map(|it| held("", it, 0).holders.remove(0))
            .collect();
        [info]
    };
    watch.apply(0, &readers(0..64));
    assert_eq!(watch.apply(1, &readers(20..84)), []);
    assert_eq!(watch.apply(2, &[]).len(), 64);
}

#[test]
fn a_holder_without_a_connection_is_told_of_once_and_stays_known() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    let gone = |left| [disconnected(held("orders:1", 7, left))];
    // It may be connecting anew.
    assert_eq!(watch.apply(1, &gone(28)), []);
    assert_eq!(watch.apply(2, &[held("orders:1", 7, 29)]), []);
    assert_eq!(watch.apply(3, &gone(28)), []);
    assert_eq!(watch.apply(4, &gone(27)), one(Disconnected));
    assert_eq!(watch.apply(5, &gone(26)), []);
    let words = watch.state.events[0].words();
    assert_eq!(
        words,
        "orders:1: web-3/812 thread 7 holds it and has no connection left"
    );
    // One of which nothing was ever known has lost nothing.
    let other = || [disconnected(held("orders:1", 8, 29))];
    watch.apply(6, &other());
    assert_eq!(watch.apply(7, &other()), []);
    assert_eq!(watch.apply(8, &other()), []);
}

/// The run whose mark it is has ended long ago, and nobody renews it.
#[test]
fn a_mark_of_once_per_alarms_nobody() {
    let mut watch = Fixture::new();
    let mark = |left| held("job:once", 7, left);
    assert_eq!(watch.apply(0, &[]), []);
    let snapshot = watch.snapshot(1, &[mark(7_200)], &[]);
    let taken = watch.state.apply(snapshot);
    assert_eq!(
        taken[0].words(),
        "job:once taken by web-3/812 thread 7: the mark of --once-per, job may run again in 2h 00m"
    );
    for second in 2..6 {
        let gone = disconnected(mark(7_201 - second));
        assert_eq!(watch.apply(second, &[gone]), []);
    }
    watch.apply(7_199, &[disconnected(mark(2))]);
    let snapshot = watch.snapshot(7_202, &[], &[]);
    let over = watch.state.apply(snapshot);
    assert_eq!((over.len(), over[0].what), (1, Expired));
    assert!(!over[0].is_bad());
    assert_eq!(
        over[0].words(),
        "job:once expired: the mark of --once-per, job may run again"
    );
}

#[test]
fn a_server_that_is_silent_has_freed_nothing() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    let lost = vec![(NodeLost, NODE.to_owned())];
    assert_eq!(watch.apply_partial(1, &[], &[NODE]), lost);
    assert_eq!(watch.apply_partial(2, &[], &[NODE]), []);
    let lock = &watch.state.locks["orders:1"];
    assert_eq!(lock.left(watch.at(2)), Some(seconds(27)));
    assert_eq!(lock.left(watch.at(99)), Some(seconds(0)));
    let back = vec![(NodeBack, NODE.to_owned())];
    assert_eq!(watch.apply(3, &[held("orders:1", 7, 29)]), back);
    assert_eq!(
        watch.state.events.back().unwrap().words(),
        "10.0.0.1:6379 answers again, after 2s"
    );
}

#[test]
fn a_minority_of_silent_voters_hides_no_end() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    let mut snapshot = watch.snapshot(1, &[], &["10.0.0.2:6379"]);
    snapshot.is_complete = true;
    let events = watch.state.apply(snapshot);
    let whats: Vec<_> = events.iter().map(|it| it.what).collect();
    assert_eq!(whats, [NodeLost, Ended]);
}

#[test]
fn the_events_that_are_kept_have_an_end() {
    let mut watch = Fixture::new();
    for second in 0..500 {
        watch.apply(second, &[held("orders:1", second, 29)]);
    }
    assert_eq!(watch.state.events.len(), 200);
    let newest = watch.state.events.back().unwrap();
    assert_eq!(newest.clock, Fixture::clock(499));
}
