//! The support module tested on itself: a fault that does not happen would make every test that relies on it pass.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Instant;

use tempfile::TempDir;

use crate::support::history::{Overlap, Summary, check};
use crate::support::{
    Child, End, Fault, Monitor, Proxy, Recorder, RedisServer, child, eventually, ms,
};

/// A client which shows each byte and each way a connection can end.
struct Client(TcpStream);

impl Client {
    fn to(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(proxy.addr()).expect("the proxy accepts"))
    }

    fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0
            .write_all(request.as_bytes())
            .expect("the proxy takes requests");
    }

    /// Reads until `expected` has come, where `|reset` and `|end` are how the connection ends; nothing at all, for a
    /// while, if it is empty.
    #[track_caller]
    fn expect(&mut self, expected: &str) {
        let limit = if expected.is_empty() {
            ms(100)
        } else {
            ms(5000)
        };
        self.0.set_read_timeout(Some(limit)).expect("a time-out");
        let (mut text, mut chunk) = (String::new(), [0; 4096]);
        while expected.is_empty() || text.len() < expected.len() {
            match self.0.read(&mut chunk) {
                Ok(read @ 1..) => text += &String::from_utf8_lossy(&chunk[..read]),
                Ok(_) => text += "|end",
                Err(error) if error.kind() == ErrorKind::ConnectionReset => text += "|reset",
                Err(_) => break,
            }
            if text.contains('|') {
                break;
            }
        }
        assert_eq!(text, expected);
    }

    #[track_caller]
    fn ask(&mut self, words: &[&str], expected: &str) {
        self.send(words);
        self.expect(expected);
    }
}

fn server_and_proxy() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    (server, proxy)
}

#[test]
fn a_server_freezes_dies_and_comes_back() {
    let server = RedisServer::with(&["--maxmemory", "7mb"]);
    let (port, pid) = (server.port(), server.pid());
    server.cmd(&["SET", "key", "1"]);
    assert_eq!(server.int(&["INCR", "key"]), 2);
    assert!(server.try_cmd(&["LPUSH", "key", "x"]).is_err());

    server.freeze();
    let mut stream = TcpStream::connect(server.addr()).expect("the kernel still accepts");
    stream.set_read_timeout(Some(ms(50))).expect("a time-out");
    stream
        .write_all(b"PING\r\n")
        .expect("the kernel takes the request");
    assert!(stream.read(&mut [0; 8]).is_err());
    server.thaw();
    stream.set_read_timeout(Some(ms(2000))).expect("a time-out");
    assert_eq!(
        stream.read(&mut [0; 8]).expect("an answer after the thaw"),
        7
    );

    server.kill();
    assert!(TcpStream::connect(server.addr()).is_err());
    server.restart();
    assert_eq!(
        (server.port(), server.info("maxmemory").as_deref()),
        (port, Some("7340032"))
    );
    assert_ne!(server.pid(), pid);
    assert_eq!(server.text(&["GET", "key"]), None);
    server.freeze();
    server.terminate();
    assert!(server.try_cmd(&["PING"]).is_err());
    server.restart();
    let mut unix = redis::Client::open(server.unix_url())
        .and_then(|client| client.get_connection())
        .expect("a socket");
    assert_eq!(
        redis::cmd("PING")
            .query::<String>(&mut unix)
            .expect("an answer"),
        "PONG"
    );
}

#[test]
fn calls_are_counted_without_the_kit_s_own() {
    let server = RedisServer::start();
    let (calls, evals) = (server.command_calls(), server.eval_count());
    server.cmd(&[
        "EVAL",
        "redis.call('SET', KEYS[1], 1) return redis.call('INCR', KEYS[1])",
        "1",
        "key",
    ]);
    assert!(
        server
            .try_cmd(&["EVALSHA", "0000000000000000000000000000000000000000", "0"])
            .is_err()
    );
    assert_eq!(server.eval_count() - evals, 2);
    assert_eq!(
        server.command_calls() - calls,
        2,
        "what the script has called"
    );
    let mut other = server.admin();
    redis::cmd("GET")
        .arg("key")
        .exec(&mut other)
        .expect("an answer");
    assert_eq!(server.command_calls() - calls, 3);
}

