#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

/// A server time far in the past.
const NOW: i64 = 1_000_000;

fn told(now: i64) -> (Connection, StubServer) {
    let (mut connection, server) = at(|_| None);
    connection.note_time(now, BootInstant::now());
    (connection, server)
}

#[test]
fn requests_expire_by_the_clock_of_the_server() {
    let (connection, _server) = told(NOW);
    let at = Instant::now() + Duration::from_secs(1);
    let expiry = connection.expiry(at, BootInstant::now());
    assert!((NOW + 990..NOW + 10_000).contains(&expiry), "{expiry}");
}

#[test]
fn the_surely_passed_time_is_rounded_down() {
    let (connection, _server) = told(NOW);
    let end = BootInstant::now() + Duration::from_secs(3);
    let before = connection.surely_before(end);
    assert_eq!(before, connection.ahead.least_at(end) / 1000 - 1);
    assert!((NOW + 2900..NOW + 3000 + 10_000).contains(&before));
}

#[test]
fn only_replies_with_a_time_set_the_clock() {
    let (mut connection, _server) = told(NOW);
    let now = BootInstant::now();
    let later = now + Duration::from_secs(1);
    let before = connection.surely_before(later);
    connection.note_time_in(&Value::Nil, 5, now);
    assert_eq!(connection.surely_before(later), before);
    connection.note_time_in(&Value::Int(1000), 4 * NOW, now);
    let least = connection.surely_before(later);
    assert!(
        (4 * NOW - 1000..4 * NOW + 10_000).contains(&least),
        "{least}"
    );
}

#[test]
fn replies_have_the_time_or_the_time_left() {
    let array = |items: &[i64]| Value::Array(items.iter().map(|it| Value::Int(*it)).collect());
    for (answer, not_after, expected) in [
        (Value::Int(0), 70, Some(70)),
        (Value::Int(69), 70, Some(1)),
        (Value::Int(70), 70, None),
        (Value::Int(71), 70, None),
        (Value::Int(-1), 70, None),
        (
            Value::Int(LARGEST_SMALL - 1),
            NOW * 10,
            Some(NOW * 10 - LARGEST_SMALL + 1),
        ),
        (Value::Int(LARGEST_SMALL), NOW * 10, None),
        (Value::Int(1), i64::MIN, None),
        (array(&[1, 33]), 70, Some(33)),
        (array(&[1, 0]), 70, None),
        (array(&[1, -3]), 70, None),
        (array(&[1]), 70, None),
        (Value::Array(vec![Value::Int(1), Value::Nil]), 70, None),
        (Value::Nil, 70, None),
    ] {
        assert_eq!(
            time_in(&answer, not_after),
            expected,
            "{answer:?} {not_after}"
        );
    }
}
