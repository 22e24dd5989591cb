//! Services that cannot run here are simulated by a real server behind a proxy that changes its replies.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;

use serde_json::Value;

use super::{doctor, expect, healthy, report};
use crate::support::{Frames, RedisServer, Resolver, free_listener};
use crate::{ends_with, stderr};

#[derive(Clone, Copy)]
struct ServiceProfile {
    /// Lines that `INFO` contains, in place of the lines with the same field.
    info: &'static [&'static str],
    /// The path of a module in the reply to `HELLO`.
    hello: &'static str,
    /// The prefixes of refused requests, each with its error.
    refuses: &'static [(&'static str, &'static str)],
    /// A text in refused scripts, and their error.
    refuses_script: Option<(&'static str, &'static str)>,
}

const PLAIN: ServiceProfile = ServiceProfile {
    info: &[],
    hello: "",
    refuses: &[],
    refuses_script: None,
};

/// Starts a proxy in front of a real server. The proxy's threads end with their connections.
fn start_service(server: &RedisServer, profile: ServiceProfile) -> SocketAddr {
    let listener = free_listener();
    let (addr, server) = (listener.local_addr().unwrap(), server.addr());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || pass(&client, server, profile));
        }
    });
    addr
}

fn pass(mut client: &TcpStream, server: SocketAddr, profile: ServiceProfile) {
    let server = TcpStream::connect(server).unwrap();
    let (mut requests, mut replies) = (Frames::of(client), Frames::of(&server));
    while let Some(request) = requests.next(|_| ()) {
        let text = String::from_utf8_lossy(&request).into_owned();
        let words: Vec<&str> = text.split("\r\n").skip(2).step_by(2).collect();
        let command = words.join(" ");
        let is_refused = |begin: &str| command.to_ascii_uppercase().starts_with(begin);
        let refused = profile.refuses.iter().find(|(begin, _)| is_refused(begin));
        let script = profile.refuses_script;
        let script = script.filter(|(part, _)| command.starts_with("EVAL ") && text.contains(part));
        // The service refuses scripts by their text, so it must not run them by their hash.
        let unknown = profile
            .refuses_script
            .filter(|_| command.starts_with("EVALSHA"));
        let unknown = unknown.map(|_| "NOSCRIPT No matching script.");
        if let Some(words) = refused.map(|it| it.1).or(script.map(|it| it.1)).or(unknown) {
            if write!(client, "-{words}\r\n").is_err() {
                return;
            }
            continue;
        }
        if (&server).write_all(&request).is_err() {
            return;
        }
        let Some(mut reply) = replies.next(|_| ()) else {
            return;
        };
        if command == "INFO" {
            reply = changed(&reply, profile.info);
        }
        if command == "HELLO" && !profile.hello.is_empty() {
            let hello = profile.hello;
            reply = format!("*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nmodules\r\n*1\r\n*4\r\n$4\r\nname\r\n$2\r\nvm\r\n$4\r\npath\r\n${}\r\n{hello}\r\n", hello.len()).into_bytes();
        }
        // Messages follow a subscription without further requests.
        let is_subscription = command.to_ascii_uppercase().starts_with("SUBSCRIBE");
        if client.write_all(&reply).is_err() {
            return;
        }
        if is_subscription {
            let (mut to, mut from) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            let (mut to, mut from) = (&server, client);
            let _ = std::io::copy(&mut from, &mut to);
            return;
        }
    }
}

/// Returns a reply to `INFO` with these lines.
fn changed(reply: &[u8], lines: &[&str]) -> Vec<u8> {
    let text = String::from_utf8_lossy(reply).into_owned();
    let (_, body) = text.split_once("\r\n").unwrap();
    let field = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    let kept = body.trim_end().lines().filter(|line| {
        !lines
            .iter()
            .any(|it| line.contains(':') && field(it) == field(line))
    });
    let kept: Vec<&str> = kept.chain(lines.iter().copied()).collect();
    let body = kept.join("\r\n");
    format!("${}\r\n{body}\r\n", body.len()).into_bytes()
}

/// Returns the text and severity of each finding with this code.
fn seen(report: &Value, code: &str) -> Vec<(String, String)> {
    let findings = report["findings"].as_array().unwrap().iter();
    let of_code = findings.filter(|it| it["code"] == code);
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    of_code
        .map(|it| (text(&it["seen"]), text(&it["severity"])))
        .collect()
}

fn check(url: &str, args: &[&str]) -> Value {
    report(&doctor(url, args).output().unwrap())
}

const ALL: [&str; 9] = [
    "lock",
    "fair",
    "read-write",
    "fenced",
    "spin",
    "token",
    "semaphore",
    "permits",
    "latch",
];

#[test]
fn every_kind_of_lock_is_tried_without_leftovers() {
    let server = healthy();
    expect(&server.url(), &[], &[]);
    let message = check(&server.url(), &["--kind", "all"]);
    let kinds = seen(&message, "kinds");
    let mut works: Vec<_> = ALL
        .map(|kind| (format!("{kind}: works"), "ok".to_owned()))
        .into();
    let mut found = kinds.clone();
    works.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, works, "{message}");
    let left: Vec<String> = redis::from_redis_value(server.cmd(&["KEYS", "*"])).unwrap();
    let endless = left
        .into_iter()
        .filter(|key| server.int(&["TTL", key]) == -1);
    let endless: Vec<String> = endless.collect();
    assert_eq!(endless, ["redisson_lock_token:{redlatch:doctor:fenced}"]);
    assert!(seen(&message, "service").is_empty(), "{message}");
    let message = check(&server.url(), &["--kind", "fair", "--kind", "latch"]);
    assert_eq!(seen(&message, "kinds").len(), 2);
    let output = doctor(&server.url(), &["--kind", "fast"]).output().unwrap();
    ends_with(&output, 2);
    assert!(stderr(&output).contains("read-write"), "{output:?}");
    let nodes = format!("{0} {0}", server.url());
    let mut command = doctor("", &["--redlock", "--kind", "lock"]);
    let output = command.env("REDLATCH_NODES", nodes).output().unwrap();
    assert!(stderr(&output).contains("--kind"), "{output:?}");
}

