//! What is sent where the other end reads slowly, or not at all.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::TcpStream;

use super::*;

/// More than the buffers of both ends take.
const MUCH: usize = 32 << 20;

/// A connection to a server that greets and then reads nothing, with its end.
fn unread() -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || greeted(&listener));
    let connection = Connection::connect(&address_of(&url), soon()).unwrap();
    (connection, server.join().unwrap())
}

#[test]
fn a_request_that_is_not_taken_is_not_sent_in_time() {
    let (mut connection, _end) = unread();
    let by = Instant::now() + Duration::from_millis(60);
    let fault = connection.send(&vec![b'x'; MUCH], by);
    assert_eq!(fault, Err(CallError::NotSent("sending timed out".into())));
    assert!(Instant::now() >= by);
    // In the end nothing at all is taken.
    for _ in 0..5 {
        let by = Instant::now() + Duration::from_millis(20);
        let fault = connection.send(&vec![b'x'; MUCH], by);
        assert_eq!(fault, Err(CallError::NotSent("sending timed out".into())));
        assert!(Instant::now() >= by);
    }
    let (mut connection, _end) = unread();
    let fault = connection.send(b"x", Instant::now());
    assert_eq!(fault, Err(CallError::NotSent("sending timed out".into())));
}

#[test]
fn a_request_to_an_end_that_is_gone_fails_at_once() {
    let (mut connection, end) = unread();
    drop(end);
    let mut outcome = Ok(());
    until(|| {
        outcome = connection.send(PING, soon());
        outcome.is_err()
    });
    let fault = outcome.err().unwrap();
    assert!(fault.reason().starts_with("sending failed: "), "{fault:?}");
}

#[test]
fn a_writer_keeps_what_is_not_taken_and_sends_it_in_order() {
    let (connection, mut end) = unread();
    let mut writer = connection.writer().unwrap();
    assert!(!writer.has_rest());
    let sent: Vec<u8> = (0..MUCH).map(|at| (at % 251) as u8).collect();
    for part in sent.chunks(MUCH / 2 + 1) {
        writer.send(part).unwrap();
    }
    assert!(writer.has_rest());
    let mut read = vec![0; MUCH];
    thread::scope(|scope| {
        let reader = scope.spawn(|| end.read_exact(&mut read));
        until(|| {
            writer.flush().unwrap();
            !writer.has_rest()
        });
        reader.join().unwrap().unwrap();
    });
    assert!(read == sent, "it came as it was sent");
    writer.send(b"x").unwrap();
    assert!(!writer.has_rest());
    end.read_exact(&mut read[..1]).unwrap();
    assert_eq!(read[0], b'x');
}

#[test]
fn a_writer_that_is_shut_down_ends_the_connection() {
    let (mut connection, _end) = unread();
    let mut writer = connection.writer().unwrap();
    writer.shut_down();
    let ended = connection.receive(soon());
    assert!(
        matches!(
            ended,
            Err(CallError::NoReply {
                timed_out: false,
                ..
            })
        ),
        "{ended:?}"
    );
    writer.send(b"x").unwrap_err();
}

#[test]
fn a_connection_that_is_reset_ends_its_reply_at_once() {
    let (mut connection, end) = unread();
    connection.send(PING, soon()).unwrap();
    // What nobody has read makes it a reset.
    drop(end);
    let lost = connection.receive(soon());
    let Err(CallError::NoReply {
        reason,
        timed_out: false,
    }) = lost
    else {
        panic!("{lost:?}");
    };
    assert_eq!(&*reason, "the connection was closed before the reply");
}
