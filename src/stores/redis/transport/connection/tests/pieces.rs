//! Replies that come in pieces, or late.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A connection that was asked with a PING, which is answered so.
fn asked(says: Says) -> (Connection, StubServer) {
    let (mut connection, server) = at(move |request| request.is("PING").then(|| says.clone()));
    connection.ask(PING, soon()).unwrap();
    (connection, server)
}

fn is_late(reply: &Result<Value, CallError>) -> bool {
    matches!(
        reply,
        Err(CallError::NoReply {
            timed_out: true,
            ..
        })
    )
}

#[test]
fn the_beginning_of_a_reply_stays_until_the_rest_comes() {
    let rest = Says::later(ms(20), Says::bytes("\r\n"));
    let (mut connection, _server) = asked(Says::bytes(":1\r\n:2").then(rest));
    assert_eq!(connection.receive(soon()), Ok(Value::Int(1)));
    assert_eq!(connection.receive(soon()), Ok(Value::Int(2)));
    assert!(!connection.has_unread());
}

#[test]
fn a_reply_of_which_a_part_is_late_is_not_taken_for_one_that_nobody_asked_for() {
    let rest = Says::later(ms(3000), Says::bytes("\r\n"));
    let (mut connection, _server) = asked(Says::bytes("$3\r\nab").then(rest));
    until(|| connection.has_arrived());
    assert!(is_late(&connection.receive(Instant::now() + ms(20))));
    assert!(!connection.has_unread());
    // There is more to come of it.
    let (mut connection, _server) = asked(Says::nothing());
    assert!(is_late(&connection.receive(Instant::now() + ms(20))));
    assert!(!connection.has_unread());
}

#[test]
fn a_reply_is_waited_for_until_its_deadline_and_not_until_an_earlier_one() {
    let (mut connection, _server) = asked(Says::later(ms(300), Says::bytes(":1\r\n")));
    // The socket goes on with the time-out of that.
    assert!(is_late(&connection.receive(Instant::now() + ms(100))));
    assert_eq!(
        connection.receive(Instant::now() + ms(780)),
        Ok(Value::Int(1))
    );
}

#[test]
fn a_reply_that_is_over_its_time_before_it_is_waited_for_is_late() {
    let (mut connection, _server) = asked(Says::nothing());
    let begun = Instant::now();
    assert!(is_late(&connection.receive(begun)));
    assert!(begun.elapsed() < ms(1000));
}

#[test]
fn a_large_reply_is_read_and_a_larger_one_refused() {
    let large = |length: usize| {
        let header = format!("${length}\r\n");
        Says::bytes([header.as_bytes(), &vec![b'x'; length], b"\r\n"].concat())
    };
    let (mut connection, _server) = asked(large(1 << 19));
    let reply = connection.receive(soon()).unwrap();
    assert_eq!(reply, Value::BulkString(vec![b'x'; 1 << 19]));
    // All that is read of one reply is bounded, however many parts it has.
    let half = large(1 << 19);
    let two = Says::bytes("*3\r\n").then(half.clone()).then(half);
    let (mut connection, _server) = asked(two);
    let fault = connection.receive(soon()).err().unwrap();
    assert_eq!(
        fault.reason(),
        "the reply could not be read: the reply is larger than 1 MiB"
    );
}
