//! TLS: what is trusted, what is refused, and that the rules of every connection hold on it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod terminator;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error, Lock};

use crate::invariants::{
    Class, TIMEOUT, connections, ends_within, fails, is_empty, leaves_nothing, quick,
    somebody_waits, subscriptions,
};
use crate::support::topology_fixtures::certificates::{Certificates, Pair};
use crate::support::{RedisServer, eventually, ms};
use terminator::Terminator;

/// A lease that is long enough to be kept on a busy machine.
const LEASE: Duration = ms(3000);

/// One authority for all tests, as each costs some processes.
fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES.get_or_init(|| {
        let certificates = Certificates::new();
        // They are made in files of one directory, so they are made before anybody races for them.
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

/// Settings that trust the authority of these tests, with time for a busy machine.
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

/// Settings that trust the authority of these tests, with short time-outs.
fn hurried() -> Builder {
    quick().ca_certificate(authority())
}

/// A server that speaks TLS besides plain text, which is for the test.
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

/// Each kind of request once, renewals and an unlock message included.
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

/// No trusted connection: it is said at once with the node and what to do, and a wait does not go on.
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
fn locks_are_taken_renewed_waited_for_and_freed() {
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
fn the_older_version_that_some_services_have_works() {
    let pair = certificates().server();
    let server = Server::with(&pair, false, &["--tls-protocols", "TLSv1.2"]);
    let client = trusting().watchdog_timeout(LEASE).open(&server.url());
    all_works(&server.plain, &client.unwrap());
}

#[test]
fn many_records_both_ways_work() {
    // By the text of a script, a call for a hundred holds is larger than a record may be.
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
    // What comes back is as long when all of them are lost.
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

#[test]
fn threads_that_wait_and_wake_share_one_subscriber() {
    let server = Server::start();
    let client = trusting().open(&server.url()).unwrap();
    let plain = plain(&server.plain);
    let subscribers = std::sync::Mutex::new(std::collections::BTreeSet::new());
    // The look at the server's settings, which listens for a moment, too, is to be over.
    for first in [&client, &plain] {
        first.lock("first").run(|_| ()).unwrap();
    }
    thread::sleep(Duration::from_secs(1));
    // SUBSCRIBEs are written by waiters while the subscriber's thread reads messages.
    thread::scope(|scope| {
        for thread in 0..8 {
            let (client, plain, server, subscribers) = (&client, &plain, &server, &subscribers);
            scope.spawn(move || {
                for round in 0..25 {
                    let name = format!("{thread}:{round}");
                    let (ours, theirs) = (client.lock(&name), plain.lock(&name));
                    theirs.lock().unwrap();
                    thread::scope(|scope| {
                        let waiting = scope.spawn(|| {
                            assert!(ours.try_lock_for(Duration::from_secs(30)).unwrap());
                            ours.unlock().unwrap();
                        });
                        eventually(ms(2500), "a waiter subscribes at once", || {
                            subscriptions(&server.plain, &name) > 0
                        });
                        let listening = connections(&server.plain).into_iter();
                        let listening = listening.filter(|line| !line.contains(" sub=0 "));
                        let ids =
                            listening.filter_map(|line| Some(line.split_once(' ')?.0.to_owned()));
                        subscribers.lock().unwrap().extend(ids);
                        theirs.unlock().unwrap();
                        waiting.join().unwrap();
                    });
                }
            });
        }
    });
    is_empty(&server.plain);
    let subscribers = subscribers.into_inner().unwrap();
    assert_eq!(subscribers.len(), 1, "none was replaced: {subscribers:?}");
}

#[test]
fn an_unknown_authority_is_refused() {
    let server = Server::start();
    let words = ["not trusted", "Builder::ca_certificate"];
    let another = quick().ca_certificate(Certificates::new().authority_pem());
    is_refused(&server.lock(another), server.port, &words);
    // Without one the authorities of the system are trusted, which do not know ours.
    match quick().open(&server.url()) {
        Ok(client) => is_refused(&client.lock("orders"), server.port, &words),
        Err(error) => {
            let error = fails::<()>(Err(error), Class::Config);
            assert!(error.to_string().contains("ca_certificate"), "{error}");
        }
    }
    is_empty(&server.plain);
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let server = Server::with(&certificates().elsewhere(), false, &[]);
    let words = ["another host", "127.0.0.1", "elsewhere.example"];
    is_refused(&server.lock(trusting()), server.port, &words);
    let by_name = format!("rediss://localhost:{}", server.port);
    let lock = trusting().open(&by_name).unwrap().lock("orders");
    is_refused(&lock, server.port, &["another host", "\"localhost\""]);
    is_empty(&server.plain);
}

#[test]
fn an_expired_certificate_is_refused() {
    let server = Server::with(&Certificates::expired(certificates()), false, &[]);
    is_refused(
        &server.lock(trusting()),
        server.port,
        &["expired", "renew it", "clock"],
    );
    is_empty(&server.plain);
}

#[test]
fn certificates_of_a_form_that_is_of_no_use_are_named() {
    // Files of an authority of its own, as those of the shared one were made before.
    let certificates = Certificates::new();
    let trusting = || quick().ca_certificate(certificates.authority_pem());
    for (pair, words) in [
        (
            certificates.first_version(),
            ["version 1", "subjectAltName"],
        ),
        (
            certificates.of_itself(),
            ["of an authority", "subjectAltName"],
        ),
    ] {
        let server = Server::with(&pair, false, &[]);
        is_refused(&server.lock(trusting()), server.port, &words);
        is_empty(&server.plain);
    }
}

#[test]
fn encrypted_addresses_stand_beside_no_plain_ones() {
    let (tls, plain) = ("rediss://:canary@10.0.0.1", "redis://:canary@10.0.0.2");
    for urls in [[tls, plain], [plain, tls]] {
        for opened in [
            quick().cluster(urls),
            quick().master_replicas(urls),
            quick().sentinel("shop", urls),
        ] {
            let text = fails(opened, Class::Config).to_string();
            assert!(text.contains("plain text"), "{text}");
            assert!(!text.contains("canary"), "{text}");
        }
    }
    let again = tls.replace("10.0.0.1", "10.0.0.3");
    quick().cluster([tls, &again]).unwrap();
}

#[test]
fn a_server_may_ask_for_a_certificate() {
    for version in ["TLSv1.3", "TLSv1.2"] {
        let protocols = ["--tls-protocols", version];
        let server = Server::with(&certificates().server(), true, &protocols);
        let words = ["a certificate of ours", "Builder::client_certificate"];
        is_refused(&server.lock(trusting()), server.port, &words);
        let others = Certificates::new();
        let stranger = others.client();
        let stranger =
            trusting().client_certificate(stranger.certificate_pem(), stranger.key_pem());
        let words = ["does not accept our certificate"];
        is_refused(&server.lock(stranger), server.port, &words);
        is_empty(&server.plain);

        let ours = certificates().client();
        let ours = trusting().client_certificate(ours.certificate_pem(), ours.key_pem());
        let client = ours.watchdog_timeout(LEASE).open(&server.url()).unwrap();
        all_works(&server.plain, &client);
    }
}

#[test]
fn certificates_that_cannot_be_used_are_refused_at_once() {
    let server = certificates().server();
    let client = certificates().client();
    let (certificate, key) = (client.certificate_pem(), client.key_pem());
    let secret = key.lines().nth(1).unwrap().to_owned();
    let half_key = key.replace("-----END", "-----");
    let refused = |builder: Builder, words: &str| {
        let error = fails(builder.open("rediss://127.0.0.1:1"), Class::Config);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(words), "{shown}");
        assert!(!shown.contains(&secret), "the key is shown: {shown}");
    };
    refused(quick().ca_certificate(""), "ca_certificate");
    refused(quick().ca_certificate(&key), "ca_certificate");
    refused(
        quick().ca_certificate("-----BEGIN CERTIFICATE-----\nx"),
        "PEM",
    );
    refused(trusting().client_certificate("", &key), "no certificate");
    refused(
        trusting().client_certificate(&certificate, ""),
        "no private key",
    );
    refused(
        trusting().client_certificate(&certificate, &half_key),
        "no private key",
    );
    refused(
        trusting().client_certificate(&certificate, &certificate),
        "no private key",
    );
    refused(
        trusting().client_certificate(&certificate, server.key_pem()),
        "not that of the certificate",
    );
    let builder = trusting().client_certificate(&certificate, &key);
    let shown = format!("{builder:?}");
    assert!(!shown.contains(&secret), "{shown}");
}

#[test]
fn certificates_for_a_plain_connection_are_refused() {
    let server = RedisServer::start();
    let client = certificates().client();
    for url in [server.url(), server.unix_url()] {
        let error = fails(trusting().open(&url), Class::Config);
        assert!(error.to_string().contains("rediss://"), "{error}");
        let identity = quick().client_certificate(client.certificate_pem(), client.key_pem());
        fails(identity.open(&url), Class::Config);
    }
    assert!(connections(&server).is_empty());
}

#[test]
fn the_check_cannot_be_switched_off() {
    let server = Server::start();
    let error = fails(
        trusting().open(&format!("{}/#insecure", server.url())),
        Class::Config,
    );
    assert!(error.to_string().contains("always checked"), "{error}");
}

#[test]
fn a_port_without_tls_gets_no_plain_text() {
    let server = RedisServer::start();
    let url = server
        .url()
        .replace("redis://", "rediss://app:canary-7f3a@");
    // Redis waits for the end of a line, or finds one and answers with an error in plain text.
    let patient = hurried().connect_timeout(Duration::from_secs(60));
    for builder in [hurried(), patient, trusting()] {
        let lock = builder.open(&url).unwrap().lock("orders");
        is_refused(&lock, server.port(), &["TLS port"]);
    }
    assert!(!server.log().contains("canary"));
    is_empty(&server);
    let server = RedisServer::with(&["--requirepass", "canary-7f3a"]);
    let url = server
        .url()
        .replace("redis://", "rediss://app:canary-7f3a@");
    let lock = hurried().open(&url).unwrap().lock("orders");
    is_refused(&lock, server.port(), &["TLS port"]);

    // The other way round.
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port);
    let lock = quick().open(&url).unwrap().lock("orders");
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unreachable));
}