#[test]
fn a_proxy_loses_requests_and_replies() {
    let (server, proxy) = server_and_proxy();
    let mut client = Client::to(&proxy);
    client.ask(&["SET", "n", "0"], "+OK\r\n");

    let rule = proxy.next(1, Some(b"INCR"), Fault::SwallowReply(End::Reset));
    client.ask(&["PING"], "+PONG\r\n");
    client.ask(&["INCR", "n"], "|reset");
    assert_eq!((server.int(&["GET", "n"]), rule.hits()), (1, 1));

    proxy.next(1, Some(b"INCR"), Fault::SwallowRequest(End::Silent));
    let mut client = Client::to(&proxy);
    client.ask(&["INCR", "n"], "");
    client.ask(&["PING"], "");
    assert_eq!(server.int(&["GET", "n"]), 1);

    proxy.next(1, None, Fault::SwallowReply(End::Silent));
    Client::to(&proxy).ask(&["INCR", "n"], "");
    proxy.next(1, None, Fault::SwallowRequest(End::Reset));
    Client::to(&proxy).ask(&["INCR", "n"], "|reset");
    assert_eq!(server.int(&["GET", "n"]), 2);

    proxy.next(1, None, Fault::TruncateReply(3));
    Client::to(&proxy).ask(&["PING"], "+PO|reset");
    let never = proxy.next(1, None, Fault::TruncateReply(3));
    never.lift();
    Client::to(&proxy).ask(&["PING"], "+PONG\r\n");
    drop(client);
    eventually(
        ms(2000),
        "the connections of clients that left are closed",
        || proxy.counters().open == 0,
    );
}

#[test]
fn a_proxy_delays_repeats_and_holds() {
    let (server, proxy) = server_and_proxy();
    let mut client = Client::to(&proxy);
    for (fault, at_once) in [
        (Fault::DelayReply(ms(250)), 1),
        (Fault::DelayRequest(ms(250)), 0),
        (Fault::Drip(ms(70)), 1),
    ] {
        server.cmd(&["SET", "n", "0"]);
        proxy.next(1, None, fault);
        let start = Instant::now();
        client.send(&["INCR", "n"]);
        eventually(ms(200), "what the server has done at once", || {
            server.int(&["GET", "n"]) == at_once
        });
        client.0.read_exact(&mut [0; 4]).expect("the whole reply");
        assert!(start.elapsed() >= ms(250), "{fault:?}");
    }

    proxy.next(1, None, Fault::DuplicateRequest);
    client.ask(&["INCR", "n"], ":2\r\n");
    client.ask(&["INCR", "n"], ":4\r\n");

    let held = proxy.next(1, Some(b"INCR"), Fault::Hold);
    client.send(&["INCR", "n"]);
    eventually(ms(1000), "the request is held", || held.hits() == 1);
    drop(client);
    Client::to(&proxy).ask(&["GET", "n"], "$1\r\n4\r\n");
    held.release();
    eventually(ms(1000), "the request of a client long gone", || {
        server.int(&["GET", "n"]) == 5
    });
}

