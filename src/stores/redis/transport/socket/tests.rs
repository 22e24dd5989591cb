#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::TcpListener;

use super::*;

/// An address that refuses connections, because only root can listen on its port.
fn refusing() -> SocketAddr {
    "127.0.0.1:1".parse().unwrap()
}

/// An address that accepts no connection while the returned sockets live.
pub(in super::super) fn silent() -> (SocketAddr, Vec<socket2::Socket>) {
    let listener = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut held = vec![listener];
    // When the backlog is full, the kernel drops further connections.
    for _ in 0..4 {
        let waiting = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        waiting.set_nonblocking(true).unwrap();
        let _ = waiting.connect(&address.into());
        held.push(waiting);
    }
    (address, held)
}

#[test]
fn the_shortest_timeout_ends_a_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    socket.set_read_timeout(Duration::from_nanos(1)).unwrap();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send((&socket).read(&mut [0; 1]).is_err()));
    assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(true));
}

#[test]
fn a_dead_address_leaves_time_for_the_next() {
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

#[test]
fn only_time_outs_and_interrupts_are_repeated() {
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
fn the_addresses_of_a_name_share_the_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let alive = listener.local_addr().unwrap();
    let (silent, _held) = silent();
    let by = Instant::now() + Duration::from_millis(4000);
    connect_to_one_of(&[silent, alive], by).unwrap();
    let by = Instant::now() + Duration::from_millis(90);
    connect_to_one_of(&[silent, silent], by).unwrap_err();
    assert!(Instant::now() >= by);
}