/// Accepts connections and answers each with `talk`, until it is dropped.
struct Stranger {
    addr: SocketAddr,
}

impl Stranger {
    fn new(talk: impl Fn(TcpStream) + Send + Sync + 'static) -> Stranger {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let talk = std::sync::Arc::new(talk);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let talk = std::sync::Arc::clone(&talk);
                thread::spawn(move || talk(stream));
            }
        });
        Stranger { addr }
    }

    fn lock(&self, builder: Builder) -> Lock {
        let url = format!("rediss://{}", self.addr);
        builder.open(&url).unwrap().lock("orders")
    }
}

#[test]
fn a_handshake_that_hangs_ends_in_time() {
    use std::io::{Read, Write};
    let silent =
        Stranger::new(|mut stream| while stream.read(&mut [0; 512]).is_ok_and(|n| n > 0) {});
    // The start of a long record, and then a byte of it now and then.
    let dripping = Stranger::new(|mut stream| {
        let mut byte = &b"\x16\x03\x03\x40\x00"[..];
        while stream.write_all(byte).is_ok() {
            byte = &[0];
            thread::sleep(ms(20));
        }
    });
    // Whole records that do not get on.
    let empty = Stranger::new(|mut stream| {
        while stream.write_all(b"\x14\x03\x03\x00\x01\x01").is_ok() {
            thread::sleep(ms(20));
        }
    });
    let gone = Stranger::new(drop);
    for stranger in [&silent, &dripping] {
        let lock = stranger.lock(hurried());
        let start = Instant::now();
        let error = ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unreachable));
        // A call ends a little before its time.
        assert!(start.elapsed() >= TIMEOUT * 3 / 4, "{error}");
        assert!(error.to_string().contains("TLS"), "{error}");
        ends_within(ms(300), || {
            fails(lock.try_lock_for(ms(300)), Class::Unreachable)
        });
        ends_within(ms(800), || fails(lock.lock(), Class::Unreachable));
    }
    for stranger in [&empty, &gone] {
        let lock = stranger.lock(hurried());
        ends_within(TIMEOUT, || lock.try_lock().unwrap_err());
        ends_within(ms(800), || lock.lock().unwrap_err());
    }
}

