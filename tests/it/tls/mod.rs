//! TLS: which certificates are trusted, which are refused, and that the rules of every connection hold.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod certificate_callback;
mod changes;
mod faults;
mod names;
mod terminator;
mod trust;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error, Lock};

use crate::invariants::{
    Class, TIMEOUT, connections, ends_within, fails, is_empty, leaves_nothing, quick,
    somebody_waits,
};
use crate::support::topology_fixtures::certificates::{Certificates, Pair};
use crate::support::{RedisServer, eventually, ms};
use terminator::Terminator;

/// A lease long enough for renewals on a busy machine.
const LEASE: Duration = ms(3000);

/// One authority for all tests, because creating one starts some processes.
fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES.get_or_init(|| {
        let certificates = Certificates::new();
        // They are files in one directory, so they are made before threads race for them.
        certificates.server();
        certificates.elsewhere();
        certificates.client();
        certificates
    })
}

/// The certificate of that authority.
pub(crate) fn authority() -> String {
    certificates().authority_pem()
}

/// Settings that trust these tests' authority, with timeouts for a busy machine.
fn trusting() -> Builder {
    quick()
        .connect_timeout(ms(5000))
        .command_timeout(ms(5000))
        .ca_certificate(authority())
}

/// A client of the same server without TLS.
fn plain(server: &RedisServer) -> Client {
    let builder = quick().connect_timeout(ms(5000)).command_timeout(ms(5000));
    builder.open(&server.url()).unwrap()
}

/// Settings that trust these tests' authority, with short timeouts.
fn hurried() -> Builder {
    quick().ca_certificate(authority())
}

/// A server with TLS, and with plain text for the test.
pub(crate) struct Server {
    pub(crate) plain: RedisServer,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::with(&certificates().server(), false, &[])
    }

    fn with(pair: &Pair, asks_clients: bool, more: &[&str]) -> Server {
        let (args, port) = certificates().server_args(pair, asks_clients);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        Server {
            plain: RedisServer::options().args(&args).args(more).start(),
            port,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }

    fn lock(&self, builder: Builder) -> Lock {
        builder.open(&self.url()).unwrap().lock("orders")
    }
}

/// Each kind of request once, including renewals and an unlock message.
fn all_works(plain: &RedisServer, client: &Client) {
    let lock = client.lock("orders");
    assert!(!lock.is_locked().unwrap());
    let guard = lock.guard().unwrap();
    assert!(lock.try_lock().unwrap());
    assert_eq!(lock.hold_count().unwrap(), 2);
    lock.unlock().unwrap();
    thread::sleep(LEASE + ms(300));
    assert!(guard.is_valid(), "it is renewed");
    let other = self::plain(plain).lock("orders");
    assert!(!other.try_lock().unwrap());
    guard.unlock().unwrap();
    other.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
            lock.unlock().unwrap();
        });
        somebody_waits(plain, "orders");
        other.unlock().unwrap();
        waiting.join().unwrap();
    });
    is_empty(plain);
}

/// An untrusted connection is reported at once with the node and a hint, and ends the wait.
#[track_caller]
fn is_refused(lock: &Lock, port: u16, words: &[&str]) {
    let error = ends_within(ms(0), || fails(lock.try_lock(), Class::Untrusted));
    assert!(matches!(error, Error::Untrusted { .. }));
    let text = error.to_string();
    for word in words.iter().chain([&*format!(":{port}"), "orders"].iter()) {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
    ends_within(ms(0), || fails(lock.lock(), Class::Untrusted));
    ends_within(ms(0), || {
        fails(lock.try_lock_for(Duration::from_secs(60)), Class::Untrusted)
    });
    fails(lock.is_locked(), Class::Untrusted);
    fails(lock.unlock(), Class::NotHeld);
}

#[test]
fn locks_are_acquired_renewed_waited_for_and_released() {
    let server = Server::start();
    let client = trusting().watchdog_timeout(LEASE).open(&server.url());
    all_works(&server.plain, &client.unwrap());
}

#[test]
fn a_name_an_ipv6_address_and_a_database_number_work() {
    let pair = certificates().server();
    let has_ipv6 = TcpListener::bind(("::1", 0)).is_ok();
    let server = if has_ipv6 {
        Server::with(&pair, false, &["--bind", "127.0.0.1", "::1"])
    } else {
        Server::with(&pair, false, &[])
    };
    let mut hosts = vec!["localhost"];
    if has_ipv6 {
        hosts.push("[::1]");
    }
    for host in hosts {
        let url = format!("REDISS://{host}:{}/3", server.port);
        let lock = trusting().open(&url).unwrap().lock("orders");
        lock.lock().unwrap();
        is_empty(&server.plain);
        server.plain.cmd(&["SELECT", "3"]);
        assert_eq!(crate::invariants::keys(&server.plain), ["orders"], "{host}");
        server.plain.cmd(&["SELECT", "0"]);
        lock.unlock().unwrap();
    }
}

#[test]
fn tls_1_2_works() {
    let pair = certificates().server();
    let server = Server::with(&pair, false, &["--tls-protocols", "TLSv1.2"]);
    let client = trusting().watchdog_timeout(LEASE).open(&server.url());
    all_works(&server.plain, &client.unwrap());
}

#[test]
fn many_records_both_ways_work() {
    // With the text of a script, a call for a hundred holds is larger than a TLS record.
    let pair = certificates().server();
    let server = Server::with(&pair, false, &["--rename-command", "EVALSHA", ""]);
    let client = trusting().watchdog_timeout(LEASE).open(&server.url());
    let client = client.unwrap();
    let name = "n".repeat(400);
    let locks: Vec<_> = (0..250)
        .map(|n| client.lock(&format!("{name}{n}")))
        .collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.guard().unwrap()).collect();
    thread::sleep(LEASE * 2);
    assert!(guards.iter().all(|guard| guard.is_valid()));
    // The errors are as long when all replies are lost.
    for lock in &locks {
        server.plain.cmd(&["DEL", lock.name()]);
        server.plain.cmd(&[
            "HSET",
            lock.name(),
            &format!("{}:1", "somebody".repeat(20)),
            "1",
        ]);
    }
    eventually(LEASE * 4, "all are lost", || {
        guards.iter().all(|guard| !guard.is_valid())
    });
    for guard in guards {
        assert!(guard.unlock().unwrap_err().is_lost());
    }
}
