//! Sockets of both kinds.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;

/// An address that refuses: nobody listens there without being root.
fn refusing() -> SocketAddr {
    "127.0.0.1:1".parse().unwrap()
}

/// An address that does not answer, as long as what is returned with it lives.
pub(in super::super) fn silent() -> (SocketAddr, Vec<socket2::Socket>) {
    let listener = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut held = vec![listener];
    // Once its backlog is full the kernel drops who comes next.
    for _ in 0..4 {
        let waiting = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        waiting.set_nonblocking(true).unwrap();
        let _ = waiting.connect(&address.into());
        held.push(waiting);
    }
    (address, held)
}

#[test]
fn a_dead_address_leaves_time_for_those_behind_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let alive = listener.local_addr().unwrap();
    let (silent, _held) = silent();
    for dead in [vec![refusing()], vec![silent], vec![silent, refusing()]] {
        let addresses = [dead.clone(), vec![alive]].concat();
        let start = Instant::now();
        let stream = connect_to_one_of(&addresses, start + Duration::from_secs(3)).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), alive, "behind {dead:?}");
        if dead.contains(&silent) {
            assert!(start.elapsed() >= Duration::from_secs(1), "it is silent");
        }
    }
    let start = Instant::now();
    let dead = [silent, silent];
    connect_to_one_of(&dead, start + Duration::from_millis(400)).unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(400));
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    connect_to_one_of(&[], start + Duration::from_secs(1)).unwrap_err();
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

/// A socket of each kind, and its other end.
fn pairs() -> [(Socket, Socket); 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = ConnectionAddr::Tcp("localhost".to_owned(), port);
    let tcp = Socket::connect(&address, soon()).unwrap();
    let (end, _) = listener.accept().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let unix = Socket::connect(&ConnectionAddr::Unix(path), soon()).unwrap();
    let (unix_end, _) = listener.accept().unwrap();
    [(tcp, Socket::Tcp(end)), (unix, Socket::Unix(unix_end))]
}

fn until(is_so: impl Fn() -> bool) {
    let patience = soon();
    while !is_so() {
        assert!(Instant::now() < patience, "it takes too long");
    }
}

#[test]
fn bytes_go_both_ways_and_are_seen_before_they_are_read() {
    for (socket, end) in pairs() {
        assert!(!socket.has_arrived());
        let none = socket.receive_now(&mut [0; 4]).unwrap_err();
        assert!(is_timeout(&none));
        assert_eq!(end.send_some(b"abc").unwrap(), 3);
        until(|| socket.has_arrived());
        // To look takes nothing out.
        let mut buffer = [0; 8];
        assert_eq!(socket.receive_now(&mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], b"abc");
        assert!(!socket.has_arrived());
        assert_eq!((&socket).write(b"defg").unwrap(), 4);
        (&socket).flush().unwrap();
        assert_eq!((&end).read(&mut buffer).unwrap(), 4);
        assert_eq!(&buffer[..4], b"defg");
    }
}

#[test]
fn a_second_handle_is_of_the_same_socket_and_its_end_is_seen_on_both() {
    for (socket, end) in pairs() {
        let other = socket.try_clone().unwrap();
        assert_ne!(other.source().as_raw_fd(), socket.source().as_raw_fd());
        assert_eq!((&other).write(b"x").unwrap(), 1);
        assert_eq!((&end).read(&mut [0; 4]).unwrap(), 1);
        other.shutdown().unwrap();
        assert!(socket.has_arrived());
        assert_eq!(socket.receive_now(&mut [0; 4]).unwrap(), 0);
        assert_eq!((&end).read(&mut [0; 4]).unwrap(), 0);
    }
}

#[test]
fn reads_and_writes_have_times_of_their_own() {
    for (socket, _end) in pairs() {
        let span = Duration::from_millis(30);
        socket.set_read_timeout(span).unwrap();
        socket.set_write_timeout(2 * span).unwrap();
        let (read, write) = match &socket {
            Socket::Tcp(stream) => (stream.read_timeout(), stream.write_timeout()),
            Socket::Unix(stream) => (stream.read_timeout(), stream.write_timeout()),
            #[cfg(feature = "in-memory")]
            Socket::InMemory(stream, _) => (stream.read_timeout(), stream.write_timeout()),
        };
        let is_about = |set: Option<Duration>, wanted: Duration| {
            // The kernel counts in ticks.
            set.is_some_and(|set| set >= wanted && set < wanted + Duration::from_millis(20))
        };
        assert!(is_about(read.unwrap(), span) && is_about(write.unwrap(), 2 * span));
        let begun = Instant::now();
        let late = (&socket).read(&mut [0; 4]).unwrap_err();
        assert!(is_timeout(&late) && begun.elapsed() >= span);
    }
}

#[test]
fn what_the_buffers_do_not_take_is_not_waited_for() {
    for (socket, _end) in pairs() {
        let much = vec![0; 1 << 20];
        let sender = thread::spawn(move || {
            let patience = soon();
            while Instant::now() < patience {
                if let Err(error) = socket.send_some(&much) {
                    return is_timeout(&error);
                }
            }
            false
        });
        assert!(sender.join().unwrap());
    }
}

#[test]
fn only_what_may_go_well_at_once_passes() {
    for (kind, is_late, may_pass) in [
        (io::ErrorKind::WouldBlock, true, true),
        (io::ErrorKind::TimedOut, true, true),
        (io::ErrorKind::Interrupted, false, true),
        (io::ErrorKind::BrokenPipe, false, false),
    ] {
        let error = io::Error::from(kind);
        assert_eq!((is_timeout(&error), passes(&error)), (is_late, may_pass));
    }
}

#[test]
fn a_connection_notices_by_itself_that_its_other_end_is_gone() {
    let [(Socket::Tcp(stream), _end), _] = pairs() else {
        unreachable!("the first one is of TCP");
    };
    assert!(stream.nodelay().unwrap());
    assert!(SockRef::from(&stream).keepalive().unwrap());
}

#[test]
fn the_addresses_of_a_name_share_its_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let alive = listener.local_addr().unwrap();
    let (silent, _held) = silent();
    let by = Instant::now() + Duration::from_millis(400);
    connect_to_one_of(&[silent, alive], by).unwrap();
    let by = Instant::now() + Duration::from_millis(90);
    connect_to_one_of(&[silent, silent], by).unwrap_err();
    assert!(Instant::now() >= by);
}