#[test]
fn a_proxy_finds_the_messages_however_they_are_split() {
    let (server, proxy) = server_and_proxy();
    let mut client = Client::to(&proxy);
    proxy.next(1, Some(b"second"), Fault::SwallowReply(End::Reset));
    for byte in b"*2\r\n$4\r\nECHO\r\n$5\r\nfirst\r\n" {
        client
            .0
            .write_all(&[*byte])
            .expect("the proxy takes requests");
    }
    client.expect("$5\r\nfirst\r\n");
    assert_eq!(
        client
            .0
            .write(b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$6\r\nsecond\r\n")
            .expect("one write"),
        40
    );
    client.expect("+PONG\r\n|reset");

    let mut subscriber = Client::to(&proxy);
    let subscribed =
        |channel, count| format!("*3\r\n$9\r\nsubscribe\r\n$1\r\n{channel}\r\n:{count}\r\n");
    subscriber.ask(
        &["SUBSCRIBE", "a", "b"],
        &(subscribed("a", 1) + &subscribed("b", 2)),
    );
    let lost = proxy.next(1, Some(b"two"), Fault::DropPush);
    for message in ["one", "two", "three"] {
        server.cmd(&["PUBLISH", "a", message]);
    }
    let message = |text: &str| {
        format!(
            "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n${}\r\n{text}\r\n",
            text.len()
        )
    };
    subscriber.expect(&(message("one") + &message("three")));
    assert_eq!(lost.hits(), 1);
    proxy.next(1, Some(b"SUBSCRIBE"), Fault::SwallowReply(End::Silent));
    subscriber.ask(&["SUBSCRIBE", "c", "d"], "");
}

#[test]
fn a_proxy_cuts_mutes_refuses_and_swallows_all() {
    let (server, proxy) = server_and_proxy();
    let mut old = Client::to(&proxy);
    old.ask(&["PING"], "+PONG\r\n");
    assert_eq!((proxy.counters().accepted, proxy.counters().open), (1, 1));
    assert_eq!(
        (proxy.counters().bytes_up, proxy.counters().bytes_down),
        (14, 7)
    );

    proxy.black_hole();
    let mut new = Client::to(&proxy);
    old.ask(&["INCR", "n"], "");
    new.ask(&["INCR", "n"], "");
    assert_eq!(server.text(&["GET", "n"]), None);
    drop(new);
    proxy.heal();
    old.0
        .read_exact(&mut [0; 4])
        .expect("the reply that was held back");
    eventually(
        ms(1000),
        "also the late request of a client that left",
        || server.int(&["GET", "n"]) == 2,
    );

    proxy.mute();
    old.ask(&["INCR", "n"], "");
    let mut new = Client::to(&proxy);
    new.ask(&["INCR", "n"], ":3\r\n");

    proxy.refuse();
    new.ask(&["PING"], "+PONG\r\n");
    Client::to(&proxy).expect("|reset");
    proxy.black_hole();
    proxy.cut();
    assert_eq!(proxy.counters().open, 0);
    old.expect("|reset");
    new.expect("|reset");
    proxy.heal();
    let mut last = Client::to(&proxy);
    last.ask(&["PING"], "+PONG\r\n");
    server.kill();
    last.expect("|end");
    Client::to(&proxy).expect("|reset");
    server.restart();
    let mut last = Client::to(&proxy);
    last.ask(&["PING"], "+PONG\r\n");
    drop(proxy);
    last.expect("|reset");
}

#[test]
#[cfg(target_os = "linux")]
fn a_clock_jumps_both_ways() {
    let shim = crate::support::ClockShim::build();
    let server = RedisServer::with_clock(&shim);
    let ttl_after = |offset: i64| {
        shim.set(offset);
        server.int(&["PTTL", "key"])
    };
    server.cmd(&["SET", "key", "1", "PX", "10000"]);
    assert!((9_000..=10_000).contains(&ttl_after(0)));
    assert!((4_000..=5_000).contains(&ttl_after(5_000)));
    assert!((109_000..=110_000).contains(&ttl_after(-100_000)));
    let seconds = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_secs() as i64;
    let shown: Vec<i64> = redis::from_redis_value(server.cmd(&["TIME"])).expect("two numbers");
    assert!((shown[0] + 100 - seconds).abs() <= 1, "{shown:?}");
    assert_eq!(ttl_after(40_500), -2);
    server.restart();
    assert_eq!(ttl_after(0), -2);
}

#[test]
fn a_monitor_sees_what_was_run() {
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    server.cmd(&["SET", "key", "1"]);
    server.cmd(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "key"]);
    assert_eq!(monitor.lines().len(), 3, "{:?}", monitor.lines());
    assert_eq!(monitor.lines_containing("lua]").len(), 1);
    monitor.clear();
    assert!(monitor.lines_containing("key").is_empty());
    server.kill();
    monitor.lines();
}

#[test]
fn entry() {
    if child::role().as_deref() == Some("echo") {
        child::say(&format!("ready {}", child::arg("KIT_WORD")));
        while let Some(line) = child::listen() {
            child::say(&format!("heard {line}"));
        }
    }
    if child::role().as_deref() == Some("talk") {
        (0..500).for_each(|number| child::say(&number.to_string()));
    }
    if child::role().as_deref() == Some("lends servers") {
        let server = RedisServer::start();
        let child = Child::spawn_at("support_tests::entry", "echo", &[("KIT_WORD", "now")]);
        #[cfg(feature = "mysql")]
        let database = crate::support::MariaDb::start();
        #[cfg(feature = "mysql")]
        child::say(&format!("listens on {}", database.addr()));
        child::say(&format!("listens on {}", server.addr()));
        // It cannot end by itself.
        child.freeze();
        child::say(&format!("runs as {}", child.pid()));
        child::listen();
    }
}

