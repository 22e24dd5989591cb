//! Guarded writes on a real server: faults in transit, scripts of users, and fences.

use std::thread;

use redlatch::{Batch, Client, Error, Lock, Reply};

use crate::acl;
use crate::invariants::{
    Class, GUARDED, TIMEOUT, ends_within, fails, leaves_nothing, next_loss, quick, sha, teach,
};
use crate::laws::until_queued;
use crate::support::{End, Fault, Monitor, Proxy, RedisServer, Rule, elsewhere, eventually, ms};

/// A client behind a proxy.
struct Fixture {
    lock: Lock,
    proxy: Proxy,
    server: RedisServer,
}

impl Fixture {
    fn new() -> Fixture {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let client = quick().open(&proxy.url()).unwrap();
        let lock = client.lock("orders");
        lock.run(|_| ()).unwrap();
        Fixture {
            lock,
            proxy,
            server,
        }
    }

    /// Applies this fault to the next guarded write.
    fn next(&self, fault: Fault) -> Rule {
        self.proxy.next(1, Some(sha(GUARDED).as_bytes()), fault)
    }

    fn data(&self) -> Option<String> {
        self.server.text(&["GET", "data"])
    }
}

fn write(batch: &mut Batch) {
    batch.set("data", "written");
}

/// The writes executed since the monitor began.
fn writes(monitor: &Monitor) -> usize {
    monitor.lines_containing(" lua] \"SET\" \"data\"").len()
}

/// Forwards a held request, and waits until the server has received it.
fn comes_late(rule: Rule, server: &RedisServer) {
    let monitor = Monitor::start(server);
    rule.release();
    eventually(ms(5000), "the late request", || {
        !monitor.lines_containing(&sha(GUARDED)).is_empty()
    });
    // The effect of the script is reported after it.
    thread::sleep(ms(50));
    assert_eq!(writes(&monitor), 0, "it ran");
}

#[test]
fn a_write_that_arrives_after_the_unlock_does_nothing() {
    let fixture = Fixture::new();
    for is_handed_off in [false, true] {
        let guard = fixture.lock.guard().unwrap();
        let rule = fixture.next(Fault::Hold);
        let error = ends_within(TIMEOUT, || fails(guard.write(write), Class::Unknown));
        assert!(error.to_string().contains("guarded write"), "{error}");
        assert!(guard.is_valid(), "an outcome that is not known is no loss");
        if is_handed_off {
            thread::scope(|scope| {
                scope.spawn(|| {
                    fixture.lock.lock().unwrap();
                    comes_late(rule, &fixture.server);
                    fixture.lock.unlock().unwrap();
                });
                until_queued(&fixture.lock, 1);
                guard.unlock().unwrap();
            });
        } else {
            guard.unlock().unwrap();
            comes_late(rule, &fixture.server);
        }
        assert_eq!(fixture.data(), None);
    }
    leaves_nothing(&fixture.server);
}

#[test]
fn a_write_that_arrives_after_the_validity_does_nothing() {
    let fixture = Fixture::new();
    let guard = fixture.lock.with_lease_time(ms(400)).guard().unwrap();
    let rule = fixture.next(Fault::Hold);
    fails(guard.write(write), Class::Unknown);
    // The key stays, as after a renewal whose reply was lost.
    fixture.server.cmd(&["PERSIST", "orders"]);
    next_loss(&guard.lost(), ms(400));
    comes_late(rule, &fixture.server);
    assert_eq!(fixture.data(), None);
    fails(guard.unlock(), Class::Lost);
}

#[test]
fn a_write_at_the_end_of_validity_runs_or_reports_the_loss() {
    let fixture = Fixture::new();
    for _ in 0..20 {
        let guard = fixture.lock.with_lease_time(ms(40)).guard().unwrap();
        let error = (0..10_000).find_map(|_| guard.write(write).err()).unwrap();
        assert!(error.is_lost(), "{error}");
        fails(guard.unlock(), Class::Lost);
    }
}

