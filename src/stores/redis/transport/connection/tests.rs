#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod asked;
mod clock;
mod greeting;
mod pieces;

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;
use crate::stores::redis::random_replies::{altered, draws};
use crate::stores::redis::tests::stub::bulk;
use crate::stores::redis::tests::stub::{Request, Says, StubServer};
use crate::stores::redis::transport::address::Address;
use crate::stores::redis::transport::reply_text::MOST_WORDS;
use crate::stores::redis::transport::tls::TlsConfig;

fn greeted(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let _ = stream.read(&mut [0; 1024]).unwrap();
    stream
        .write_all(b"+OK\r\n-ERR\r\n*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n")
        .unwrap();
    stream
}

fn talking(replies: Vec<u8>) -> (Connection, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let mut stream = greeted(&listener);
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(&replies).unwrap();
    });
    let address = Address::parse(&url, Duration::from_secs(5), &TlsConfig::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    (Connection::connect(&address, deadline).unwrap(), server)
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn address_of(url: &str) -> Address {
    Address::parse(url, Duration::from_secs(20), &TlsConfig::default()).unwrap()
}

fn at(answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) -> (Connection, StubServer) {
    let server = StubServer::start(answers);
    let address = address_of(&server.url());
    (Connection::connect(&address, soon()).unwrap(), server)
}

fn until(mut is_so: impl FnMut() -> bool) {
    let patience = soon();
    while !is_so() {
        assert!(Instant::now() < patience, "it takes too long");
        thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn long_error_replies_are_shortened() {
    let deadline = Instant::now() + Duration::from_secs(5);
    let error = [
        "-ERR \x1b[1m".to_owned(),
        "ä".repeat(400_000),
        "\r\n".to_owned(),
    ]
    .concat();
    let mut replies = error.into_bytes();
    replies.extend(b":7\r\n");
    let (mut connection, server) = talking(replies);
    let Err(CallError::Server(text)) = connection.call(b"*1\r\n$4\r\nPING\r\n", deadline) else {
        panic!("an error was sent");
    };
    assert!(
        text.starts_with("ERR \u{fffd}[1mää") && text.ends_with('…'),
        "{text}"
    );
    assert!(text.len() < MOST_WORDS + 8, "{}", text.len());
    assert_eq!(connection.receive(deadline), Ok(Value::Int(7)));
    assert!(!connection.decoder.has_unread());
    server.join().unwrap();
}

#[test]
fn bytes_after_an_error_are_noticed_at_once() {
    let deadline = Instant::now() + Duration::from_secs(5);
    let ping = b"*1\r\n$4\r\nPING\r\n";
    let (mut connection, server) = talking(b"-ERR no\r\n".to_vec());
    let refused = connection.call(ping, deadline);
    assert!(matches!(refused, Err(CallError::Server(_))), "{refused:?}");
    server.join().unwrap();
    assert!(connection.is_stale(Duration::from_secs(1)));
    let asked = connection.ask(ping, deadline);
    assert!(matches!(asked, Err(CallError::NotSent(_))), "{asked:?}");
}

#[test]
fn unsolicited_replies_are_noticed() {
    let deadline = Instant::now() + Duration::from_secs(5);
    let answers = format!(":0\r\n*2\r\n:8\r\n:1\r\n:{}\r\n:5\r\n", 9 << SMALL_BITS | 3);
    let (mut connection, server) = talking(answers.into_bytes());
    connection.ask(b"*1\r\n$4\r\nPING\r\n", deadline).unwrap();
    assert_eq!(connection.answer(9, deadline), Ok(Value::Int(3)));
    assert!(connection.is_unusable && connection.decoder.has_unread());
    let refused = connection.ask(b"*1\r\n$4\r\nPING\r\n", deadline);
    assert!(matches!(refused, Err(CallError::NotSent(_))), "{refused:?}");
    server.join().unwrap();
}

#[test]
fn random_replies_have_a_time_or_none() {
    let answers: [&[u8]; 3] = [
        b":977\r\n",
        b"*2\r\n:3\r\n:1790000000000\r\n",
        b"*3\r\n:1\r\n:1790000000000\r\n:2\r\n",
    ];
    let (sent, soon) = (BootInstant::now(), Duration::from_secs(1));
    draws("time", |draw| {
        let not_after = draw.choice([0, 1_790_000_001_000, i64::MAX]).unwrap();
        let Some(now) = time_in(&altered(draw, &answers), not_after) else {
            return;
        };
        assert!(now > 0);
        let ahead = Offset::told(now.saturating_mul(1000), sent, BootInstant::now());
        // This must not overflow for any clock offset.
        let _ = ahead.expiry(sent + soon, LATEST);
    });
}

#[test]
fn identity_and_durability_are_read_from_info() {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let of = |server: &str, persistence: &str, replication: &str, fsync: &[&str]| {
        let fsync = fsync.iter().map(|it| text(it)).collect();
        let (persistence, fsync) = (Some(text(persistence)), Some(Value::Array(fsync)));
        let now = BootInstant::now();
        identity::identity_in(
            &text(server),
            persistence,
            &text(replication),
            fsync,
            [now, now],
        )
    };
    let server = "# Server\r\nredis_mode:standalone\r\nrun_id:abc\r\nuptime_in_seconds:90\r\n";
    let master = "role:master\r\nmaster_replid:f00\r\nmaster_replid2:0000\r\n";
    let aof = "aof_enabled:1\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n";
    let always = ["appendfsync", "always", "no-appendfsync-on-rewrite", "no"];
    let plain = of(server, aof, master, &always).unwrap();
    assert_eq!((&*plain.run, &*plain.history), ("abc", "f00"));
    assert_eq!(plain.age, Duration::from_secs(89));
    assert!(plain.remembers && !plain.follows && !plain.has_followed && !plain.is_in_cluster);
    // In each of these cases, locks may not survive a crash.
    for (persistence, fsync) in [
        (aof.replace("enabled:1", "enabled:0"), always),
        (aof.replace("progress:0", "progress:1"), always),
        (aof.replace("scheduled:0", "scheduled:1"), always),
        (
            aof.to_owned(),
            ["appendfsync", "everysec", "no-appendfsync-on-rewrite", "no"],
        ),
        (
            aof.to_owned(),
            ["appendfsync", "always", "no-appendfsync-on-rewrite", "yes"],
        ),
    ] {
        assert!(
            !of(server, &persistence, master, &fsync).unwrap().remembers,
            "{persistence} {fsync:?}"
        );
    }
    let followed = master.replace("0000", "0a00");
    assert!(of(server, aof, &followed, &always).unwrap().has_followed);
    let follows = master.replace("role:master", "role:slave");
    assert!(of(server, aof, &follows, &always).unwrap().follows);
    for name in ["redis_mode", "server_mode"] {
        let alone = server.replace("redis_mode", name);
        assert!(!of(&alone, aof, master, &always).unwrap().is_in_cluster);
        let cluster = alone.replace("standalone", "cluster");
        assert!(of(&cluster, aof, master, &always).unwrap().is_in_cluster);
    }
    let young = server.replace("seconds:90", "seconds:-5");
    let young = of(&young, aof, master, &always).unwrap();
    assert_eq!(young.age, Duration::ZERO);
    for nobody in ["", "run_id:abc\r\n", "uptime_in_seconds:9\r\n"] {
        assert!(of(nobody, aof, master, &always).is_err(), "{nobody}");
    }
}
