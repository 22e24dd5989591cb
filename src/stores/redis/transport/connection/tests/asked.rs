#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

fn pinged(says: Says) -> (Connection, StubServer) {
    at(move |request| request.is("PING").then(|| says.clone()))
}

fn bytes(text: &str) -> Says {
    Says::bytes(text)
}

fn error_and_end() -> Says {
    Says::error("ERR no").then(Says::cut())
}

#[test]
fn no_request_follows_an_error_with_more_bytes() {
    let (mut connection, server) = pinged(error_and_end());
    assert!(connection.call(PING, soon()).is_err());
    until(|| connection.is_reset());
    let refused = connection.ask(PING, soon());
    assert_eq!(refused, Err(CallError::NotSent(UNSOLICITED.into())));
    let doubted = connection.has_only_refused();
    let lost = CallError::NoReply {
        reason: UNSOLICITED.into(),
        timed_out: false,
    };
    assert_eq!(doubted, Err(lost));
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn replies_with_other_numbers_are_skipped() {
    let small = |number: i64, answer: i64| format!(":{}\r\n", number << SMALL_BITS | answer);
    let large = |number: i64| format!("*2\r\n:{number}\r\n$1\r\nx\r\n");
    let text = |text: &str| Value::BulkString(text.into());
    for (said, answer, is_unusable) in [
        (small(9, 0), Value::Int(0), false),
        (small(9, LARGEST_SMALL), Value::Int(LARGEST_SMALL), false),
        (large(9), text("x"), false),
        (small(8, 1) + &small(9, 2), Value::Int(2), true),
        (large(8) + &small(9, 2), Value::Int(2), true),
        (large(8) + &large(9), text("x"), true),
        ("+OK\r\n".to_owned() + &large(9), text("x"), true),
        ("*1\r\n:9\r\n".to_owned() + &large(9), text("x"), true),
    ] {
        let (mut connection, _server) = pinged(bytes(&said));
        connection.ask(PING, soon()).unwrap();
        assert_eq!(connection.answer(9, soon()), Ok(answer), "{said}");
        assert_eq!(connection.is_unusable, is_unusable, "{said}");
    }
}
