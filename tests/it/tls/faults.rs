//! Faults of TLS connections.

use std::io::{Read, Write};

use super::*;

#[test]
fn a_port_without_tls_gets_no_plain_text() {
    // Redis waits for the end of a line, or finds one in the ClientHello and replies in plain text.
    for args in [&[][..], &["--requirepass", "canary-7f3a"]] {
        let server = RedisServer::with(args);
        let url = server
            .url()
            .replace("redis://", "rediss://app:canary-7f3a@");
        let lock = hurried().open(&url).unwrap().lock("orders");
        for _ in 0..3 {
            let error = ends_within(TIMEOUT, || lock.try_lock().unwrap_err());
            let is_told = matches!(error, Error::Untrusted { .. } | Error::Unreachable { .. });
            let text = error.to_string();
            let node = format!(":{}", server.port());
            let words = ["TLS port", "orders", &node];
            assert!(
                is_told && words.iter().all(|it| text.contains(it)),
                "{text}"
            );
        }
        ends_within(ms(800), || lock.lock().unwrap_err());
        assert!(!server.log().contains("canary"));
        if args.is_empty() {
            is_empty(&server);
        }
    }
    let plain = FakePeer::new(|mut stream| {
        let _ = stream.read(&mut [0; 512]);
        let _ = stream.write_all(b"-ERR unknown command\r\n");
        let _ = stream.read(&mut [0; 512]);
    });
    is_refused(&plain.lock(hurried()), plain.addr.port(), &["TLS port"]);

    // In the reverse direction.
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port);
    let lock = quick().open(&url).unwrap().lock("orders");
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unreachable));
}

/// Accepts connections and handles each with `talk`, until it is dropped.
struct FakePeer {
    addr: SocketAddr,
}

impl FakePeer {
    fn new(talk: impl Fn(TcpStream) + Send + Sync + 'static) -> FakePeer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let talk = std::sync::Arc::new(talk);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let talk = std::sync::Arc::clone(&talk);
                thread::spawn(move || talk(stream));
            }
        });
        FakePeer { addr }
    }

    fn lock(&self, builder: Builder) -> Lock {
        let url = format!("rediss://{}", self.addr);
        builder.open(&url).unwrap().lock("orders")
    }
}

#[test]
fn a_handshake_that_hangs_ends_in_time() {
    let silent =
        FakePeer::new(|mut stream| while stream.read(&mut [0; 512]).is_ok_and(|n| n > 0) {});
    // The start of a long record, and then one byte of it from time to time.
    let dripping = FakePeer::new(|mut stream| {
        let mut byte = &b"\x16\x03\x03\x40\x00"[..];
        while stream.write_all(byte).is_ok() {
            byte = &[0];
            thread::sleep(ms(20));
        }
    });
    // Complete records without a handshake.
    let empty = FakePeer::new(|mut stream| {
        while stream.write_all(b"\x14\x03\x03\x00\x01\x01").is_ok() {
            thread::sleep(ms(20));
        }
    });
    let gone = FakePeer::new(drop);
    for peer in [&silent, &dripping] {
        let lock = peer.lock(hurried());
        let start = Instant::now();
        let error = ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unreachable));
        // A call ends slightly before its deadline.
        assert!(start.elapsed() >= TIMEOUT * 3 / 4, "{error}");
        assert!(error.to_string().contains("TLS"), "{error}");
        ends_within(ms(300), || {
            fails(lock.try_lock_for(ms(300)), Class::Unreachable)
        });
        ends_within(ms(800), || fails(lock.lock(), Class::Unreachable));
    }
    for peer in [&empty, &gone] {
        let lock = peer.lock(hurried());
        ends_within(TIMEOUT, || lock.try_lock().unwrap_err());
        ends_within(ms(800), || lock.lock().unwrap_err());
    }
}

#[test]
fn a_slow_reply_ends_at_the_command_timeout() {
    let server = RedisServer::start();
    let terminator = Terminator::before(server.addr(), certificates());
    let lock = hurried().open(&terminator.url()).unwrap().lock("orders");
    lock.lock().unwrap();
    terminator.drip(true);
    let start = Instant::now();
    let error = ends_within(TIMEOUT, || lock.is_locked().unwrap_err());
    assert!(start.elapsed() >= TIMEOUT * 3 / 4, "{error}");
    terminator.drip(false);
    assert!(lock.is_locked().unwrap());
    lock.unlock().unwrap();
    leaves_nothing(&server);
}

#[test]
fn a_connection_with_updated_session_keys_is_kept() {
    let server = RedisServer::start();
    let terminator = Terminator::before(server.addr(), certificates());
    let lock = trusting().open(&terminator.url()).unwrap().lock("orders");
    lock.lock().unwrap();
    let mut before = 0;
    for _ in 0..2 {
        // Long enough for the idle connection to be checked before its next use.
        thread::sleep(ms(1200));
        before = terminator.accepted();
        terminator.change_keys();
        thread::sleep(ms(100));
        assert!(lock.is_locked().unwrap());
    }
    assert_eq!(terminator.accepted(), before, "it is the same connection");
    lock.unlock().unwrap();

    // In this case it is not.
    thread::sleep(ms(1200));
    terminator.say(b"+hello\r\n");
    thread::sleep(ms(100));
    assert!(!lock.is_locked().unwrap());
    assert_eq!(terminator.accepted(), before + 1);
    thread::sleep(ms(1200));
    terminator.say_goodbye();
    thread::sleep(ms(100));
    assert!(!lock.is_locked().unwrap());
    assert_eq!(terminator.accepted(), before + 2);
}

#[test]
fn a_connection_closed_by_the_server_is_replaced() {
    let server = Server::start();
    let client = trusting().watchdog_timeout(LEASE).open(&server.url());
    let client = client.unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    // Long enough for the idle connection to be checked before its next use.
    thread::sleep(ms(1200));
    let normal = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    server.plain.cmd(&normal);
    thread::sleep(ms(100));
    assert!(lock.is_locked().unwrap());
    lock.unlock().unwrap();

    let other = plain(&server.plain).lock("orders");
    other.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(lock.try_lock_for(Duration::from_secs(30)).unwrap());
            lock.unlock().unwrap();
        });
        somebody_waits(&server.plain, "orders");
        server.plain.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        somebody_waits(&server.plain, "orders");
        other.unlock().unwrap();
        waiting.join().unwrap();
    });
    let hurried = server.lock(hurried());
    assert!(!hurried.is_locked().unwrap());
    server.plain.freeze();
    ends_within(TIMEOUT, || hurried.try_lock().unwrap_err());
    server.plain.kill();
    lock.try_lock().unwrap_err();
    server.plain.restart();
    assert!(lock.try_lock().unwrap());
    lock.unlock().unwrap();
    drop((lock, client, hurried));
    eventually(ms(5000), "all connections are closed", || {
        connections(&server.plain)
            .iter()
            .all(|line| line.contains(&format!(":{} ", server.plain.port())))
    });
}