#[test]
fn what_a_process_has_started_ends_with_it_however_it_ends() {
    for is_killed in [true, false] {
        let mut parent = Child::spawn_at("support_tests::entry", "lends servers", &[]);
        let mut addresses = Vec::new();
        if cfg!(feature = "mysql") {
            addresses.push(parent.expect_line("listens on ", ms(60_000)));
        }
        addresses.push(parent.expect_line("listens on ", ms(60_000)));
        let child = parent.expect_line("runs as ", ms(5000));
        if is_killed {
            parent.kill();
        } else {
            assert!(parent.wait(ms(20_000)).success());
        }
        for address in addresses {
            let address = address.trim_start_matches("listens on ");
            eventually(ms(10_000), address, || TcpStream::connect(address).is_err());
        }
        let child = child.trim_start_matches("runs as ").parse();
        let child = child.expect("a process id");
        eventually(ms(10_000), "the child ends", || {
            !crate::support::runs(child)
        });
    }
}

#[test]
fn a_child_speaks_listens_freezes_and_ends() {
    let spawn = || Child::spawn_at("support_tests::entry", "echo", &[("KIT_WORD", "now")]);
    let mut child = spawn();
    assert_eq!(child.expect_line("ready", ms(5000)), "ready now");
    child.freeze();
    child.tell("one");
    std::thread::sleep(ms(50));
    assert!(child.said().is_empty());
    child.thaw();
    assert_eq!(child.expect_line("heard", ms(5000)), "heard one");
    assert!(child.wait(ms(5000)).success());
    let mut child = spawn();
    child.expect_line("ready", ms(5000));
    child.freeze();
    child.kill();
}

#[test]
fn all_that_a_child_said_is_there_when_it_has_ended() {
    for _ in 0..20 {
        let mut child = Child::spawn_at("support_tests::entry", "talk", &[]);
        assert!(child.wait(ms(10_000)).success());
        assert_eq!(child.said().len(), 500);
    }
}

fn verdict(records: &[&str]) -> Result<Summary, Overlap> {
    let dir = TempDir::new().expect("a directory");
    let write = |(number, text): (usize, &&str)| {
        let path: PathBuf = dir.path().join(number.to_string());
        std::fs::write(&path, text.replace("; ", "\n")).expect("a record");
        path
    };
    check(&records.iter().enumerate().map(write).collect::<Vec<_>>())
}

#[test]
fn a_history_finds_two_owners_at_once() {
    let clean = verdict(&[
        "1 invoke a; 2 return a; 4 release-invoke a; 7 release-return a; 20 invoke a; ",
        "1 invoke b; 5 return b; 6 return b; 8 release-invoke b; 9 release-invoke b; ",
    ]);
    assert_eq!(
        clean,
        Ok(Summary {
            holds: 2,
            owners: 2,
            unanswered: 1,
            lost: 0
        })
    );
    let overlap = verdict(&[
        "1 invoke a; 2 return a; 4 release-invoke a; ",
        "1 invoke b; 3 return b; ",
    ])
    .unwrap_err();
    assert_eq!(
        (
            overlap.first.owner.as_str(),
            overlap.second.owner.as_str(),
            overlap.second.start
        ),
        ("a", "b", 3)
    );
    let nested = verdict(&[
        "1 return a; 2 return a; 3 release-invoke a; 6 release-invoke a; ",
        "4 return b; ",
    ]);
    assert!(nested.is_err(), "the inner release does not end the hold");
    let hidden = verdict(&[
        "1 return a; 9 release-invoke a; ",
        "2 return a; 3 release-invoke a; 4 return b; ",
    ]);
    assert!(hidden.is_err(), "behind a short hold of the same owner");
}

#[test]
fn a_history_ends_a_hold_where_it_was_last_sure() {
    let lost = verdict(&[
        "1 return a; 3 valid a; 9 lost a; 10 release-invoke a; ",
        "4 return b; 5 release-invoke b; ",
    ]);
    assert_eq!(
        lost,
        Ok(Summary {
            holds: 2,
            owners: 2,
            unanswered: 0,
            lost: 1
        })
    );
    assert!(verdict(&["1 return a; 5 valid a; 9 lost a; ", "4 return b; "]).is_err());
    let killed = verdict(&[
        "1 return a; 3 valid a; 3 inv",
        "4 return b; 5 release-invoke b; ",
    ]);
    assert_eq!(killed.map(|summary| summary.holds), Ok(2));

    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("record");
    let recorder = Recorder::open(&path);
    for (owner, valid) in [("a", true), ("b", false)] {
        recorder.invoke(owner);
        recorder.returned(owner);
        assert!(recorder.check(owner, || true));
        recorder.releasing(owner, || valid);
        recorder.released(owner);
    }
    assert_eq!(
        check(&[path]),
        Ok(Summary {
            holds: 2,
            owners: 2,
            unanswered: 0,
            lost: 1
        })
    );
}
