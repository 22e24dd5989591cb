//! Each kind of lock on one server under the same faults: F1, F2, F5, F23, F62, F68 and F69. Semaphores are in
//! `semaphore::faults`, latches in `latch::faults` and conditions in `condition::faults`.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Lock};

use crate::invariants::{
    ACQUIRE, Class, FAIR_ACQUIRE, FAIR_RELEASE, FENCED_ACQUIRE, LOST, RELEASE, RW_ACQUIRE,
    RW_RELEASE, SLACK, TOKEN_ACQUIRE, TOKEN_RELEASE, fails, quick, sha, teach,
};
use crate::support::{End, Fault, Proxy, RedisServer, elsewhere, eventually, ms, timed};

struct Row {
    name: &'static str,
    of: fn(&Client) -> Lock,
    acquire: &'static str,
    release: &'static str,
}

const ROWS: [Row; 6] = [
    row("plain", |it| it.lock("a"), ACQUIRE, RELEASE),
    row(
        "token",
        |it| it.token_lock("a"),
        TOKEN_ACQUIRE,
        TOKEN_RELEASE,
    ),
    row("fenced", |it| it.fenced_lock("a"), FENCED_ACQUIRE, RELEASE),
    row("fair", |it| it.fair_lock("a"), FAIR_ACQUIRE, FAIR_RELEASE),
    row(
        "read",
        |it| it.read_write_lock("a").read(),
        RW_ACQUIRE,
        RW_RELEASE,
    ),
    row(
        "write",
        |it| it.read_write_lock("a").write(),
        RW_ACQUIRE,
        RW_RELEASE,
    ),
];

const fn row(
    name: &'static str,
    of: fn(&Client) -> Lock,
    acquire: &'static str,
    release: &'static str,
) -> Row {
    Row {
        name,
        of,
        acquire,
        release,
    }
}

/// A lock behind a proxy, the lock of another process that it excludes, and the server.
struct Fixture {
    lock: Lock,
    other: Lock,
    proxy: Proxy,
    server: RedisServer,
    _clients: [Client; 2],
}

impl Fixture {
    fn new(row: &Row) -> Fixture {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let clients = [proxy.url(), server.url()].map(|url| quick().open(&url).unwrap());
        let other = match row.name {
            "read" => clients[1].read_write_lock("a").write(),
            _ => (row.of)(&clients[1]),
        };
        Fixture {
            lock: (row.of)(&clients[0]),
            other,
            proxy,
            server,
            _clients: clients,
        }
    }

    fn next(&self, times: usize, script: &str, fault: Fault) -> crate::support::proxy::Rule {
        self.proxy.next(times, Some(sha(script).as_bytes()), fault)
    }

    /// The lock is free and has no waiters, long before a lease of half a minute ends. Only a fencing token and the
    /// note on a waiting writer stay.
    #[track_caller]
    fn all_goes(&self, what: &str) {
        eventually(ms(9000), what, || {
            let keys = crate::invariants::keys(&self.server);
            let stays = |key: &String| key.contains("token") || key.starts_with("redlatch_rw:");
            keys.iter().all(stays)
        });
    }
}

#[test]
fn a_lost_or_repeated_request_counts_once() {
    for row in &ROWS {
        let fixture = Fixture::new(row);
        for fault in LOST {
            let what = format!("{}, {fault:?}", row.name);
            let rule = fixture.next(1, row.acquire, fault);
            assert!(fixture.lock.try_lock_for(ms(20_000)).unwrap(), "{what}");
            assert_eq!(rule.hits(), 1, "{what}");
            assert!(fixture.lock.is_valid(), "{what}");
            assert_eq!(fixture.lock.hold_count().unwrap(), 1, "{what}");
            let rule = fixture.next(1, row.release, fault);
            fixture.lock.unlock().unwrap();
            assert_eq!(rule.hits(), 1, "{what}");
            fixture.all_goes(&what);
        }
    }
}

#[test]
fn a_request_without_a_reply_is_unknown_and_is_undone() {
    for row in &ROWS {
        let fixture = Fixture::new(row);
        let silent = Fault::SwallowReply(End::Silent);
        fixture.next(usize::MAX, row.acquire, silent);
        fails(fixture.lock.try_lock(), Class::Unknown);
        fixture.proxy.heal();
        fixture.all_goes(row.name);
        fixture.lock.lock().unwrap();
        fixture.next(usize::MAX, row.release, silent);
        fails(fixture.lock.unlock(), Class::Unknown);
        fixture.proxy.heal();
        fixture.all_goes(row.name);
    }
}

#[test]
fn a_late_request_of_an_ended_wait_leaves_nothing() {
    for row in &ROWS {
        let fixture = Fixture::new(row);
        for is_held in [true, false] {
            if is_held {
                fixture.other.lock().unwrap();
            }
            let late = fixture.next(1, row.acquire, Fault::Hold);
            let taken = elsewhere(|| fixture.lock.try_lock_for(ms(100)));
            assert!(!taken.is_ok_and(|taken| taken), "{}", row.name);
            assert_eq!(late.hits(), 1, "{}", row.name);
            late.release();
            thread::sleep(ms(300));
            if is_held {
                assert!(fixture.other.is_valid(), "{}", row.name);
                assert!(fixture.other.is_held_by_current_thread().unwrap());
                fixture.other.unlock().unwrap();
            }
            fixture.all_goes(row.name);
        }
    }
}

#[test]
fn a_lost_message_costs_a_waiter_a_second() {
    for row in &ROWS {
        let fixture = Fixture::new(row);
        fixture.other.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| fixture.lock.run(|_| ()).unwrap());
            thread::sleep(ms(400));
            fixture.proxy.next(1, None, Fault::DropPush);
            let (took, ()) = timed(|| {
                fixture.other.unlock().unwrap();
                waits.join().unwrap();
            });
            assert!(took < ms(1100) + SLACK, "{}: {took:?}", row.name);
        });
    }
}

#[test]
fn a_server_at_maxmemory_grants_nothing_and_keeps_holds() {
    for row in &ROWS {
        let fixture = Fixture::new(row);
        let full = |is_full: bool| {
            let memory = if is_full { "1" } else { "0" };
            fixture.server.cmd(&["CONFIG", "SET", "maxmemory", memory]);
        };
        full(true);
        fails(fixture.lock.try_lock(), Class::Unavailable);
        fixture.all_goes(row.name);
        full(false);
        fixture.other.lock().unwrap();
        full(true);
        assert!(!elsewhere(|| fixture.lock.try_lock_for(ms(10))).is_ok_and(|taken| taken));
        assert!(fixture.other.is_valid(), "{}", row.name);
        fixture.other.unlock().unwrap();
        full(false);
        assert!(fixture.lock.try_lock_for(Duration::from_secs(20)).unwrap());
        fixture.lock.unlock().unwrap();
        fixture.all_goes(row.name);
    }
}