#[test]
fn a_write_without_a_reply_is_sent_once() {
    let fixture = Fixture::new();
    for (fault, is_written) in [
        (Fault::SwallowRequest(End::Reset), false),
        (Fault::SwallowRequest(End::Silent), false),
        (Fault::SwallowReply(End::Reset), true),
        (Fault::SwallowReply(End::Silent), true),
        (Fault::TruncateReply(3), true),
    ] {
        let guard = fixture.lock.guard().unwrap();
        let monitor = Monitor::start(&fixture.server);
        let rule = fixture.next(fault);
        ends_within(TIMEOUT, || fails(guard.write(write), Class::Unknown));
        assert_eq!(rule.hits(), 1);
        guard.unlock().unwrap();
        thread::sleep(ms(50));
        assert_eq!(writes(&monitor), usize::from(is_written), "{fault:?}");
        assert_eq!(fixture.data().is_some(), is_written, "{fault:?}");
        fixture.server.cmd(&["DEL", "data"]);
    }
}

#[test]
fn a_server_without_the_script_gets_it_and_runs_it_once() {
    let fixture = Fixture::new();
    let guard = fixture.lock.guard().unwrap();
    fixture.server.cmd(&["SCRIPT", "FLUSH"]);
    for round in 1..=3 {
        let sum = guard
            .write(|batch| {
                batch.incr_by("sum", 1);
            })
            .unwrap();
        assert_eq!(sum, [Reply::Int(round)]);
    }
    guard.unlock().unwrap();
}

#[test]
fn a_server_at_maxmemory_names_the_refused_command() {
    let fixture = Fixture::new();
    let guard = fixture.lock.guard().unwrap();
    fixture.server.cmd(&["SET", "data", "1"]);
    fixture.server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = |outcome: Result<Vec<Reply>, Error>| match outcome.unwrap_err() {
        Error::CommandFailed {
            index,
            reason,
            done,
            ..
        } => {
            assert!(reason.starts_with("OOM"), "{reason}");
            (index, done)
        }
        error => panic!("{error:?}"),
    };
    assert_eq!(refused(guard.write(write)), (0, vec![]));
    let outcome = guard.write(|batch| {
        batch.get("data").set("data", "2");
    });
    assert_eq!(refused(outcome), (1, vec![Reply::Bytes(b"1".to_vec())]));
    assert_eq!(fixture.data().as_deref(), Some("1"));
    let deleted = guard
        .write(|batch| {
            batch.del("data");
        })
        .unwrap();
    assert_eq!(deleted, [Reply::Int(1)]);
    fixture.server.cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    guard.write(write).unwrap();
    guard.unlock().unwrap();
}

