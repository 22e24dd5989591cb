//! A name resolver that hangs or fails: F15.

use std::error::Error as _;
use std::fs;
use std::path::Path;

use redlatch::Error;

use super::*;
use crate::support::child::{arg, listen, say};
use crate::support::{Child, Resolver, elsewhere};

/// The time limit of a child.
const CHILD: Duration = Duration::from_secs(60);

/// Runs `role` in a child process; returns false for a role of other files.
pub(super) fn play(role: &str) -> bool {
    match role {
        "caller of a name" => caller(),
        "holder at a name" => holder(),
        _ => return false,
    }
    true
}

fn child(role: &str, resolver: &Resolver, server: &RedisServer) -> Child {
    let url = format!("redis://lock.example:{}", server.port());
    let [library, said] = resolver.env();
    Child::spawn(role, &[("URL", &url), library, said])
}

fn resolving_threads() -> usize {
    let tasks = fs::read_dir(Path::new("/proc/self/task")).unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    let names = tasks.filter_map(|task| name(task.ok()?));
    names
        .filter(|name| name.starts_with("redlatch-backg"))
        .count()
}

#[test]
fn a_hanging_resolver_delays_no_call_past_its_bound() {
    let server = RedisServer::start();
    let resolver = Resolver::saying("hang");
    let mut child = child("caller of a name", &resolver, &server);
    child.expect_line("none got it", CHILD);
    resolver.say("none");
    child.send_line("go on");
    let why = child.expect_line("no such name", CHILD);
    assert!(
        why.contains("lock.example") && why.contains("lookup"),
        "{why}"
    );
    resolver.say("127.0.0.1");
    child.send_line("go on");
    assert!(child.wait(CHILD).success());
    assert!(child.lines().contains(&"done".to_owned()));
}

/// The source of an error.
fn cause(error: &Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

fn caller() {
    let client = quick().open(&arg("URL")).unwrap();
    let lock = client.lock("orders");
    let unreachable = |result| {
        let error = fails(result, Class::Unreachable);
        assert!(cause(&error).contains("resolver"), "{error:?}");
        error
    };
    ends_within(TIMEOUT, || unreachable(lock.try_lock().map(drop)));
    ends_within(ms(300), || {
        unreachable(lock.try_lock_for(ms(300)).map(drop))
    });
    ends_within(TIMEOUT, || unreachable(client.check().map(drop)));
    // Many callers and many clients share one thread.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let client = quick().open(&arg("URL")).unwrap();
                ends_within(TIMEOUT, || {
                    unreachable(client.lock("orders").try_lock().map(drop))
                });
                ends_within(TIMEOUT, || client.shutdown());
            });
        }
    });
    #[cfg(feature = "mysql")]
    {
        let url = arg("URL").replace("redis://", "mysql://app@") + "/shop";
        let database = quick().open(&url).unwrap();
        ends_within(TIMEOUT, || {
            unreachable(database.lock("orders").try_lock().map(drop))
        });
    }
    assert_eq!(resolving_threads(), 1);
    say("none got it");
    listen();
    let error = eventually_some(|| {
        let error = fails(lock.try_lock(), Class::Unreachable);
        (!cause(&error).contains("in time")).then_some(error)
    });
    say(&format!("no such name: {error}: {}", cause(&error)));
    listen();
    assert!(lock.try_lock_for(TIMEOUT * 4).unwrap());
    lock.unlock().unwrap();
    say("done");
}

fn eventually_some<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + CHILD;
    loop {
        match look() {
            Some(it) => return it,
            None => assert!(Instant::now() < end),
        }
    }
}

#[test]
fn while_the_resolver_hangs_the_last_addresses_are_used() {
    let server = RedisServer::start();
    let resolver = Resolver::saying("127.0.0.1");
    let mut child = child("holder at a name", &resolver, &server);
    child.expect_line("holds", CHILD);
    for said in ["hang", "none"] {
        resolver.say(said);
        for kind in ["normal", "pubsub"] {
            server.cmd(&["CLIENT", "KILL", "TYPE", kind]);
        }
        child.send_line("go on");
        assert_eq!(child.expect_line("still", CHILD), "still valid");
    }
    child.send_line("end");
    assert!(child.wait(CHILD).success());
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

fn holder() {
    let client = quick()
        .watchdog_timeout(LEASE * 2)
        .open(&arg("URL"))
        .unwrap();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    say("holds");
    while listen().is_some_and(|word| word == "go on") {
        thread::sleep(LEASE * 3);
        let other = client.lock("invoices");
        ends_within(TIMEOUT, || other.lock().unwrap());
        other.unlock().unwrap();
        // A waiter needs its own connection.
        assert!(!elsewhere(|| lock.try_lock_for(ms(300)).unwrap()));
        say(if guard.is_valid() {
            "still valid"
        } else {
            "lost"
        });
    }
    guard.unlock().unwrap();
}
