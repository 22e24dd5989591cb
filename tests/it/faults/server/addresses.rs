//! Invalid addresses, and the valid forms.

use super::*;

#[test]
fn an_invalid_url_is_refused_without_quoting_it() {
    let mut refused = 0;
    for url in bad_urls() {
        match Client::open(&url) {
            Err(error) => {
                assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
                no_secret(&error);
                no_secret(&error.to_string());
                refused += 1;
            }
            // Unusual, but valid.
            Ok(client) => {
                no_secret(&client);
                no_secret(&client.lock("orders"));
            }
        }
    }
    assert!(refused >= 20, "{refused}");
}

#[test]
fn no_part_of_a_url_is_ignored() {
    for (url, word) in [
        ("redis://host?db=1", "redis://host/1"),
        ("redis://host/1?timeout=5", "redis://host/1"),
        ("redis://host?protocol=resp3", "redis://host/1"),
        ("redis://canary-7f3a@host", "without a password"),
        ("redis://app:@host", "without a password"),
        ("redis://host/1#x", "#"),
        ("redis://host/-1", "number"),
        ("redis://host/1/2", "number"),
        ("redis://host/db1", "redis://"),
        ("redis://host:0", "port 0"),
        (
            "redis+unix:///run/redis.sock?database=1",
            "db, user and pass",
        ),
        ("redis+unix:///run/redis.sock?db=1&db=2", "each once"),
        ("redis+unix:///run/redis.sock?db=-1", "number"),
        (
            "redis+unix:///run/redis.sock?user=app",
            "without a password",
        ),
        ("unix:///run/redis.sock#1", "#"),
        (
            "unix://app:canary-7f3a@localhost/run/redis.sock",
            "follows the path",
        ),
        ("valkey://app@host", "without a password"),
    ] {
        let error = fails(Client::open(url), Class::Config);
        assert!(error.to_string().contains(word), "{url}: {error}");
        let replicas = [url, "redis://other"];
        fails(Client::builder().master_replicas(replicas), Class::Config);
    }
    for url in [
        "redis://host",
        "redis://host/",
        "redis://host:6380/3/",
        "redis://app:secret@host/1",
        "redis://:secret@host",
        "redis+unix:///run/redis.sock?db=1&user=app&pass=secret",
        "unix:///run/redis.sock?pass=secret",
        "valkey://[::1]:6379/0",
    ] {
        Client::open(url).unwrap();
    }
}

#[test]
fn a_server_that_is_not_redis_is_reported_at_once() {
    let greetings: [(&[u8], &str); 4] = [
        (
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            "not a reply of a Redis server",
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not a reply of a Redis server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "rediss://"),
        (b"J\0\0\0\n8.0.36\x1b[1m", "not a reply of a Redis server"),
    ];
    for (greeting, word) in greetings {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let asked = std::sync::Arc::new(AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&asked);
        let answering = thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if count.fetch_add(1, Ordering::Relaxed) == 99 {
                    return;
                }
                let _ = std::io::Read::read(&mut stream, &mut [0; 512]);
                let _ = std::io::Write::write_all(&mut stream, greeting);
            }
        });
        let client = quick().open(&url).unwrap();
        let lock = client.lock("orders");
        let error = fails(lock.lock(), Class::Unexpected);
        assert!(error.to_string().contains(word), "{error}");
        assert!(!error.to_string().contains(char::is_control), "{error}");
        assert!(
            asked.load(Ordering::Relaxed) <= 3,
            "it is not asked again and again"
        );
        drop(client);
        asked.store(99, Ordering::Relaxed);
        let _ = std::net::TcpStream::connect(url.trim_start_matches("redis://"));
        answering.join().unwrap();
    }
}

#[test]
fn an_encrypted_connection_is_never_replaced_by_a_plain_one() {
    let server = RedisServer::start();
    for scheme in ["rediss", "valkeys", "Rediss"] {
        let url = server.url().replace("redis://", &format!("{scheme}://"));
        for url in [url.clone(), format!("{url}/#insecure")] {
            let result = quick().open(&url);
            if cfg!(feature = "tls") && !url.contains('#') {
                if let Ok(client) = result {
                    client.lock("orders").try_lock().unwrap_err();
                }
            } else {
                let error = fails(result, Class::Config);
                assert!(
                    cfg!(feature = "tls") || error.to_string().contains("feature `tls`"),
                    "{error}"
                );
            }
        }
    }
    assert!(connections(&server).is_empty());
    is_empty(&server);
}

