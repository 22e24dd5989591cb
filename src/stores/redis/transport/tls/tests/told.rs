#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

#[test]
fn bytes_arrive_in_both_directions() {
    let (mut session, socket, mut end) = session();
    let sealed = session.seal(b"hello").unwrap();
    (&socket).write_all(&sealed).unwrap();
    let other = session.writing_end();
    (&socket)
        .write_all(&other.seal(b" there").unwrap())
        .unwrap();
    assert_eq!(end.hears(11), b"hello there");
    end.say(b"HELLO");
    let mut buffer = [0; 8];
    assert_eq!(read(&mut session, &socket, &mut buffer).unwrap(), 5);
    assert_eq!(&buffer[..5], b"HELLO");
    assert!(!session.has_buffered() && !session.is_stale(&socket));
}

#[test]
fn long_replies_arrive_complete() {
    let (mut session, socket, mut end) = session();
    let long: Vec<u8> = (0..100_000).map(|at| (at % 251) as u8).collect();
    let said = long.clone();
    let end = thread::spawn(move || {
        end.say(&said);
        end
    });
    let (mut heard, mut buffer) = (Vec::<u8>::new(), [0; 777]);
    while heard.len() < long.len() {
        let count = read(&mut session, &socket, &mut buffer).unwrap();
        assert!(count > 0);
        heard.extend(&buffer[..count]);
    }
    assert!(heard == long);
    assert!(!session.has_buffered());
    drop(end.join().unwrap());
}

#[test]
fn buffered_bytes_need_no_socket() {
    let (mut session, socket, mut end) = session();
    assert!(!session.has_buffered());
    let both = [end.seal(b"abcd"), end.seal(b"ef")].concat();
    end.stream.write_all(&both).unwrap();
    let mut buffer = [0; 3];
    assert_eq!(read(&mut session, &socket, &mut buffer).unwrap(), 3);
    assert!(session.has_buffered());
    assert_eq!(read(&mut session, &socket, &mut buffer).unwrap(), 3);
    assert_eq!(&buffer, b"def");
    assert!(!session.has_buffered());
}

#[test]
fn a_partial_record_has_no_plain_text() {
    let (mut session, socket, mut end) = session();
    // The session tickets, which contain no application data, arrive first.
    until(|| socket.has_arrived());
    let unasked = session.read(&socket, &mut [0; 8]).unwrap_err();
    assert_eq!(unasked.kind(), io::ErrorKind::Interrupted);
    let sealed = end.seal(b"abcd");
    let (first, rest) = sealed.split_at(7);
    end.stream.write_all(first).unwrap();
    until(|| socket.has_arrived());
    let partly = session.read(&socket, &mut [0; 8]).unwrap_err();
    assert_eq!(partly.kind(), io::ErrorKind::Interrupted);
    end.stream.write_all(rest).unwrap();
    assert_eq!(session.read(&socket, &mut [0; 8]).unwrap(), 4);
    socket.set_read_timeout(ms(10)).unwrap();
    let late = session.read(&socket, &mut [0; 8]).unwrap_err();
    assert!(is_timeout(&late));
}

#[test]
fn sessions_may_end_without_close_notify() {
    for says_goodbye in [true, false] {
        let (mut session, socket, mut end) = session();
        end.say(b"x");
        if says_goodbye {
            end.goodbye();
        }
        drop(end);
        let mut buffer = [0; 8];
        assert_eq!(read(&mut session, &socket, &mut buffer).unwrap(), 1);
        assert_eq!(read(&mut session, &socket, &mut buffer).unwrap(), 0);
        assert_eq!(read(&mut session, &socket, &mut buffer).unwrap(), 0);
    }
}

#[test]
fn ended_and_unsolicited_sessions_are_stale() {
    let (session, socket, mut end) = session();
    until(|| socket.has_arrived());
    // The bytes that arrived are a session ticket.
    assert!(!session.is_stale(&socket) && !session.is_stale(&socket));
    end.say(b"x");
    until(|| socket.has_arrived());
    assert!(session.is_stale(&socket));
    for says_goodbye in [true, false] {
        let (session, socket, mut end) = super::session();
        if says_goodbye {
            end.goodbye();
        } else {
            drop(end.stream);
        }
        until(|| session.is_stale(&socket));
    }
    let (session, socket, mut end) = super::session();
    assert!(!session.is_stale(&socket));
    end.stream.write_all(b"+PONG\r\n").unwrap();
    until(|| socket.has_arrived());
    assert!(session.is_stale(&socket));
}

#[test]
fn plain_text_in_a_session_is_reported_once() {
    let (mut session, socket, mut end) = session();
    assert_eq!(session.refusal(&socket), None);
    end.stream.write_all(b"+PONG\r\n").unwrap();
    let fault = read(&mut session, &socket, &mut [0; 8]).unwrap_err();
    assert_eq!(fault.kind(), io::ErrorKind::InvalidData);
    let no_tls = Some(CallError::Untrusted(NO_TLS.into()));
    assert_eq!(session.refusal(&socket), no_tls);
    assert_eq!(session.refusal(&socket), None);
    // `refusal` notices plain text even if `read` was not called.
    let (mut session, socket, mut end) = super::session();
    end.stream.write_all(b"+PONG\r\n").unwrap();
    until(|| session.refusal(&socket) == no_tls);
}
