use std::time::Duration;

use crate::engine::hold::tests::{flying, held};
use crate::engine::hold::validity::{By, Flying, InFlightId};
use crate::engine::hold::validity::{MOST_IN_FLIGHT, end_of_validity};
use crate::engine::hold::{Hold, Lease};
use crate::ground::clock::{BootInstant, PROCESS};
use crate::store::EXPIRY_SLACK;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn note(hold: &Hold, sent: BootInstant, lease: Duration, expires: BootInstant) -> InFlightId {
    let mut state = hold.state.lock();
    state.note_in_flight(By::Holder, sent, lease, expires)
}

#[test]
fn many_requests_without_a_reply_are_merged() {
    let now = PROCESS.now();
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), now);
    let count = || hold.state.lock().in_flight.len();
    let expires = now + MINUTE;
    let awaited = [(); 2].map(|()| note(&hold, now, MINUTE, expires));
    for number in 2..MOST_IN_FLIGHT {
        let lease = MINUTE + SECOND * u32::try_from(number).unwrap_or(0);
        let id = note(&hold, now, lease, expires + lease);
        hold.unanswered(id);
        assert_eq!(count(), number + 1);
    }
    let last = note(&hold, now, MINUTE, expires);
    let state = hold.state.lock();
    let [first, second, one, newest] = &state.in_flight[..] else {
        panic!("{:?}", state.in_flight);
    };
    assert_eq!(
        [first.id, second.id, newest.id],
        [awaited[0], awaited[1], last]
    );
    assert_eq!(one.state, Flying::Unanswered);
    // The merged request has the shortest lease and the latest expiry of the original requests.
    let longest = MINUTE + SECOND * 7;
    assert_eq!(one.lease.get(), MINUTE + SECOND * 2);
    assert_eq!(one.expires, expires + longest + EXPIRY_SLACK);
}

#[test]
fn the_next_request_removes_expired_ones() {
    let now = PROCESS.now();
    let expires = now + SECOND + EXPIRY_SLACK;
    for (sent, left) in [(expires, 1), (expires.earlier(Duration::from_nanos(1)), 2)] {
        let (hold, _thread) = held(Lease::Watchdog(MINUTE), now);
        note(&hold, now, MINUTE, now + SECOND);
        note(&hold, sent, MINUTE, sent + SECOND);
        assert_eq!(hold.state.lock().in_flight.len(), left);
    }
}

#[test]
fn a_copy_of_the_first_request_may_still_run() {
    let now = PROCESS.read();
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), now.moment);
    hold.set_copy_in_flight(MINUTE, now.instant + SECOND * 50);
    assert!(matches!(flying(&hold)[..], [(_, Flying::Answered)]));
    assert!(hold.may_outlast());
}

#[test]
fn no_lease_counts_longer_than_the_semaphore_lives() {
    let now = PROCESS.now();
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), now);
    let first = note(&hold, now, MINUTE, now + SECOND);
    let second = note(&hold, now + SECOND, MINUTE, now + SECOND * 2);
    let ends = |hold: &Hold| {
        let state = hold.state.lock();
        (state.life_ends(), state.valid_until)
    };
    let whole = end_of_validity(now, MINUTE);
    let confirmed = |id, life| hold.confirmed(id, life, false, now);
    confirmed(InFlightId(99), Some(SECOND));
    assert_eq!(ends(&hold), (None, whole));
    confirmed(second, Some(SECOND * 20));
    let short = end_of_validity(now + SECOND, SECOND * 20);
    assert_eq!(ends(&hold), (Some(short), short));
    // A renewal found that the semaphore's key lives longer than the lease.
    confirmed(first, None);
    assert_eq!(ends(&hold).0, None);
    assert!(ends(&hold).1 > short);

    let (hold, _thread) = held(Lease::Fixed(MINUTE), now);
    hold.set_lifetime(SECOND * 20);
    let short = end_of_validity(now, SECOND * 20);
    assert_eq!(ends(&hold), (Some(short), short));
    assert_eq!(hold.state.lock().levels[0].ends, Some(short));
}

#[test]
fn the_store_keeps_a_hold_at_most_the_longest_lease() {
    let now = PROCESS.now();
    let (hold, _thread) = held(Lease::Fixed(MINUTE), now);
    assert_eq!(hold.state.lock().longest_in_store(&PROCESS), MINUTE);
    note(&hold, now, MINUTE * 2, now + MINUTE);
    note(&hold, now, SECOND, now + SECOND);
    let may_stand = hold.state.lock().longest_in_store(&PROCESS);
    let most = MINUTE * 3 + EXPIRY_SLACK;
    assert!(
        may_stand <= most && may_stand > most - SECOND * 30,
        "{may_stand:?}"
    );
}
