//! Events between two snapshots.

use super::super::event::EventKind::{
    Acquired, Disconnected, Ended, Expired, Forced, HandedOver, Held, NodeBack, NodeLost,
};
use super::*;

#[test]
fn the_first_snapshot_reports_held_locks() {
    let mut watch = Fixture::new();
    assert_eq!(watch.apply(0, &[held("orders:1", 7, 29)]), one(Held));
    assert_eq!(watch.apply(1, &[held("orders:1", 7, 28)]), []);
    let two = [held("orders:1", 7, 27), held("orders:2", 8, 30)];
    assert_eq!(watch.apply(2, &two), [(Acquired, "orders:2".to_owned())]);
    assert_eq!(
        watch.state.events.len(),
        1,
        "the first snapshot is in the table"
    );
}

#[test]
fn a_renewed_hold_continues() {
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
        "orders:1 free, held by web-3/812 thread 7 for ≥ 1m 00s"
    );
}

#[test]
fn unlock_hand_over_and_expiry_are_told_apart() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    assert_eq!(watch.apply(1, &[]), one(Ended));
    watch.apply(2, &[held("orders:1", 7, 30)]);
    assert_eq!(watch.apply(3, &[held("orders:1", 8, 30)]), one(HandedOver));
    watch.apply(31, &[held("orders:1", 8, 2)]);
    assert_eq!(watch.apply(33, &[]), one(Expired));
    watch.apply(34, &[held("orders:1", 8, 1)]);
    // If a hold ends with time left, it did not expire.
    watch.apply(35, &[held("orders:1", 8, 29)]);
    watch.apply(60, &[held("orders:1", 8, 4)]);
    assert_eq!(watch.apply(62, &[]), one(Ended));
}

/// With renewals, each snapshot shows nearly the whole lease. So after a long pause, the cause of an end is unknown.
#[test]
fn an_end_in_a_long_pause_is_not_an_expiry() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    assert_eq!(watch.apply(60, &[]), one(Ended));
}

#[test]
fn an_expired_lock_is_not_handed_over() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    watch.apply(28, &[held("orders:1", 7, 1)]);
    let both = [one(Expired), one(Acquired)].concat();
    assert_eq!(watch.apply(30, &[held("orders:1", 8, 29)]), both);
}

#[test]
fn a_hold_released_here_is_forced() {
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
fn readers_are_reported_one_by_one() {
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
fn holds_beyond_the_read_limit_are_not_reported() {
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
fn a_lost_connection_is_reported_once() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    let gone = |left| [disconnected(held("orders:1", 7, left))];
    // The holder may be reconnecting.
    assert_eq!(watch.apply(1, &gone(28)), []);
    assert_eq!(watch.apply(2, &[held("orders:1", 7, 29)]), []);
    assert_eq!(watch.apply(3, &gone(28)), []);
    assert_eq!(watch.apply(4, &gone(27)), one(Disconnected));
    assert_eq!(watch.apply(5, &gone(26)), []);
    let words = watch.state.events[0].words();
    assert_eq!(
        words,
        "orders:1: its holder web-3/812 thread 7 has no connection"
    );
    // No connection of this holder was ever seen, so none was lost.
    let other = || [disconnected(held("orders:1", 8, 29))];
    watch.apply(6, &other());
    assert_eq!(watch.apply(7, &other()), []);
    assert_eq!(watch.apply(8, &other()), []);
}

/// After the run that set a mark, the mark has no connection and is never renewed.
#[test]
fn a_once_per_mark_raises_no_alarm() {
    let mut watch = Fixture::new();
    let mark = |left| held("job:once", 7, left);
    assert_eq!(watch.apply(0, &[]), []);
    let snapshot = watch.snapshot(1, &[mark(7_200)], &[]);
    let taken = watch.state.apply(snapshot);
    assert_eq!(
        taken[0].words(),
        "job:once acquired by web-3/812 thread 7: mark of --once-per; job may run again in 2h 00m"
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
        "job:once expired: mark of --once-per; job may run again"
    );
}

#[test]
fn an_unreachable_server_releases_nothing() {
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
        "10.0.0.1:6379 replies again, after 2s"
    );
}

#[test]
fn an_unreachable_minority_hides_no_end() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("orders:1", 7, 29)]);
    let mut snapshot = watch.snapshot(1, &[], &["10.0.0.2:6379"]);
    snapshot.is_complete = true;
    let events = watch.state.apply(snapshot);
    let whats: Vec<_> = events.iter().map(|it| it.what).collect();
    assert_eq!(whats, [NodeLost, Ended]);
}

#[test]
fn the_number_of_kept_events_is_bounded() {
    let mut watch = Fixture::new();
    for second in 0..500 {
        watch.apply(second, &[held("orders:1", second, 29)]);
    }
    assert_eq!(watch.state.events.len(), 200);
    let newest = watch.state.events.back().unwrap();
    assert_eq!(newest.clock, Fixture::clock(499));
}
