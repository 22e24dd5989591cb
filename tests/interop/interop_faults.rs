//! Faults of one side that must not affect the other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use redlatch::{Client, Error};

use crate::fixture::{BothSides, LEASE, LONG, PATIENCE, RunLock, SLACK, report, timed};
use crate::jvm::{Jvm, Redisson};
use crate::support::{End, Fault, Proxy, eventually, ms};

/// The command timeout of our client.
const TIMEOUT: Duration = ms(1_000);

#[test]
#[ignore = "needs Java: make interop"]
fn no_increment_is_lost_under_request_faults() {
    const EACH: u32 = 150;
    let sides = BothSides::with(RunLock::together(), PATIENCE);
    let proxy = Proxy::to(sides.server.addr());
    let client = Client::builder()
        .command_timeout(TIMEOUT)
        .connect_timeout(TIMEOUT)
        .watchdog_timeout(PATIENCE)
        .open(&proxy.url())
        .unwrap();
    let java: Vec<_> = (0..2)
        .map(|_| {
            let java = &sides.java;
            java.thread().start_count("orders", java, "counter", EACH)
        })
        .collect();
    let add = |seed: usize| {
        let faults = [
            Fault::SwallowReply(End::Reset),
            Fault::DuplicateRequest,
            Fault::SwallowRequest(End::Reset),
            Fault::TruncateReply(1),
            Fault::DelayRequest(TIMEOUT + ms(100)),
            Fault::SwallowReply(End::Silent),
            Fault::DropPush,
        ];
        let mut connection = sides.server.admin();
        let lock = client.lock("orders");
        for round in 0..EACH {
            if round % 5 == 0 {
                let fault = faults[(seed + round as usize / 5) % faults.len()];
                proxy.next(1, Some(b"orders"), fault);
            }
            // Redisson waits for none of these: a request without a reply holds nothing.
            while let Err(error) = lock.lock() {
                assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
            }
            let value: Option<u64> = redis::cmd("GET")
                .arg("counter")
                .query(&mut connection)
                .unwrap();
            let () = redis::cmd("SET")
                .arg(&["counter", &(value.unwrap_or(0) + 1).to_string()])
                .query(&mut connection)
                .unwrap();
            assert!(lock.is_valid());
            if let Err(error) = lock.unlock() {
                assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| add(0));
        scope.spawn(|| add(3));
    });
    proxy.heal();
    java.iter().for_each(|counting| {
        counting.value();
    });
    let total = i64::from(4 * EACH);
    assert_eq!(sides.server.int(&["GET", "counter"]), total);
    eventually(SLACK, "nothing is left of it", || {
        sides.hash("orders").is_empty()
    });
}

#[test]
#[ignore = "needs Java: make interop"]
fn redisson_s_read_write_lock_is_left_alone() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let writer = sides.java.thread().lock("write", "books");
    let reader = sides.java.thread().lock("read", "pages");
    writer.lock();
    reader.lock();
    let books = sides.hash("books");
    let pages = sides.hash("pages");

    // Another name does not interfere.
    let rust = sides.rust.lock("orders");
    for _ in 0..20 {
        rust.lock().unwrap();
        assert!(rust.force_unlock().unwrap());
        assert!(rust.unlock().is_err_and(|error| error.is_lost()));
    }
    // The kind of a read-write lock under the same name is recognized.
    for name in ["books", "pages"] {
        let same = sides.rust.lock(name);
        assert!(matches!(same.try_lock(), Err(Error::WrongType { .. })));
        assert!(matches!(same.force_unlock(), Err(Error::WrongType { .. })));
    }
    thread::sleep(LEASE);
    assert_eq!(sides.hash("books"), books);
    assert_eq!(sides.hash("pages"), pages);
    writer.unlock();
    reader.unlock();
    assert!(sides.rust.lock("books").try_lock().unwrap());
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_read_write_lock_on_our_name_survives_our_release() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let rust = sides.rust.lock("orders");
    let writer = sides.java.thread().lock("write", "orders");
    let guard = rust.guard().unwrap();
    // It does not detect that the name is in use: each name is for one kind of lock.
    assert!(writer.try_lock(ms(0)));
    thread::sleep(LEASE);
    guard.unlock().unwrap();
    assert!(writer.is_held());
    assert!(matches!(rust.try_lock(), Err(Error::WrongType { .. })));
    writer.unlock();
    assert!(rust.try_lock().unwrap());
    rust.unlock().unwrap();
}

/// Redisson issue 7367: a repeated acquire counts twice, and the unlock releases one level.
#[test]
#[ignore = "needs Java: make interop"]
fn a_repeated_redisson_acquire_blocks_for_one_lease() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let proxy = Proxy::to(sides.server.addr());
    let redisson = Redisson::open(&Jvm::shared(), &proxy.url(), LEASE);
    let rust = sides.rust.lock("orders");
    let java = redisson.lock("orders");
    java.lock();
    java.unlock();

    // Newer generations clean up after an unlock, in a request without the holder's id.
    let rule = proxy.next(1, Some(java.field().as_bytes()), Fault::DuplicateRequest);
    java.lock();
    assert_eq!(rule.hits(), 1);
    assert_eq!(java.hold_count(), 2, "Redisson means to hold it once");
    java.unlock();
    assert_eq!(sides.hash("orders"), [(java.field(), "1".into())].into());
    let (took, got) = timed(|| rust.try_lock_for(LONG).unwrap());
    assert!(got && took < LEASE + SLACK, "{took:?}");
    rust.unlock().unwrap();
}

#[test]
#[ignore = "needs Java: make interop"]
fn lost_replies_to_redisson_block_for_one_lease() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let proxy = Proxy::to(sides.server.addr());
    // It waits far longer than its lease, because its repeated request must find our hold.
    let redisson = Redisson::open_impatient(&Jvm::shared(), &proxy.url(), LEASE, ms(5000));
    let rust = sides.rust.lock("orders");
    let java = redisson.lock("orders");
    java.lock();
    java.unlock();

    let lease = ms(1000);
    // The cleanup after the unlock does not contain the holder's id.
    let field = java.field();
    let word = Some(field.as_bytes());
    let rule = proxy.next(1, word, Fault::SwallowReply(End::Silent));
    let trying = java.start("tryLock", &["0", "1000"]);
    eventually(SLACK, "the request has arrived", || rule.hits() == 1);
    let (took, got) = timed(|| rust.try_lock_for(LONG).unwrap());
    assert!(got && took < lease + SLACK, "{took:?}");
    // Redisson's request on a new connection finds our hold.
    let again = proxy.next(usize::MAX, word, Fault::DelayRequest(ms(0)));
    proxy.cut();
    let outcome = trying.outcome();
    let told = match &outcome {
        Ok(value) => format!("returns {value}"),
        Err(exception) => format!("throws {}", exception.class),
    };
    let again = again.hits();
    report(&format!(
        "Redisson's tryLock without a reply {told}, sent again {again} times"
    ));
    assert_eq!(again > 0, outcome.is_ok());
    assert!(outcome.map_or(true, |got| got == "false"));
    assert!(rust.is_valid());
    rust.unlock().unwrap();
}
