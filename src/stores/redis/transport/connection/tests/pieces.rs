#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

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
fn a_partial_reply_is_kept_for_the_next_call() {
    let rest = Says::later(ms(20), Says::bytes("\r\n"));
    let (mut connection, _server) = asked(Says::bytes(":1\r\n:2").then(rest));
    assert_eq!(connection.receive(soon()), Ok(Value::Int(1)));
    assert_eq!(connection.receive(soon()), Ok(Value::Int(2)));
    assert!(!connection.decoder.has_unread());
}

#[test]
fn a_late_rest_of_a_reply_is_not_unsolicited() {
    let rest = Says::later(ms(3000), Says::bytes("\r\n"));
    let (mut connection, _server) = asked(Says::bytes("$3\r\nab").then(rest));
    until(|| connection.has_arrived());
    assert!(is_late(&connection.receive(Instant::now() + ms(20))));
    assert!(!connection.decoder.has_unread());
    let (mut connection, _server) = asked(Says::nothing());
    assert!(is_late(&connection.receive(Instant::now() + ms(20))));
    assert!(!connection.decoder.has_unread());
}

#[test]
fn each_reply_has_its_own_deadline() {
    let (mut connection, _server) = asked(Says::later(ms(3000), Says::bytes(":1\r\n")));
    // An earlier request has set a longer timeout on the socket.
    assert!(is_late(&connection.receive(Instant::now() + ms(100))));
    assert_eq!(connection.receive(soon()), Ok(Value::Int(1)));
}

#[test]
fn a_passed_deadline_is_a_time_out() {
    let (mut connection, _server) = asked(Says::nothing());
    let begun = Instant::now();
    assert!(is_late(&connection.receive(begun)));
    assert!(begun.elapsed() < ms(1000));
}

#[test]
fn replies_above_the_limit_are_refused() {
    let large = |length: usize| {
        let header = format!("${length}\r\n");
        Says::bytes([header.as_bytes(), &vec![b'x'; length], b"\r\n"].concat())
    };
    let (mut connection, _server) = asked(large(1 << 19));
    let reply = connection.receive(soon()).unwrap();
    assert_eq!(reply, Value::BulkString(vec![b'x'; 1 << 19]));
    // The limit applies to the sum of all parts of a reply.
    let half = large(1 << 19);
    let two = Says::bytes("*3\r\n").then(half.clone()).then(half);
    let (mut connection, _server) = asked(two);
    let fault = connection.receive(soon()).err().unwrap();
    assert_eq!(
        fault.reason(),
        "the reply could not be read: the reply is larger than 1 MiB"
    );
}