#[test]
fn a_reply_that_drips_in_does_not_take_longer_than_a_command_may() {
    let server = RedisServer::start();
    let terminator = Terminator::before(server.addr(), certificates());
    let lock = hurried().open(&terminator.url()).unwrap().lock("orders");
    lock.lock().unwrap();
    terminator.drip(true);
    let start = Instant::now();
    let error = ends_within(TIMEOUT, || lock.is_locked().unwrap_err());
    assert!(start.elapsed() >= TIMEOUT - ms(50), "{error}");
    terminator.drip(false);
    assert!(lock.is_locked().unwrap());
    lock.unlock().unwrap();
    leaves_nothing(&server);
}

#[test]
fn a_connection_that_only_got_new_keys_is_kept() {
    let server = RedisServer::start();
    let terminator = Terminator::before(server.addr(), certificates());
    let lock = trusting().open(&terminator.url()).unwrap().lock("orders");
    lock.lock().unwrap();
    let mut before = 0;
    for _ in 0..2 {
        // Long enough for the connection to be looked at before it is used again.
        thread::sleep(ms(1200));
        before = terminator.accepted();
        terminator.change_keys();
        thread::sleep(ms(100));
        assert!(lock.is_locked().unwrap());
    }
    assert_eq!(terminator.accepted(), before, "it is the same connection");
    lock.unlock().unwrap();

    // Here it is not.
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
fn a_server_that_closes_is_connected_to_again() {
    let server = Server::start();
    let client = trusting().watchdog_timeout(LEASE).open(&server.url());
    let client = client.unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    // Long enough for the connection to be looked at before it is used again.
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
