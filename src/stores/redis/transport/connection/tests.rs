#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Read;
use std::net::TcpListener;
use std::thread;

use super::*;
use crate::stores::redis::drawn::{altered, draws};
use crate::stores::redis::transport::address::Address;
use crate::stores::redis::transport::reply_text::{MOST_WORDS, brief};
use crate::stores::redis::transport::tls::TlsConfig;

/// A connection to a server that says `replies` behind those of the handshake.
fn talking(replies: Vec<u8>) -> (Connection, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream
            .write_all(b"+OK\r\n*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n")
            .unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(&replies).unwrap();
    });
    let address = Address::parse(&url, Duration::from_secs(5), &TlsConfig::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    (Connection::connect(&address, deadline).unwrap(), server)
}

#[test]
fn a_server_that_says_much_is_cut_short() {
    let deadline = Instant::now() + Duration::from_secs(5);
    let error = [
        "-ERR \x1b[1m".to_owned(),
        "ä".repeat(400_000),
        "\r\n".to_owned(),
    ]
    .concat();
    let mut replies = error.into_bytes();
    replies.extend(b":7\r\n");
    let (mut connection, server) = talking(replies);
    let Err(CallError::Server(text)) = connection.call(b"*1\r\n$4\r\nPING\r\n", deadline) else {
        panic!("an error was sent");
    };
    assert!(
        text.starts_with("ERR \u{fffd}[1mää") && text.ends_with('…'),
        "{text}"
    );
    assert!(text.len() < MOST_WORDS + 8, "{}", text.len());
    assert_eq!(connection.receive(deadline), Ok(Value::Int(7)));
    assert!(!connection.has_unread());
    server.join().unwrap();
}

#[test]
fn what_comes_behind_an_error_is_seen_however_soon() {
    let deadline = Instant::now() + Duration::from_secs(5);
    let ping = b"*1\r\n$4\r\nPING\r\n";
    let (mut connection, server) = talking(b"-ERR no\r\n".to_vec());
    let refused = connection.call(ping, deadline);
    assert!(matches!(refused, Err(CallError::Server(_))), "{refused:?}");
    // It closes the connection.
    server.join().unwrap();
    assert!(connection.is_stale());
    let asked = connection.ask(ping, deadline);
    assert!(matches!(asked, Err(CallError::NotSent(_))), "{asked:?}");
}

#[test]
fn a_reply_that_nobody_asked_for_is_seen() {
    let deadline = Instant::now() + Duration::from_secs(5);
    let answers = format!(":0\r\n*2\r\n:8\r\n:1\r\n:{}\r\n:5\r\n", 9 << SMALL_BITS | 3);
    let (mut connection, server) = talking(answers.into_bytes());
    connection.ask(b"*1\r\n$4\r\nPING\r\n", deadline).unwrap();
    assert_eq!(connection.answer(9, deadline), Ok(Value::Int(3)));
    assert!(connection.is_spent && connection.has_unread());
    let refused = connection.ask(b"*1\r\n$4\r\nPING\r\n", deadline);
    assert!(matches!(refused, Err(CallError::NotSent(_))), "{refused:?}");
    server.join().unwrap();
}

#[test]
fn a_reply_in_a_message_is_short_and_plain() {
    let long = Value::BulkString(vec![b'x'; 1 << 20]);
    let many = Value::Array(vec![long; 8]);
    assert!(brief(&many).len() < MOST_WORDS + 8);
    let few = [
        Value::Int(1),
        Value::Nil,
        Value::BulkString(b"a\n".to_vec()),
    ];
    assert_eq!(brief(&Value::Array(few.to_vec())), r#"[1, nothing, "a\n"]"#);
}

#[test]
fn drawn_answers_tell_the_time_or_nothing() {
    let answers: [&[u8]; 3] = [
        b":977\r\n",
        b"*2\r\n:3\r\n:1790000000000\r\n",
        b"*3\r\n:1\r\n:1790000000000\r\n:2\r\n",
    ];
    let (sent, soon) = (BootInstant::now(), Duration::from_secs(1));
    draws("time", |draw| {
        let not_after = draw.choice([0, 1_790_000_001_000, i64::MAX]).unwrap();
        let Some(now) = time_in(&altered(draw, &answers), not_after) else {
            return;
        };
        assert!(now > 0);
        let ahead = Offset::told(now.saturating_mul(1000), sent, BootInstant::now());
        // However far the clock is said to be, there is a time to say.
        let _ = ahead.expiry(sent + soon, LATEST);
    });
}
