//! What may go wrong on one side, and must not hurt the other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error};

use crate::both_sides::{BothSides, LEASE, LONG, PATIENCE, SLACK, Turn, report, timed};
use crate::jvm::{Jvm, Redisson, is_illegal_monitor_state};
use crate::support::proxy::Rule;
use crate::support::{End, Fault, Proxy, eventually, ms, scripts};

const ACQUIRE: &str = include_str!("../../src/stores/redis/kinds/reentrant/acquire.lua");
const RELEASE: &str = include_str!("../../src/stores/redis/kinds/reentrant/release.lua");
const RELEASE_LEVEL: &str =
    include_str!("../../src/stores/redis/kinds/reentrant/release_level.lua");

/// The total time of one of our commands.
const TIMEOUT: Duration = ms(1_000);

/// An unlock tries once more by itself before its outcome is unknown.
const UNLOCK: usize = 2;

/// Ours behind a proxy, Redisson on the straight way.
struct Scene {
    client: Client,
    proxy: Proxy,
    sides: BothSides,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(LONG)
    }

    fn with(lease: Duration) -> Scene {
        let sides = BothSides::with(Turn::together(), lease);
        for script in [ACQUIRE, RELEASE, RELEASE_LEVEL] {
            let text = scripts::spliced(script);
            sides.server.cmd(&["SCRIPT", "LOAD", &text]);
        }
        let proxy = Proxy::to(sides.server.addr());
        let client = Client::builder()
            .command_timeout(TIMEOUT)
            .connect_timeout(TIMEOUT)
            .watchdog_timeout(lease)
            .open(&proxy.url())
            .unwrap();
        // A connection that is open, so that a fault meets no handshake.
        client.lock("warm").run(|_| ()).unwrap();
        Scene {
            client,
            proxy,
            sides,
        }
    }

    fn next(&self, script: &str, fault: Fault) -> Rule {
        self.each(1, script, fault)
    }

    fn each(&self, times: usize, script: &str, fault: Fault) -> Rule {
        let hash = scripts::hash(script);
        self.proxy.next(times, Some(hash.as_bytes()), fault)
    }
}

fn is_unknown<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(
        matches!(result, Err(ref error) if error.is_ambiguous()),
        "{result:?}"
    );
}

