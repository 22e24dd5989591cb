//! Requests, and what is seen of the connection before and after.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::fd::AsRawFd as _;

use super::*;
use crate::ground::claim::Kind;
use crate::stores::redis::layout::Layout;

/// Answers each PING so.
fn pinged(says: Says) -> (Connection, StubServer) {
    at(move |request| request.is("PING").then(|| says.clone()))
}

fn bytes(text: &str) -> Says {
    Says::Bytes(text.as_bytes().to_vec())
}

fn error_and_end() -> Says {
    Says::Both(Box::new(Says::Error("ERR no".into())), Box::new(Says::Cut))
}

#[test]
fn a_request_for_a_slot_on_the_move_goes_behind_its_word() {
    let (mut connection, server) = at(|_| None);
    connection.is_asking = true;
    let pong = Value::SimpleString("PONG".into());
    assert_eq!(connection.call(PING, soon()), Ok(pong.clone()));
    connection.is_asking = false;
    assert_eq!(connection.call(PING, soon()), Ok(pong));
    let asked: Vec<_> = server.asked().iter().map(|it| it.join(" ")).collect();
    assert_eq!(asked, ["ASKING", "PING", "PING"]);
}

#[test]
fn nothing_is_sent_on_a_connection_whose_last_error_was_not_all() {
    let (mut connection, server) = pinged(error_and_end());
    assert!(connection.call(PING, soon()).is_err());
    until(|| connection.is_reset());
    let refused = connection.ask(PING, soon());
    assert_eq!(refused, Err(CallError::NotSent(NOT_ALL.into())));
    let doubted = connection.has_only_refused();
    let lost = CallError::NoReply {
        reason: NOT_ALL.into(),
        timed_out: false,
    };
    assert_eq!(doubted, Err(lost));
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn a_connection_goes_on_behind_an_error_and_is_not_looked_at_behind_an_answer() {
    let (mut connection, _server) = pinged(Says::Error("ERR no".into()));
    for _ in 0..2 {
        let refused = connection.call(PING, soon());
        assert_eq!(refused, Err(CallError::Server("ERR no".into())));
        assert_eq!(connection.has_only_refused(), Ok(()));
    }
    let (mut connection, server) = at(|_| None);
    connection.call(PING, soon()).unwrap();
    server.cut_all();
    until(|| connection.is_reset());
    // That costs a call of the system for each request.
    assert_eq!(connection.ask(PING, soon()), Ok(()));
}

#[test]
fn requests_are_numbered_from_1_and_over_again() {
    let (mut connection, _server) = at(|_| None);
    for (before, number) in [(5, 6), (NUMBERS - 1, NUMBERS), (NUMBERS, 1), (0, 1)] {
        connection.next_number = before;
        assert_eq!(connection.number(), number);
    }
    assert_eq!(connection.number(), 2);
}

#[test]
fn only_the_answer_with_the_number_of_the_request_is_taken() {
    let small = |number: i64, answer: i64| format!(":{}\r\n", number << SMALL_BITS | answer);
    let large = |number: i64| format!("*2\r\n:{number}\r\n$1\r\nx\r\n");
    let text = |text: &str| Value::BulkString(text.into());
    for (said, answer, is_spent) in [
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
        assert_eq!(connection.is_spent, is_spent, "{said}");
    }
}

#[test]
fn a_reply_that_nobody_needs_is_read_and_may_be_an_error() {
    for (says, is_read) in [
        (bytes(":1\r\n"), true),
        (Says::Error("ERR no".into()), true),
        (Says::Cut, false),
    ] {
        let (mut connection, _server) = pinged(says);
        connection.ask(PING, soon()).unwrap();
        assert_eq!(connection.skip(soon()).is_ok(), is_read);
        assert!(!connection.has_unread());
    }
}

/// Whether the connection is good once it was read what it owes, and whether a script has to be sent as text then.
fn read_due(said: &str, due: &[Option<i64>]) -> (bool, bool) {
    let (mut connection, _server) = pinged(bytes(said));
    connection.ask(PING, soon()).unwrap();
    connection.replies_due = due.to_vec();
    let is_all = said.lines().count() >= due.len();
    let deadline = match is_all {
        true => soon(),
        false => Instant::now() + Duration::from_millis(50),
    };
    let is_good = connection.has_read_replies_due(deadline);
    assert!(connection.replies_due.is_empty());
    (is_good, connection.needs_text)
}

#[test]
fn a_connection_is_good_once_it_was_read_what_it_owes() {
    let answer = format!(":{}\r\n", 9 << SMALL_BITS);
    assert_eq!(read_due("", &[]), (true, false));
    assert_eq!(read_due("+OK\r\n", &[None]), (true, false));
    let both = answer.clone() + "+OK\r\n";
    assert_eq!(read_due(&both, &[Some(9), None]), (true, false));
    assert_eq!(read_due("-ERR no\r\n", &[None]), (true, false));
    assert_eq!(read_due("-NOSCRIPT no\r\n", &[Some(9)]), (true, true));
    let forgotten = "-NOSCRIPT no\r\n-ERR no\r\n";
    assert_eq!(read_due(forgotten, &[Some(9), None]), (true, true));
    // It is spent, or the answer does not come.
    assert_eq!(
        read_due(&("+OK\r\n".to_owned() + &answer), &[Some(9)]),
        (false, false)
    );
    assert_eq!(read_due(&answer, &[Some(9), None]), (false, false));
}

#[test]
fn a_connection_is_looked_at_where_it_may_have_been_closed() {
    let long_ago = || Instant::now() - STALE_AFTER;
    let (mut connection, server) = at(|_| None);
    assert!(!connection.is_reset() && !connection.is_stale());
    connection.last_used = long_ago();
    assert!(!connection.is_stale(), "the server is there");
    server.cut_all();
    until(|| connection.is_reset());
    assert!(connection.is_stale());
    connection.replies_due = vec![None];
    assert!(!connection.is_stale(), "what it owes was not read");
    connection.replies_due.clear();
    connection.last_used = Instant::now();
    assert!(!connection.is_stale(), "it was just used");
    connection.was_refused = true;
    assert!(connection.is_stale());
}

#[test]
fn what_has_arrived_is_seen_before_it_is_read_and_behind_what_was_read() {
    let (mut connection, _server) = pinged(bytes(":1\r\n:2\r\n"));
    assert!(!connection.has_arrived() && !connection.has_buffered());
    connection.ask(PING, soon()).unwrap();
    until(|| connection.has_arrived());
    assert!(!connection.has_buffered() && !connection.has_unread());
    assert_eq!(connection.receive(soon()), Ok(Value::Int(1)));
    assert!(connection.has_arrived() && connection.has_buffered());
    assert!(connection.has_unread() && connection.is_reset());
    assert_eq!(connection.receive(soon()), Ok(Value::Int(2)));
    assert!(!connection.has_arrived() && !connection.has_buffered());
    assert!(!connection.has_unread() && !connection.is_reset());
    assert_eq!(
        connection.source().as_raw_fd(),
        connection.stream.socket.source().as_raw_fd()
    );
}

#[test]
fn a_script_is_known_to_a_server_from_the_first_time_on_until_it_forgets() {
    let (mut connection, _server) = at(|_| None);
    let [one, other] = [Kind::Reentrant, Kind::Token].map(|kind| &Layout::of(kind).acquire);
    assert!(!connection.has_script(one));
    connection.mark_loaded(one);
    connection.mark_loaded(one);
    assert!(connection.has_script(one) && !connection.has_script(other));
    assert_eq!(connection.loaded_scripts.len(), 1);
    connection.mark_loaded(other);
    assert!(connection.has_script(other));
    connection.has_forgotten_scripts();
    assert!(!connection.has_script(one) && !connection.has_script(other));
}
