//! Conditions whose requests and messages are lost, doubled and late, and whose waiters die: K11 and K14 of the design.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Condition, Lock};

use super::{LONG, Pair, is_woken, next, start};
use crate::invariants::{
    CONDITION_LOOK, CONDITION_SIGNAL, Class, RELEASE, SLACK, TIMEOUT, class_of, fails, quick, sha,
    teach,
};
use crate::support::child::{arg, listen, say};
use crate::support::proxy::Rule;
use crate::support::{Child, End, Fault, Proxy, RedisServer, eventually, ms, timed};

const WAITER: &str = "waiter on a condition";

const WAITING: &str = "redlatch_condition:{basket}:filled:waiting";
const DUE: &str = "redlatch_condition:{basket}:filled:due";

/// A place lasts so long without a look.
const LIFE: Duration = Duration::from_secs(10);

/// In a child: waits, and says when it was woken.
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

/// A condition behind a proxy, the same one seen without it, and the server.
struct Scene {
    pair: Pair,
    other: Pair,
    proxy: Proxy,
    server: RedisServer,
    _clients: [Client; 2],
}

impl Scene {
    fn new() -> Scene {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let clients = [proxy.url(), server.url()].map(|url| {
            let builder = quick().command_timeout(TIMEOUT * 2);
            builder.open(&url).unwrap()
        });
        Scene {
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

    /// Starts a child that waits, and has its place when this returns.
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

const LOST: [Fault; 4] = [
    Fault::SwallowReply(End::Reset),
    Fault::SwallowReply(End::Silent),
    Fault::SwallowRequest(End::Reset),
    Fault::DuplicateRequest,
];

#[test]
fn requests_that_are_lost_or_doubled_lose_no_place_and_no_signal() {
    let scene = Scene::new();
    let (sender, woken) = mpsc::channel();
    for fault in LOST {
        thread::scope(|scope| {
            // The request for the place.
            let rule = scene.next(1, CONDITION_LOOK, fault);
            start(scope, &scene.pair, 2, &sender, 1, is_woken);
            assert_eq!(rule.hits(), 1, "{fault:?}");
            assert_eq!(scene.waiting(), 1, "{fault:?}");
            // The look that hears of the signal.
            thread::sleep(ms(100));
            let rule = scene.next(1, CONDITION_LOOK, fault);
            assert!(scene.signal());
            assert_eq!(next(&woken), 1);
            assert_eq!(rule.hits(), 1, "{fault:?}");
            // The unlock of the wait.
            let rule = scene.next(1, RELEASE, fault);
            start(scope, &scene.pair, 1, &sender, 2, is_woken);
            assert_eq!(rule.hits(), 1, "{fault:?}");
            assert!(scene.signal());
            assert_eq!(next(&woken), 2);
        });
        eventually(LONG, "nothing is left", || {
            scene.server.int(&["DBSIZE"]) == 0
        });
    }
}

#[test]
fn a_signal_whose_answer_is_lost_is_given_and_says_no_more_than_it_knows() {
    let scene = Scene::new();
    let (sender, woken) = mpsc::channel();
    let (lock, condition) = &scene.pair;
    thread::scope(|scope| {
        for (number, fault) in LOST.into_iter().enumerate() {
            let number = u32::try_from(number).unwrap();
            start(scope, &scene.other, 1, &sender, number, is_woken);
            // Given back by a panic, too: the waiter needs it to end.
            let held = lock.guard().unwrap();
            let rule = scene.next(1, CONDITION_SIGNAL, fault);
            let signalled = condition.signal();
            assert_eq!(rule.hits(), 1, "{fault:?}");
            match fault {
                // Its second copy finds that nobody is left.
                Fault::SwallowReply(_) => {
                    let error = signalled.unwrap_err();
                    assert_eq!(class_of(&error), Class::Unknown, "{error}");
                    assert!(error.to_string().contains("is done"), "{error}");
                }
                _ => assert!(signalled.unwrap(), "{fault:?}"),
            }
            assert!(held.is_valid());
            held.unlock().unwrap();
            assert_eq!(next(&woken), number);
        }
        // Nobody answers at all.
        lock.lock().unwrap();
        let rule = scene.next(
            usize::MAX,
            CONDITION_SIGNAL,
            Fault::SwallowReply(End::Silent),
        );
        fails(condition.signal(), Class::Unknown);
        rule.lift();
        assert!(lock.is_valid());
        lock.unlock().unwrap();
    });
}

#[test]
fn a_wait_that_cannot_begin_leaves_the_lock_held_and_no_place() {
    let scene = Scene::new();
    let (lock, condition) = &scene.pair;
    lock.lock().unwrap();
    lock.lock().unwrap();
    let rule = scene.next(usize::MAX, CONDITION_LOOK, Fault::SwallowReply(End::Silent));
    fails(condition.wait(), Class::Unknown);
    assert!(lock.is_valid() && lock.hold_count().unwrap() == 2);
    rule.lift();
    eventually(LONG, "its place goes", || scene.waiting() == 0);
    let rule = scene.next(
        usize::MAX,
        CONDITION_LOOK,
        Fault::SwallowRequest(End::Silent),
    );
    fails(condition.wait(), Class::Unknown);
    rule.lift();
    scene.server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    fails(condition.wait(), Class::Unavailable);
    scene.server.cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    scene.server.cmd(&["RPUSH", WAITING, "1"]);
    fails(condition.wait(), Class::WrongType);
    fails(condition.signal(), Class::WrongType);
    scene.server.cmd(&["DEL", WAITING]);
    assert!(!condition.wait_for(ms(1)).unwrap());
    assert_eq!(lock.hold_count().unwrap(), 2);
    lock.unlock().unwrap();
    lock.unlock().unwrap();
}

#[test]
fn a_full_server_wakes_and_signals_all_the_same() {
    let scene = Scene::new();
    let (sender, woken) = mpsc::channel();
    thread::scope(|scope| {
        start(scope, &scene.pair, 1, &sender, 1, is_woken);
        let (lock, condition) = &scene.other;
        lock.lock().unwrap();
        scene.server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
        thread::sleep(ms(1500));
        assert!(condition.signal().unwrap());
        lock.unlock().unwrap();
        thread::sleep(ms(100));
        scene.server.cmd(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(next(&woken), 1);
    });
}

/// K14: the connection of the subscriber is cut again and again.
#[test]
fn without_messages_a_waiter_looks_by_itself() {
    let scene = Scene::new();
    let (sender, woken) = mpsc::channel();
    thread::scope(|scope| {
        let (ended, end) = mpsc::channel::<()>();
        let server = &scene.server;
        scope.spawn(move || {
            while end
                .recv_timeout(ms(100))
                .is_err_and(|it| it == mpsc::RecvTimeoutError::Timeout)
            {
                server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            }
        });
        for number in 0..3 {
            start(scope, &scene.pair, 1, &sender, number, is_woken);
            assert!(scene.signal());
            let (took, first) = timed(|| next(&woken));
            assert_eq!(first, number);
            // A look for the signal, and one for the lock.
            assert!(took < ms(2200) + SLACK, "{took:?}");
        }
        drop(ended);
    });
}

#[test]
fn data_that_is_lost_wakes_those_who_wait() {
    let scene = Scene::new();
    let (sender, woken) = mpsc::channel();
    thread::scope(|scope| {
        for number in 0..3 {
            let pair = if number == 1 {
                &scene.pair
            } else {
                &scene.other
            };
            start(scope, pair, 1, &sender, number, is_woken);
        }
        scene.server.cmd(&["FLUSHALL"]);
        let (took, mut all) = timed(|| [(); 3].map(|()| next(&woken)));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert!(took < ms(2200) + SLACK, "{took:?}");
    });
}

/// The server is away for longer than an outage may last: the wait ends without the lock, and its signal goes to another.
#[test]
fn a_signal_for_one_that_cannot_come_back_is_passed_on() {
    let scene = Scene::new();
    let (sender, woken) = mpsc::channel();
    let (waits, holds) = mpsc::channel();
    thread::scope(|scope| {
        let (lock, condition) = &scene.pair;
        let lost = scope.spawn(move || {
            lock.lock().unwrap();
            waits.send(()).unwrap();
            (condition.wait(), lock.is_valid())
        });
        holds.recv_timeout(LONG).unwrap();
        start(scope, &scene.other, 1, &sender, 1, is_woken);
        // It hears of its signal, and then of nothing any more.
        let acquire = scene.next(
            usize::MAX,
            crate::invariants::ACQUIRE,
            Fault::SwallowRequest(End::Reset),
        );
        assert!(scene.signal());
        let (ended, is_valid) = lost.join().unwrap();
        let error = ended.unwrap_err();
        assert!(!is_valid, "{error}");
        acquire.lift();
        assert_eq!(next(&woken), 1, "the other one gets it");
    });
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_waiter_that_died_is_passed_over_and_its_signal_goes_on() {
    let scene = Scene::new();
    let (sender, woken) = mpsc::channel();
    // Killed before it was signalled: the next one gets the signal at once when its place has ended.
    let mut dead = scene.child();
    dead.kill();
    thread::scope(|scope| {
        start(scope, &scene.other, 1, &sender, 1, is_woken);
        eventually(LIFE + SLACK + SLACK, "the place of the dead ends", || {
            scene.waiting() == 1
        });
        assert!(scene.signal());
        assert_eq!(next(&woken), 1);
    });
    // Killed when it was signalled, and before it looked.
    let mut dead = scene.child();
    thread::scope(|scope| {
        start(scope, &scene.other, 1, &sender, 2, is_woken);
        dead.freeze();
        assert!(scene.signal());
        let signalled = Instant::now();
        dead.kill();
        assert_eq!(next(&woken), 2, "no signal is lost");
        let took = signalled.elapsed();
        assert!(took < LIFE + ms(1200) + SLACK, "{took:?}");
    });
    assert_eq!(scene.waiting(), 0);
}

/// One has died with a signal, and others before it was passed on.
#[test]
fn a_signal_that_is_passed_over_the_dead_wakes_one() {
    let scene = Scene::new();
    let (sender, woken) = mpsc::channel();
    thread::scope(|scope| {
        for number in 1..=3 {
            start(scope, &scene.pair, 1, &sender, number, |it| {
                it.wait().unwrap()
            });
        }
        let past = "1000";
        let dead = ["c:1:1", "c:1:2", "c:1:3"];
        let places = [past, dead[1], past, dead[2]];
        let due = [past, dead[0], past, dead[1], past, dead[2]];
        // In one step, as one without an end would be taken for dead at once.
        let add = "redis.call('ZADD', KEYS[1], unpack(ARGV, 1, 4)) redis.call('ZADD', KEYS[2], unpack(ARGV, 5))";
        let words = ["EVAL", add, "2", WAITING, DUE];
        scene.server.cmd(&[&words[..], &places, &due].concat());
        assert_eq!(next(&woken), 1, "the one that has waited for longest");
        eventually(LIFE, "the dead are gone", || scene.waiting() == 2);
        let more = woken.recv_timeout(ms(2500));
        assert!(more.is_err(), "another one was woken: {more:?}");
        for number in [2, 3] {
            assert!(scene.signal());
            assert_eq!(next(&woken), number);
        }
    });
}

#[test]
#[ignore = "takes long: make test-all"]
fn waiters_that_were_stopped_for_long_wake_and_no_signal_is_lost() {
    let scene = Scene::new();
    let mut stopped = [scene.child(), scene.child()];
    let (sender, woken) = mpsc::channel();
    for child in &stopped {
        child.freeze();
    }
    thread::sleep(LIFE + ms(1500));
    assert!(!scene.signal(), "nobody alive waits");
    thread::scope(|scope| {
        start(scope, &scene.other, 1, &sender, 1, is_woken);
        assert!(scene.signal());
        assert_eq!(next(&woken), 1);
    });
    for child in &mut stopped {
        child.thaw();
        // Woken for nothing: so it is to test in a loop.
        child.expect_line("woken", LONG);
        child.tell("unlock");
        child.expect_line("unlocked", LONG);
    }
    eventually(LONG, "nothing is left", || {
        scene.server.int(&["EXISTS", WAITING, DUE, "basket"]) == 0
    });
}

#[test]
fn every_key_of_those_who_wait_ends() {
    let scene = Scene::new();
    let mut child = scene.child();
    for key in [WAITING, DUE] {
        let left = scene.server.int(&["PTTL", key]);
        assert!((90_000..=100_000).contains(&left), "{key}: {left}");
    }
    child.kill();
}

#[cfg(feature = "test-util")]
#[test]
fn a_lost_message_costs_a_second_and_a_lost_answer_wakes() {
    use redlatch::testing::Controls;

    let client = Client::in_memory();
    let other = client.another().unwrap();
    let pairs = [pair_of(&client), pair_of(&other)];
    let [pair, of_other] = &pairs;
    let (sender, woken) = mpsc::channel();
    thread::scope(|scope| {
        start(scope, pair, 1, &sender, 1, is_woken);
        // One that was given to it, and one for the unlock.
        Controls::of(&client).lose_messages(1);
        assert!(signal(of_other));
        let (took, first) = timed(|| next(&woken));
        assert_eq!(first, 1);
        assert!(took < ms(1200) + SLACK, "{took:?}");
        start(scope, pair, 1, &sender, 2, |it| {
            assert!(!it.wait_for(ms(100)).unwrap());
        });
        assert_eq!(next(&woken), 2);
        // A wait whose place is in doubt leaves none.
        let (lock, condition) = pair;
        lock.lock().unwrap();
        Controls::of(&client).lose_answers(1);
        let error = condition.wait().unwrap_err();
        assert!(error.is_ambiguous() && lock.is_valid(), "{error}");
        lock.unlock().unwrap();
        eventually(LONG, "its place goes", || !signal(of_other));
    });
}
