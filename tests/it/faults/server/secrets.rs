//! Passwords and scripts do not appear in any message.

use super::*;

#[test]
fn errors_do_not_mention_scripts() {
    let server = RedisServer::start();
    server.cmd(&["SET", "orders", "1"]);
    let lock = quick().open(&server.url()).unwrap().lock("orders");
    for error in [
        fails(lock.try_lock(), Class::WrongType),
        fails(
            lock.is_locked().and_then(|_| lock.force_unlock()),
            Class::WrongType,
        ),
    ] {
        let text = error.to_string();
        assert!(
            !text.contains("script") && !text.contains(&sha(ACQUIRE)[..8]),
            "{text}"
        );
    }
}

#[test]
fn a_socket_path_with_a_password_shows_none() {
    let server = RedisServer::start();
    user(&server, "app", &[]);
    let url = format!("{}?db=2&user=app&pass={CANARY}", server.unix_url());
    let client = quick().open(&url).unwrap();
    no_secret(&client);
    let lock = client.lock("orders");
    all_works(&lock, &|| {});
    lock.lock().unwrap();
    server.cmd(&["SELECT", "2"]);
    assert_eq!(keys(&server), ["orders"]);
    lock.unlock().unwrap();
    server.kill();
    let error = lock.is_locked().unwrap_err();
    no_secret(&error);
    no_secret(&error.to_string());
}

// Secrets

#[test]
fn a_password_is_never_shown() {
    let log = Log::listen();
    let before = log.events();
    let server = RedisServer::start();
    teach(&server);
    let proxy = Proxy::to(server.addr());
    let url =
        user(&server, "app", &[]).replace(&server.addr().to_string(), &proxy.addr().to_string());
    let hook = |loss: &redlatch::Loss| no_secret(loss);
    let builder = || quick().watchdog_timeout(SHORT).on_lost(hook);
    no_secret(&builder());
    let client = builder().open(&url).unwrap();
    let lock = client.lock("orders");
    let shows = |error: Error| {
        no_secret(&error);
        no_secret(&error.to_string());
        if let Some(source) = std::error::Error::source(&error) {
            no_secret(&source);
            no_secret(&source.to_string());
        }
    };
    no_secret(&client);
    no_secret(&lock);
    let guard = lock.guard().unwrap();
    no_secret(&guard);
    no_secret(&guard.visitor());
    no_secret(&client.check());
    let lost = guard.lost();
    let end = crate::support::End::Reset;
    for script in [ACQUIRE, INSPECT, RELEASE] {
        proxy.next(2, Some(sha(script).as_bytes()), Fault::SwallowReply(end));
    }
    let _ = lock.is_locked().map_err(shows);
    let _ = client.lock("other").try_lock().map_err(shows);
    // Handshakes that break off after the password.
    for fault in [
        Fault::SwallowReply(end),
        Fault::SwallowRequest(end),
        Fault::TruncateReply(3),
    ] {
        let fresh = builder().open(&url).unwrap();
        // The check of the server's settings has its own connection.
        let rule = proxy.next(usize::MAX, Some(b"AUTH"), fault);
        shows(fresh.lock("other").try_lock().unwrap_err());
        rule.lift();
    }
    server.cmd(&["ACL", "SETUSER", "app", "-hset"]);
    shows(client.lock("more").try_lock().unwrap_err());
    server.cmd(&["ACL", "SETUSER", "app", "resetpass"]);
    shows(builder().open(&url).unwrap().lock("x").lock().unwrap_err());
    server.cmd(&["ACL", "DELUSER", "app"]);
    next_loss(&lost, SHORT);
    shows(lock.try_lock().unwrap_err());
    shows(guard.unlock().unwrap_err());
    proxy.refuse();
    shows(lock.try_lock().unwrap_err());
    no_secret(&lock.run(|_| ()).unwrap_err());
    for url in bad_urls() {
        let _ = Client::open(&url).map_err(shows);
    }
    if cfg!(feature = "tracing") {
        assert!(log.events() > before, "nothing was heard");
    }
    assert_eq!(log.leaks(), Vec::<String>::new());
}

#[test]
fn a_password_echoed_by_the_server_is_not_shown() {
    let log = Log::listen();
    // The error text of an unknown command contains its arguments.
    let server = RedisServer::with(&["--rename-command", "AUTH", ""]);
    for user in ["app", ""] {
        let url = server.url().replace("://", &format!("://{user}:{CANARY}@"));
        let client = quick().open(&url).unwrap();
        let lock = client.lock("orders");
        fails(lock.try_lock(), Class::Permission);
        fails(lock.lock(), Class::Permission);
        fails(lock.is_locked(), Class::Permission);
        fails(client.check(), Class::Permission);
    }
    // A server of another protocol.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || echo(stream));
        }
    });
    let url = format!("redis://app:{CANARY}@{address}");
    let client = quick().open(&url).unwrap();
    let error = client.lock("orders").try_lock().unwrap_err();
    no_secret(&error);
    no_secret(&error.to_string());
    no_secret(&client.check());
    assert_eq!(log.leaks(), Vec::<String>::new());
}

/// Echoes its input.
fn echo(mut stream: std::net::TcpStream) {
    let mut back = stream.try_clone().unwrap();
    let _ = std::io::copy(&mut stream, &mut back);
}