#[test]
fn services_are_recognised_by_their_replies() {
    const NO_CONFIG: (&str, &str) = (
        "CONFIG",
        "ERR unknown command 'CONFIG', with args beginning with: 'GET' ",
    );
    let server = healthy();
    for (profile, name, severity) in [
        (
            ServiceProfile {
                info: &["os:Amazon ElastiCache", "executable:-"],
                refuses: &[NO_CONFIG],
                ..PLAIN
            },
            "ElastiCache (identified by its replies)",
            "ok",
        ),
        (
            ServiceProfile {
                info: &["os:Amazon MemoryDB"],
                refuses: &[NO_CONFIG],
                ..PLAIN
            },
            "MemoryDB (",
            "ok",
        ),
        (
            ServiceProfile {
                hello: "google-vm",
                refuses: &[(
                    "CONFIG",
                    "NOPERM this user has no permissions to run the 'config|get' command",
                )],
                ..PLAIN
            },
            "Memorystore (",
            "ok",
        ),
        (
            ServiceProfile {
                info: &["upstash_version:1.10.5"],
                ..PLAIN
            },
            "Upstash (",
            "note",
        ),
        (
            ServiceProfile {
                info: &["dragonfly_version:df-v1.40.1"],
                ..PLAIN
            },
            "Dragonfly (",
            "note",
        ),
        (
            ServiceProfile {
                info: &["garnet_version:1.0.48"],
                ..PLAIN
            },
            "Garnet (",
            "note",
        ),
        (
            ServiceProfile {
                info: &["redis_version:6.3.4", "mvcc_depth:0"],
                ..PLAIN
            },
            "KeyDB (",
            "note",
        ),
        (
            ServiceProfile {
                info: &["kvrocks_version:2.17.0"],
                ..PLAIN
            },
            "Kvrocks (",
            "note",
        ),
    ] {
        let url = format!("redis://{}", start_service(&server, profile));
        let message = check(&url, &["--read-only"]);
        let services = seen(&message, "service");
        let [(seen, found)] = &services[..] else {
            panic!("{name}: {message}");
        };
        assert!(seen.starts_with(name), "{name}: {seen}");
        assert_eq!(found, severity, "{seen}");
    }
}

#[test]
fn services_are_recognised_by_their_host_name() {
    let server = healthy();
    let resolver = Resolver::saying("127.0.0.1");
    let check = |host: &str| {
        let url = server.url().replace("127.0.0.1", host);
        let mut command = doctor(&url, &["--read-only"]);
        report(&command.envs(resolver.env()).output().unwrap())
    };
    // These are host names of services, with an ending that the test resolver knows.
    let message = check("locks-ab12cd.serverless.use1.cache.amazonaws.com.example");
    let [(known, severity)] = &seen(&message, "service")[..] else {
        panic!("{message}");
    };
    assert!(
        known.starts_with("ElastiCache Serverless (identified by its host"),
        "{known}"
    );
    assert_eq!(severity, "note", "locks may be evicted there");
    let message = check("locks.redis.cache.windows.net.example");
    assert!(
        seen(&message, "service")[0].0.starts_with("Azure Cache"),
        "{message}"
    );
}

#[test]
fn refused_kinds_of_locks_are_reported() {
    let server = healthy();
    // Garnet without --lua has no scripts, and no commands that could replace scripts.
    const SCRIPTS: &str = "ERR This instance has Lua scripting support disabled";
    let garnet = ServiceProfile {
        info: &["garnet_version:1.0.48"],
        refuses: &[
            ("EVAL", SCRIPTS),
            ("SCRIPT", SCRIPTS),
            ("DELEX", "ERR unknown command"),
            ("DELIFEQ", "ERR unknown command"),
        ],
        ..PLAIN
    };
    let url = format!("redis://{}", start_service(&server, garnet));
    let message = check(&url, &["--kind", "all"]);
    let kinds = seen(&message, "kinds");
    assert_eq!(kinds.len(), ALL.len(), "{message}");
    for (seen, severity) in &kinds {
        assert!(
            seen.contains("does not work") && severity == "danger",
            "{seen}"
        );
    }
    // Dragonfly refuses scripts with undeclared keys, such as the TTL keys of other readers.
    let dragonfly = ServiceProfile {
        info: &["dragonfly_version:df-v1.40.1"],
        refuses_script: Some((
            ":rwlock_timeout",
            "ERR Error running script: script tried accessing undeclared key, key: x",
        )),
        ..PLAIN
    };
    let url = format!("redis://{}", start_service(&server, dragonfly));
    let message = check(
        &url,
        &["--kind", "read-write", "--kind", "lock", "--kind", "fair"],
    );
    let mut kinds = seen(&message, "kinds");
    kinds.sort_unstable();
    assert_eq!(kinds.len(), 3, "{message}");
    assert_eq!(
        kinds[0],
        ("fair: works".to_owned(), "ok".to_owned()),
        "{message}"
    );
    assert_eq!(
        kinds[1],
        ("lock: works".to_owned(), "ok".to_owned()),
        "{message}"
    );
    assert!(
        kinds[2].0.contains("undeclared key") && kinds[2].1 == "danger",
        "{message}"
    );
}