#[test]
fn a_missing_right_is_named_and_nothing_is_written() {
    let (server, url) = acl::least();
    let client = quick().key_prefix(acl::PREFIX).open(&url).unwrap();
    let lock = client.lock("a");
    let guard = lock.guard().unwrap();
    // No data key is permitted: the server runs nothing.
    for (keys, named) in [
        (vec!["secret"], vec!["~secret"]),
        (vec!["secret", "b"], vec![]),
    ] {
        let outcome = guard.write(|batch| {
            batch.hset("orders:data", "field", "1");
            keys.iter().for_each(|key| {
                batch.hget(key, "field");
            });
        });
        // One of the keys is permitted.
        let error = fails(outcome, Class::Permission);
        assert!(error.to_string().contains("secret"), "{error}");
        let Error::Permission { missing, .. } = error else {
            unreachable!();
        };
        let only_one = guard.write(|batch| {
            batch.hget("secret", "field");
        });
        let Error::Permission { missing: one, .. } = fails(only_one, Class::Permission) else {
            unreachable!();
        };
        assert_eq!(
            (missing, one),
            (vec![], vec!["~secret".to_owned()]),
            "{named:?}"
        );
        assert_eq!(server.int(&["EXISTS", "orders:data"]), 0, "undeclared keys");
    }
    // A forbidden command fails when it runs.
    let outcome = guard.write(|batch| {
        batch
            .hset("orders:data", "field", "1")
            .set("orders:data", "1");
    });
    let Err(Error::CommandFailed { index, done, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((index, done), (1, vec![Reply::Int(1)]));
    assert!(guard.is_valid());
    let error = fails(client.write_fenced("orders:x", 1, write), Class::Permission);
    assert!(
        error.to_string().contains("redlatch_fence:{orders:x}"),
        "{error}"
    );
    guard.unlock().unwrap();
}

#[test]
fn a_lock_key_of_another_program_is_a_loss() {
    let fixture = Fixture::new();
    let guard = fixture.lock.guard().unwrap();
    fixture.server.cmd(&["SET", "orders", "data"]);
    let error = fails(guard.write(write), Class::Lost);
    assert!(error.to_string().contains("another type"), "{error}");
    fails(guard.unlock(), Class::Lost);
    assert_eq!(fixture.data(), None);
}

#[test]
fn scripts_have_their_own_keys_and_arguments() {
    let fixture = Fixture::new();
    let client = Client::open(&fixture.server.url()).unwrap();
    let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    for lock in [fixture.lock.clone(), client.token_lock("report")] {
        let guard = lock.guard().unwrap();
        let eval = |script: &str| {
            guard
                .eval(script, &["data", "more"], &[b"a", b"\xff"])
                .unwrap()
        };
        assert_eq!(
            eval("return {#KEYS, #ARGV, KEYS[1], KEYS[2], ARGV[1], ARGV[2]}"),
            {
                let bytes = Reply::Bytes(vec![0xff]);
                Reply::List(vec![
                    Reply::Int(2),
                    Reply::Int(2),
                    text("data"),
                    text("more"),
                    text("a"),
                    bytes,
                ])
            }
        );
        assert_eq!(
            eval("return redis.call('SET', KEYS[1], ARGV[1]) -- done"),
            text("OK")
        );
        assert_eq!(eval("return redis.call('GET', KEYS[1])"), text("a"));
        assert_eq!(eval("local nothing = KEYS[1]"), Reply::Nil);
        assert_eq!(eval(""), Reply::Nil);
        assert_eq!(eval("return false"), Reply::Nil);
        assert_eq!(eval("return 3.7"), Reply::Int(3));
        assert_eq!(
            eval("return redis.pcall('HGET', KEYS[1], 'x').err and {1, {2, false}}"),
            Reply::List(vec![
                Reply::Int(1),
                Reply::List(vec![Reply::Int(2), Reply::Nil])
            ])
        );
        // Again by the hash, and under the thread's hold.
        let again = lock.eval("return redis.call('GET', KEYS[1])", &["data"], &[]);
        assert_eq!(again.unwrap(), text("a"));
        guard.unlock().unwrap();
        let behind = lock.eval("return redis.call('SET', KEYS[1], 'b')", &["data"], &[]);
        assert!(matches!(behind, Err(Error::NotHeld { .. })));
        assert_eq!(fixture.data().as_deref(), Some("a"));
    }
}

#[test]
fn a_script_that_fails_says_why() {
    let fixture = Fixture::new();
    let guard = fixture.lock.guard().unwrap();
    for (script, reason) in [
        (
            "redis.call('SET', KEYS[1], 'x') error('on purpose')",
            "on purpose",
        ),
        ("return redis.call('HGET', KEYS[1], 'field')", "WRONGTYPE"),
        ("return redis.error_reply('ERR on purpose')", "on purpose"),
        (
            "return {1, redis.error_reply('ERR on purpose')}",
            "on purpose",
        ),
        ("return redis.pcall('HGET', KEYS[1], 'field')", "WRONGTYPE"),
        ("return nothing", "nothing"),
        // A table with code in its index function.
        (
            "return setmetatable({}, {__index = function() error({err = 'LOADING on purpose'}) end})",
            "on purpose",
        ),
        (
            "return setmetatable({}, {__index = function() error('on purpose') end})",
            "on purpose",
        ),
        ("this is no Lua", "compiling"),
        // It would end the function, and run outside of it.
        ("return 1 end redis.call('SET', KEYS[1], 'y')", "compiling"),
        ("if true then return 1 end end", "compiling"),
    ] {
        let error = guard.eval(script, &["data"], &[]).unwrap_err();
        let Error::CommandFailed {
            index,
            reason: said,
            done,
            ..
        } = &error
        else {
            panic!("{script}: {error:?}");
        };
        assert_eq!((*index, done.len()), (0, 0), "{script}");
        assert!(said.contains(reason), "{script}: {said}");
        assert!(!said.contains("user_script"), "{script}: {said}");
    }
    assert_eq!(fixture.data().as_deref(), Some("x"));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

#[test]
fn a_stale_fence_writes_nothing() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let write = |fence: u64| {
        client.write_fenced("orders", fence, |batch| {
            batch.set("data", fence.to_string());
        })
    };
    let key = "redlatch_fence:{orders}";
    for fence in [0, 9, 10, 10, 1 << 60, u64::MAX] {
        assert_eq!(write(fence).unwrap(), [Reply::Bytes(b"OK".to_vec())]);
        let stale = fence.saturating_sub(1);
        if stale < fence {
            let error = write(stale).unwrap_err();
            assert!(
                matches!(&error, Error::Stale { resource, fence: own, newer, .. }
                    if &**resource == "orders" && (*own, *newer) == (stale, fence)),
                "{error:?}"
            );
            assert!(!error.is_retryable() && !error.is_ambiguous() && !error.is_lost());
            assert!(error.to_string().contains("stale"), "{error}");
        }
        assert_eq!(server.text(&["GET", "data"]), Some(fence.to_string()));
    }
    assert_eq!(server.int(&["PTTL", key]), -1);
    // A resource with braces, and a resource whose fence another program has set.
    server.cmd(&["SET", "redlatch_fence:{shop}:orders", "007"]);
    let error = client.write_fenced("{shop}:orders", 6, |_| ()).unwrap_err();
    assert!(matches!(error, Error::Stale { newer: 7, .. }), "{error:?}");
    assert_eq!(client.write_fenced("{shop}:orders", 7, |_| ()).unwrap(), []);

    server.cmd(&["SET", key, "many"]);
    let error = fails(write(1), Class::WrongType);
    assert!(error.to_string().contains("no fence"), "{error}");
    server.cmd(&["DEL", key]);
    server.cmd(&["HSET", key, "a", "b"]);
    fails(write(1), Class::WrongType);
    server.cmd(&["DEL", key]);
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    fails(write(1), Class::Unavailable);
    assert_eq!(server.int(&["EXISTS", key]), 0);
}

#[test]
fn a_late_fenced_write_is_refused_by_the_time_or_by_the_fence() {
    let server = RedisServer::start();
    teach(&server);
    let proxy = Proxy::to(server.addr());
    let client = quick().open(&proxy.url()).unwrap();
    client.write_fenced("orders", 1, write).unwrap();
    server.cmd(&["DEL", "data"]);
    let late = |fence: u64| {
        let rule = proxy.next(1, Some(sha(GUARDED).as_bytes()), Fault::Hold);
        let error = fails(client.write_fenced("orders", fence, write), Class::Unknown);
        assert!(error.to_string().contains("fenced write"), "{error}");
        rule
    };
    let rule = late(2);
    thread::sleep(ms(200));
    comes_late(rule, &server);
    let rule = late(3);
    let other = Client::open(&server.url()).unwrap();
    elsewhere(|| other.write_fenced("orders", 4, |_| ()).unwrap());
    comes_late(rule, &server);
    assert_eq!(server.text(&["GET", "data"]), None);
}

#[test]
fn an_endless_script_may_have_written() {
    let guard = Client::in_memory().lock("orders").guard().unwrap();
    let script = "redis.call('SET', KEYS[1], 'b') while true do end";
    assert!(
        guard
            .eval(script, &["data"], &[])
            .unwrap_err()
            .is_ambiguous()
    );
}
