//! How a session begins, or does not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

const LATE: &str = "the TLS handshake was not answered in time; is it the server's TLS port?";

/// The fault of a session with whoever accepts there, on one connection after the other.
fn fault_at(
    peer: &Peer,
    deadline: Instant,
    accept: impl FnOnce(&TcpListener) + Send + 'static,
) -> CallError {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = socket_to(&listener);
    let server = thread::spawn(move || accept(&listener));
    let fault = Session::open(peer, &socket, deadline).err().unwrap();
    drop(socket);
    server.join().unwrap();
    fault
}

/// The next connection that comes, on which nothing is said.
fn hold(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut held = None;
    until(|| {
        held = listener.accept().ok();
        held.is_some()
    });
    let (stream, _) = held.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

/// Answers a PING in plain text after this time.
fn pong(listener: &TcpListener, after: Duration) {
    let mut stream = hold(listener);
    let mut asked = [0; 6];
    stream.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"PING\r\n");
    thread::sleep(after);
    let _ = stream.write_all(b"+PONG\r\n");
}

/// Waits until the other end is gone.
fn until_gone(mut stream: TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn a_handshake_that_went_well_is_remembered() {
    let (socket, end) = server(serving(&certificates().server(), false));
    let peer = peer();
    Session::open(&peer, &socket, soon()).unwrap();
    assert!(peer.is_proven.load(Ordering::Relaxed));
    end.join().unwrap().unwrap();
    let other = peer.at("127.0.0.1");
    assert!(!other.is_proven.load(Ordering::Relaxed) && *other.host == *"127.0.0.1");
}

#[test]
fn a_server_of_another_authority_is_not_trusted_and_hears_so() {
    let other = Certificates::new();
    let (socket, end) = server(serving(&other.server(), false));
    let peer = peer();
    let fault = Session::open(&peer, &socket, soon()).err().unwrap();
    assert!(matches!(fault, CallError::Untrusted(_)), "{fault:?}");
    let words = "its certificate comes from an authority that is not trusted here";
    assert!(fault.reason().starts_with(words), "{fault:?}");
    assert!(!peer.is_proven.load(Ordering::Relaxed));
    let heard = end.join().unwrap().err().unwrap().to_string();
    assert!(heard.contains("received fatal alert"), "{heard}");
}

#[test]
fn a_server_of_another_host_is_not_trusted() {
    let (socket, _end) = server(serving(&certificates().elsewhere(), false));
    let fault = Session::open(&peer(), &socket, soon()).err().unwrap();
    let words = "its certificate is for another host";
    assert!(fault.reason().starts_with(words), "{fault:?}");
}

#[test]
fn a_client_without_the_certificate_that_is_asked_for_is_told_afterwards() {
    let asking = || server(serving(&certificates().server(), true));
    let (socket, end) = asking();
    let mut session = Session::open(&peer(), &socket, soon()).unwrap();
    assert!(end.join().unwrap().is_err());
    until(|| socket.has_arrived());
    let words = "it asks for a certificate of ours; give one with Builder::client_certificate";
    let untrusted = CallError::Untrusted(words.into());
    assert_eq!(session.refusal(&socket), Some(untrusted));
    let mut with_one = trusting();
    let pair = certificates().client();
    with_one.set_identity(pair.certificate_pem().as_bytes(), pair.key_pem().as_bytes());
    let (socket, end) = asking();
    Session::open(&with_one.toward("localhost").unwrap(), &socket, soon()).unwrap();
    assert!(end.join().unwrap().is_ok());
}

#[test]
fn a_server_that_answers_in_plain_text_speaks_no_tls() {
    let fault = fault_at(&peer(), soon(), |listener| {
        let mut stream = hold(listener);
        stream.write_all(b"-ERR unknown command\r\n").unwrap();
        until_gone(stream);
    });
    assert!(matches!(fault, CallError::Untrusted(_)));
    assert_eq!(fault.reason(), NO_TLS);
}

#[test]
fn a_server_that_waits_for_the_end_of_the_line_is_asked_in_plain_text() {
    for after in [0, 150] {
        let fault = fault_at(&peer(), soon(), move |listener| {
            let first = hold(listener);
            pong(listener, ms(after));
            until_gone(first);
        });
        assert!(matches!(fault, CallError::Untrusted(_)), "{fault:?}");
        assert_eq!(fault.reason(), NO_TLS);
    }
}

#[test]
fn a_server_is_asked_in_plain_text_however_little_time_there_is() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = socket_to(&listener);
    // Lines of plain text, on any number of connections.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut word = [0; 6];
                if stream.read_exact(&mut word).is_ok() && &word == b"PING\r\n" {
                    drop(stream.write_all(b"+PONG\r\n"));
                }
                until_gone(stream);
            });
        }
    });
    // Less than the silence that is waited for elsewhere; a busy machine may need more than one look.
    until(|| {
        let fault = Session::open(&peer(), &socket, Instant::now() + SILENCE * 9 / 10);
        fault.err().unwrap().reason() == NO_TLS
    });
}