#[test]
fn a_refusing_port_is_reported_as_unreachable() {
    let port = crate::support::free_port();
    let client = quick().open(&format!("redis://127.0.0.1:{port}")).unwrap();
    let lock = client.lock("orders");
    let error = ends_within(ms(0), || fails(lock.try_lock(), Class::Unreachable));
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    let start = Instant::now();
    ends_within(ms(300), || {
        fails(lock.try_lock_for(ms(300)), Class::Unreachable)
    });
    assert!(start.elapsed() >= ms(300));
    let start = Instant::now();
    ends_within(ms(800), || fails(lock.lock(), Class::Unreachable));
    assert!(start.elapsed() >= ms(800), "the outage time-out");
    fails(lock.is_locked(), Class::Unreachable);
    fails(lock.unlock(), Class::NotHeld);
    fails(client.check(), Class::Unreachable);
    assert!(!lock.is_valid());
}

#[test]
fn a_unix_socket_works() {
    let server = RedisServer::start();
    let client = quick().open(&server.unix_url()).unwrap();
    let lock = client.lock("orders");
    all_works(&lock, &|| {});
    assert!(!connections(&server).is_empty());
    lock.lock().unwrap();
    let tcp = self::client(&server).lock("orders");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            lock.try_lock_for(Duration::from_secs(20)).unwrap();
            lock.unlock().unwrap();
        });
        somebody_waits(&server, "orders");
        assert!(!tcp.try_lock().unwrap());
        lock.unlock().unwrap();
        waiting.join().unwrap();
    });
    server.freeze();
    ends_within(TIMEOUT, || lock.try_lock().unwrap_err());
    server.thaw();
    leaves_nothing(&server);
    server.kill();
    let error = ends_within(TIMEOUT, || lock.is_locked().unwrap_err());
    assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
    let path = server.unix_path();
    let _ = fs::remove_file(&path);
    let error = fails(
        quick()
            .open(&server.unix_url())
            .unwrap()
            .lock("x")
            .try_lock(),
        Class::Unreachable,
    );
    assert!(error.to_string().contains("redis.sock"), "{error}");
}

#[test]
fn a_user_and_a_password_with_odd_characters_work() {
    let server = RedisServer::start();
    server.cmd(&[
        "ACL",
        "SETUSER",
        "ap:p",
        "on",
        ">p@ss/w#rd ü",
        "~*",
        "&*",
        "+@all",
    ]);
    let url = server
        .url()
        .replace("://", "://ap%3Ap:p%40ss%2Fw%23rd%20%C3%BC@");
    let client = quick().open(&url).unwrap();
    all_works(&client.lock("orders"), &|| {});
    assert!(
        connections(&server)
            .iter()
            .all(|one| one.contains(" user=ap:p ")),
    );
}

#[test]
fn two_databases_are_two_locks() {
    let server = RedisServer::start();
    let one = quick().open(&(server.url() + "/1")).unwrap();
    let two = quick().open(&(server.url() + "/2")).unwrap();
    let (one, two) = (one.lock("orders"), two.lock("orders"));
    one.lock().unwrap();
    assert!(two.try_lock().unwrap());
    let zero = client(&server).lock("orders");
    assert!(!zero.is_locked().unwrap());
    // A message of the other database only causes a retry.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(one.try_lock_for(Duration::from_secs(20)).unwrap());
            let now = Instant::now();
            one.unlock().unwrap();
            now
        });
        somebody_waits(&server, "orders");
        two.unlock().unwrap();
        thread::sleep(ms(200));
        let freed = Instant::now();
        one.unlock().unwrap();
        assert!(waiting.join().unwrap() >= freed);
    });
    let none = quick().open(&(server.url() + "/99")).unwrap();
    let error = ends_within(ms(0), || none.lock("orders").lock().unwrap_err());
    assert!(!error.is_retryable(), "{error}");
    assert!(error.to_string().contains("DB index"), "{error}");
}
