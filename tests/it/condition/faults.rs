//! Conditions with lost, repeated and late requests and messages, and with dead waiters.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Condition, Lock};

use super::{LONG, Pair, is_woken, next, start};
use crate::invariants::{
    CONDITION_LOOK, Class, LOST, RELEASE, SLACK, TIMEOUT, fails, quick, sha, teach,
};
use crate::support::child::{arg, listen, say};
use crate::support::proxy::Rule;
use crate::support::{Child, End, Fault, Proxy, RedisServer, eventually, ms, timed};

const WAITER: &str = "waiter on a condition";

const WAITING: &str = "redlatch_condition:{basket}:filled:waiting";
const DUE: &str = "redlatch_condition:{basket}:filled:due";

/// The life of a queue entry whose waiter sends no query.
const LIFE: Duration = Duration::from_secs(10);

/// In a child: waits, and reports its wake-up.
pub(crate) fn play(role: &str) -> bool {
    if role != WAITER {
        return false;
    }
    let client = Client::open(&arg("URL")).unwrap();
    let (lock, condition) = pair_of(&client);
    lock.lock().unwrap();
    say("holds");
    condition.wait().unwrap();
    say("woken");
    listen();
    lock.unlock().unwrap();
    say("unlocked");
    true
}

fn pair_of(client: &Client) -> Pair {
    let lock = client.lock("basket");
    let condition = lock.condition("filled");
    (lock, condition)
}

/// A condition behind a proxy, the same condition without the proxy, and the server.
struct Fixture {
    pair: Pair,
    other: Pair,
    proxy: Proxy,
    server: RedisServer,
    _clients: [Client; 2],
}

impl Fixture {
    fn new() -> Fixture {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let clients = [proxy.url(), server.url()].map(|url| {
            let builder = quick().command_timeout(TIMEOUT * 2);
            builder.open(&url).unwrap()
        });
        Fixture {
            pair: pair_of(&clients[0]),
            other: pair_of(&clients[1]),
            proxy,
            server,
            _clients: clients,
        }
    }

    fn next(&self, times: usize, script: &str, fault: Fault) -> Rule {
        self.proxy.next(times, Some(sha(script).as_bytes()), fault)
    }

    /// Starts a child that waits. Its queue entry exists when this returns.
    fn child(&self) -> Child {
        let before = self.waiting();
        let child = Child::spawn(WAITER, &[("URL", &self.server.url())]);
        child.expect_line("holds", LONG);
        eventually(LONG, "it has its place, and gave the lock back", || {
            self.waiting() > before && self.server.int(&["EXISTS", "basket"]) == 0
        });
        child
    }

    fn waiting(&self) -> i64 {
        self.server.int(&["ZCARD", WAITING])
    }

    fn signal(&self) -> bool {
        signal(&self.other)
    }
}

fn signal((lock, condition): &(Lock, Condition)) -> bool {
    lock.lock().unwrap();
    let was_one = condition.signal();
    lock.unlock().unwrap();
    was_one.unwrap()
}

#[test]
fn lost_or_repeated_requests_lose_no_entry_and_no_signal() {
    let fixture = Fixture::new();
    let (sender, woken) = mpsc::channel();
    for fault in LOST {
        thread::scope(|scope| {
            // The request that adds the queue entry.
            let rule = fixture.next(1, CONDITION_LOOK, fault);
            start(scope, &fixture.pair, 2, &sender, 1, is_woken);
            assert_eq!(rule.hits(), 1, "{fault:?}");
            assert_eq!(fixture.waiting(), 1, "{fault:?}");
            // The query that receives the signal.
            thread::sleep(ms(100));
            let rule = fixture.next(1, CONDITION_LOOK, fault);
            assert!(fixture.signal());
            assert_eq!(next(&woken), 1);
            assert_eq!(rule.hits(), 1, "{fault:?}");
            // The unlock of the wait.
            let rule = fixture.next(1, RELEASE, fault);
            start(scope, &fixture.pair, 1, &sender, 2, is_woken);
            assert_eq!(rule.hits(), 1, "{fault:?}");
            assert!(fixture.signal());
            assert_eq!(next(&woken), 2);
        });
        eventually(LONG, "nothing is left", || {
            fixture.server.int(&["DBSIZE"]) == 0
        });
    }
}