#[test]
#[ignore = "needs Java: make interop"]
fn an_acquire_whose_reply_is_lost_does_not_keep_redisson_out() {
    let scene = Scene::new();
    let java = scene.sides.java.lock("orders");
    let rule = scene.next(ACQUIRE, Fault::SwallowReply(End::Silent));
    is_unknown(scene.client.lock("orders").try_lock());
    assert_eq!(rule.hits(), 1);
    let (took, got) = timed(|| java.try_lock(LONG));
    assert!(got && took < SLACK, "{took:?} of a lease of {LONG:?}");
    // What is still sent in the background for our dead request does not touch its hold.
    thread::sleep(2 * TIMEOUT);
    assert_eq!(java.hold_count(), 1);
    assert_eq!(scene.sides.hash("orders").len(), 1);
    java.unlock();
    assert!(scene.sides.hash("orders").is_empty());
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_release_whose_reply_is_lost_does_not_free_redisson_s_hold() {
    let scene = Scene::new();
    let java = scene.sides.java.lock("orders");
    let guard = scene.client.lock("orders").guard().unwrap();
    let rule = scene.each(UNLOCK, RELEASE, Fault::SwallowReply(End::Silent));
    is_unknown(guard.unlock());
    assert_eq!(rule.hits(), UNLOCK);
    assert!(java.try_lock(ms(0)), "it was freed");
    let until = Instant::now() + 3 * TIMEOUT;
    while Instant::now() < until {
        assert_eq!(java.hold_count(), 1);
        assert!(!scene.client.lock("orders").try_lock().unwrap());
    }
    java.unlock();
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_release_that_is_lost_is_made_up_for_and_wakes_redisson() {
    let scene = Scene::new();
    let java = scene.sides.java.lock("orders");
    let guard = scene.client.lock("orders").guard().unwrap();
    let waiting = java.start("lock", &[]);
    scene
        .sides
        .until_somebody_waits("redisson_lock__channel:{orders}");
    let rule = scene.each(UNLOCK, RELEASE, Fault::SwallowRequest(End::Silent));
    let (took, ()) = timed(|| {
        is_unknown(guard.unlock());
        waiting.value();
    });
    assert_eq!(rule.hits(), UNLOCK);
    assert!(took < SLACK, "{took:?} of a lease of {LONG:?}");
    java.unlock();
}

#[test]
#[ignore = "needs Java: make interop"]
fn requests_that_arrive_late_do_nothing_to_redisson() {
    let scene = Scene::new();
    let java = scene.sides.java.lock("orders");
    let ours = scene.client.lock("orders");

    // An acquire comes when Redisson has had the lock and has given it back.
    let rule = scene.next(ACQUIRE, Fault::Hold);
    is_unknown(ours.try_lock());
    java.lock();
    java.unlock();
    rule.release();
    thread::sleep(ms(200));
    assert!(java.try_lock(ms(0)), "the late request has taken nothing");
    java.unlock();

    // A release comes when Redisson has the lock.
    let guard = ours.guard().unwrap();
    let rule = scene.each(UNLOCK, RELEASE, Fault::Hold);
    is_unknown(guard.unlock());
    assert!(java.try_lock(LONG));
    java.lock();
    rule.release();
    thread::sleep(ms(200));
    assert_eq!(java.hold_count(), 2);
    java.unlock();
    java.unlock();

    // A re-entry comes when the hold that it was for is over, and Redisson has the lock.
    let guard = ours.guard().unwrap();
    let rule = scene.next(ACQUIRE, Fault::Hold);
    is_unknown(ours.try_lock());
    guard.unlock().unwrap();
    java.lock();
    rule.release();
    thread::sleep(ms(200));
    assert_eq!(
        scene.sides.hash("orders"),
        [(java.field(), "1".into())].into()
    );
    java.unlock();
}

#[test]
#[ignore = "needs Java: make interop"]
fn doubled_requests_show_redisson_the_right_counts() {
    let scene = Scene::new();
    let java = scene.sides.java.lock("orders");
    let ours = scene.client.lock("orders");
    let counts = || -> Vec<String> { scene.sides.hash("orders").into_values().collect() };
    let mut rules = Vec::new();
    for count in ["1", "2", "3"] {
        rules.push(scene.next(ACQUIRE, Fault::DuplicateRequest));
        ours.lock().unwrap();
        assert_eq!(counts(), [count]);
        assert!(!java.try_lock(ms(0)));
    }
    for count in ["2", "1"] {
        rules.push(scene.next(RELEASE_LEVEL, Fault::DuplicateRequest));
        ours.unlock().unwrap();
        assert_eq!(counts(), [count]);
        assert!(java.is_locked());
    }
    rules.push(scene.next(RELEASE, Fault::DuplicateRequest));
    ours.unlock().unwrap();
    assert!(rules.iter().all(|rule| rule.hits() == 1));
    assert!(java.try_lock(ms(0)));
    assert_eq!(java.hold_count(), 1);
    java.unlock();
}

#[test]
#[ignore = "needs Java: make interop"]
fn no_increment_is_lost_while_our_requests_meet_faults() {
    const EACH: u32 = 150;
    let scene = Scene::with(PATIENCE);
    let java: Vec<_> = (0..2)
        .map(|_| {
            let java = &scene.sides.java;
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
        let mut connection = scene.sides.server.admin();
        let lock = scene.client.lock("orders");
        for round in 0..EACH {
            if round % 5 == 0 {
                let fault = faults[(seed + round as usize / 5) % faults.len()];
                scene.proxy.next(1, Some(b"orders"), fault);
            }
            // Redisson's side waits for none of this: what has no answer holds nothing.
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
    scene.proxy.heal();
    java.iter().for_each(|counting| {
        counting.value();
    });
    let total = i64::from(4 * EACH);
    assert_eq!(scene.sides.server.int(&["GET", "counter"]), total);
    eventually(SLACK, "nothing is left of it", || {
        scene.sides.hash("orders").is_empty()
    });
}

#[test]
#[ignore = "needs Java: make interop"]
fn our_longer_field_means_nothing_to_redisson_but_somebody() {
    let sides = BothSides::new();
    let (rust, java) = sides.locks("orders");
    let guard = rust.guard().unwrap();
    let field = guard.visitor().as_str();
    assert_eq!(field.split(':').count(), 3);
    // Redisson in another thread with the very number that stands second in our field.
    is_illegal_monitor_state(&java.try_unlock());
    assert!(guard.is_valid());
    assert_eq!(
        sides.hash("orders"),
        [(field.to_owned(), "1".into())].into()
    );
    assert!(!java.is_held());
    assert!(java.force_unlock());
    java.lock();
    assert!(guard.unlock().is_err_and(|error| error.is_lost()));
    assert_eq!(java.hold_count(), 1);
    java.unlock();
}

#[test]
#[ignore = "needs Java: make interop"]
fn redisson_s_read_write_lock_is_left_alone() {
    let sides = BothSides::with(Turn::together(), LEASE);
    let writer = sides.java.thread().lock("write", "books");
    let reader = sides.java.thread().lock("read", "pages");
    writer.lock();
    reader.lock();
    let books = sides.hash("books");
    let pages = sides.hash("pages");

    // On other names it does not matter what we do.
    let rust = sides.rust.lock("orders");
    for _ in 0..20 {
        rust.lock().unwrap();
        assert!(rust.force_unlock().unwrap());
        assert!(rust.unlock().is_err_and(|error| error.is_lost()));
    }
    // On its own it is seen for what it is.
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
    let sides = BothSides::with(Turn::together(), LEASE);
    let rust = sides.rust.lock("orders");
    let writer = sides.java.thread().lock("write", "orders");
    let guard = rust.guard().unwrap();
    // It does not see that the name is in use: one name is for one kind of lock.
    assert!(writer.try_lock(ms(0)));
    thread::sleep(LEASE);
    guard.unlock().unwrap();
    assert!(writer.is_held());
    assert!(matches!(rust.try_lock(), Err(Error::WrongType { .. })));
    writer.unlock();
    assert!(rust.try_lock().unwrap());
    rust.unlock().unwrap();
}

/// Its issue 7367: an acquire that is sent twice counts twice, and the unlock takes back one.
#[test]
#[ignore = "needs Java: make interop"]
fn redisson_s_doubled_acquire_holds_us_up_for_one_lease() {
    let sides = BothSides::with(Turn::together(), LEASE);
    let proxy = Proxy::to(sides.server.addr());
    let redisson = Redisson::open(&Jvm::shared(), &proxy.url(), LEASE);
    let rust = sides.rust.lock("orders");
    let java = redisson.lock("orders");
    java.lock();
    java.unlock();

    // Newer ones clear up behind an unlock, without a word of the holder, when it has returned.
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
fn redisson_s_lost_replies_hold_us_up_for_one_lease() {
    let sides = BothSides::with(Turn::together(), LEASE);
    let proxy = Proxy::to(sides.server.addr());
    // It waits far longer than its lease, for what it sends again must find that we hold the lock.
    let redisson = Redisson::open_impatient(&Jvm::shared(), &proxy.url(), LEASE, ms(5000));
    let rust = sides.rust.lock("orders");
    let java = redisson.lock("orders");
    java.lock();
    java.unlock();

    let lease = ms(1000);
    // What clears up behind the unlock has no word of the holder.
    let field = java.field();
    let word = Some(field.as_bytes());
    let rule = proxy.next(1, word, Fault::SwallowReply(End::Silent));
    let trying = java.start("tryLock", &["0", "1000"]);
    eventually(SLACK, "the request has arrived", || rule.hits() == 1);
    let (took, got) = timed(|| rust.try_lock_for(LONG).unwrap());
    assert!(got && took < lease + SLACK, "{took:?}");
    // What Redisson sends on a new connection finds that we hold it.
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