#[test]
fn a_server_that_has_spoken_tls_before_is_not_asked_in_plain_text() {
    let peer = peer();
    peer.is_proven.store(true, Ordering::Relaxed);
    let fault = fault_at(&peer, Instant::now() + ms(400), |listener| {
        until_gone(hold(listener));
        assert!(listener.accept().is_err());
    });
    assert_eq!(fault, CallError::NotSent(LATE.into()));
}

#[test]
fn a_server_that_says_nothing_at_all_is_late() {
    let by = Instant::now() + ms(300);
    let fault = fault_at(&peer(), by, |listener| {
        until_gone(hold(listener));
    });
    assert_eq!(fault, CallError::NotSent(LATE.into()));
    let fault = fault_at(&peer(), Instant::now(), |listener| {
        until_gone(hold(listener))
    });
    assert_eq!(fault, CallError::NotSent(LATE.into()));
}

#[test]
fn a_slow_server_is_given_the_rest_of_the_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = socket_to(&listener);
    let config = serving(&certificates().server(), false);
    let server = thread::spawn(move || {
        let mut stream = hold(&listener);
        thread::sleep(ms(300));
        let mut connection = ServerConnection::new(config).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).unwrap();
        }
    });
    assert!(Session::open(&peer(), &socket, Instant::now() + ms(1100)).is_ok());
    server.join().unwrap();
}

#[test]
fn a_server_that_hangs_up_is_no_server_without_tls() {
    let failed = "the TLS handshake failed: ";
    let fault = fault_at(&peer(), soon(), |listener| {
        let mut stream = hold(listener);
        let _ = stream.read(&mut [0; 4096]);
    });
    assert!(fault.reason().starts_with(failed), "{fault:?}");
    // What it has not read makes it a reset.
    let fault = fault_at(&peer(), soon(), |listener| {
        let stream = hold(listener);
        stream.peek(&mut [0; 1]).unwrap();
        drop(stream);
        thread::sleep(ms(20));
        assert!(listener.accept().is_err(), "it is not asked in plain text");
    });
    assert!(matches!(fault, CallError::NotSent(_)));
    assert!(fault.reason().starts_with(failed), "{fault:?}");
    assert!(
        fault.reason().contains("reset"),
        "that is why, not the end of what comes: {fault:?}"
    );
}

#[test]
fn a_server_that_hangs_up_before_the_greeting_is_not_greeted_again_and_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = socket_to(&listener);
    let end = hold(&listener);
    socket2::SockRef::from(&end)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(end);
    until(|| socket.has_arrived());
    let by = Instant::now() + ms(1000);
    let fault = Session::open(&peer(), &socket, by).err().unwrap();
    assert!(
        fault.reason().starts_with("the TLS handshake failed: "),
        "{fault:?}"
    );
}