#[test]
fn a_failed_wait_keeps_the_lock_and_leaves_no_queue_entry() {
    let fixture = Fixture::new();
    let (lock, condition) = &fixture.pair;
    lock.lock().unwrap();
    lock.lock().unwrap();
    let rule = fixture.next(usize::MAX, CONDITION_LOOK, Fault::SwallowReply(End::Silent));
    fails(condition.wait(), Class::Unknown);
    assert!(lock.is_valid() && lock.hold_count().unwrap() == 2);
    rule.lift();
    eventually(LONG, "its place goes", || fixture.waiting() == 0);
    let rule = fixture.next(
        usize::MAX,
        CONDITION_LOOK,
        Fault::SwallowRequest(End::Silent),
    );
    fails(condition.wait(), Class::Unknown);
    rule.lift();
    fixture.server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    fails(condition.wait(), Class::Unavailable);
    fixture.server.cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    fixture.server.cmd(&["RPUSH", WAITING, "1"]);
    fails(condition.wait(), Class::WrongType);
    fails(condition.signal(), Class::WrongType);
    fixture.server.cmd(&["DEL", WAITING]);
    assert!(!condition.wait_for(ms(1)).unwrap());
    assert_eq!(lock.hold_count().unwrap(), 2);
    lock.unlock().unwrap();
    lock.unlock().unwrap();
}

#[test]
#[ignore = "takes long: make test-all"]
fn the_signal_of_a_dead_waiter_goes_to_the_next() {
    let fixture = Fixture::new();
    let (sender, woken) = mpsc::channel();
    // Killed before it was signalled: the next waiter gets the signal as soon as the dead entry has ended.
    let mut dead = fixture.child();
    dead.kill();
    thread::scope(|scope| {
        start(scope, &fixture.other, 1, &sender, 1, is_woken);
        eventually(LIFE + SLACK + SLACK, "the place of the dead ends", || {
            fixture.waiting() == 1
        });
        assert!(fixture.signal());
        assert_eq!(next(&woken), 1);
    });
    // Killed after it was signalled, and before its next query.
    let mut dead = fixture.child();
    thread::scope(|scope| {
        start(scope, &fixture.other, 1, &sender, 2, is_woken);
        dead.freeze();
        assert!(fixture.signal());
        let signalled = Instant::now();
        dead.kill();
        assert_eq!(next(&woken), 2, "no signal is lost");
        let took = signalled.elapsed();
        assert!(took < LIFE + ms(1200) + SLACK, "{took:?}");
    });
    assert_eq!(fixture.waiting(), 0);
}

#[test]
fn every_key_of_a_waiter_has_a_ttl() {
    let fixture = Fixture::new();
    let mut child = fixture.child();
    for key in [WAITING, DUE] {
        let left = fixture.server.int(&["PTTL", key]);
        assert!((90_000..=100_000).contains(&left), "{key}: {left}");
    }
    child.kill();
}

#[cfg(feature = "test-util")]
#[test]
fn a_lost_message_costs_a_second_and_a_lost_reply_wakes() {
    use redlatch::testing::Controls;

    let client = Client::in_memory();
    let other = client.another().unwrap();
    let pairs = [pair_of(&client), pair_of(&other)];
    let [pair, of_other] = &pairs;
    let (sender, woken) = mpsc::channel();
    thread::scope(|scope| {
        start(scope, pair, 1, &sender, 1, is_woken);
        // One message of the signal, one of the unlock.
        Controls::of(&client).lose_messages(1);
        assert!(signal(of_other));
        let (took, first) = timed(|| next(&woken));
        assert_eq!(first, 1);
        assert!(took < ms(1200) + SLACK, "{took:?}");
        start(scope, pair, 1, &sender, 2, |it| {
            assert!(!it.wait_for(ms(100)).unwrap());
        });
        assert_eq!(next(&woken), 2);
        // A wait whose queue entry is in doubt leaves no entry.
        let (lock, condition) = pair;
        lock.lock().unwrap();
        Controls::of(&client).lose_answers(1);
        let error = condition.wait().unwrap_err();
        assert!(error.is_ambiguous() && lock.is_valid(), "{error}");
        lock.unlock().unwrap();
        eventually(LONG, "its place goes", || !signal(of_other));
    });
}
