//! The queue on the server: absent waiters, lost keys, and timeouts.

use std::thread;
use std::time::Duration;

use redis::PubSub;
use redlatch::{Client, Lock};

use crate::invariants::{SLACK, quick, teach};
use crate::support::{RedisServer, elsewhere, eventually, ms, timed};

pub(super) const QUEUE: &str = "redisson_lock_queue:{tickets}";
pub(super) const TIMES: &str = "redisson_lock_timeout:{tickets}";

/// A server, and its lock in several processes.
pub(super) struct Fixture {
    pub(super) server: RedisServer,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        let server = RedisServer::start();
        teach(&server);
        Fixture { server }
    }

    pub(super) fn process(&self) -> (Client, Lock) {
        let client = quick().open(&self.server.url()).unwrap();
        let lock = client.fair_lock("tickets");
        (client, lock)
    }

    pub(super) fn waiting(&self) -> Vec<String> {
        redis::from_redis_value(self.server.cmd(&["LRANGE", QUEUE, "0", "-1"])).unwrap()
    }

    pub(super) fn now(&self) -> i64 {
        let now: (i64, i64) = redis::from_redis_value(self.server.cmd(&["TIME"])).unwrap();
        now.0 * 1000 + now.1 / 1000
    }

    /// Adds a queue entry whose waiter never acquires.
    pub(super) fn queue(&self, waiter: &str) {
        let place = i64::try_from(self.waiting().len()).unwrap() + 1;
        let ends = (self.now() + 300_000 * place + 30_000).to_string();
        self.server.cmd(&["ZADD", TIMES, &ends, waiter]);
        self.server.cmd(&["RPUSH", QUEUE, waiter]);
    }

    /// The timeouts of the waiters from now on, in queue order.
    pub(super) fn times(&self) -> Vec<i64> {
        let now = self.now();
        let waiting = self.waiting();
        let of = |waiter: &String| self.server.text(&["ZSCORE", TIMES, waiter]);
        let times = waiting.iter().filter_map(of);
        times
            .map(|it| it.parse::<f64>().unwrap() as i64 - now)
            .collect()
    }

    #[track_caller]
    pub(super) fn all_goes(&self) {
        eventually(ms(9000), "nothing is left", || {
            self.server.int(&["DBSIZE"]) == 0
        });
    }
}

#[test]
fn a_dead_first_waiter_costs_1_5_s() {
    let fixture = Fixture::new();
    let (_client, lock) = fixture.process();
    for dead in ["dead:1:1", "0b6f7a52-0000-4000-8000-000000000002:41"] {
        for waits in [1, 3] {
            fixture.queue(dead);
            let (took, ()) = timed(|| {
                thread::scope(|scope| {
                    for _ in 0..waits {
                        scope.spawn(|| lock.run(|_| ()).unwrap());
                    }
                });
            });
            assert!(took >= ms(1400), "{took:?}: it may be about to come");
            assert!(took < ms(2700) + SLACK, "{took:?}");
            fixture.all_goes();
        }
    }
}

#[test]
fn try_lock_skips_dead_waiters() {
    let fixture = Fixture::new();
    let (_client, lock) = fixture.process();
    fixture.queue("dead:1:1");
    let (took, ()) = timed(|| {
        eventually(ms(10_000), "it is taken", || {
            thread::sleep(ms(50));
            lock.try_lock().unwrap()
        });
    });
    assert!(took >= ms(1400) && took < ms(1700) + SLACK, "{took:?}");
    lock.unlock().unwrap();
    fixture.all_goes();
}

/// Subscribes to the channel of a waiter, and reads no messages.
fn listen<'c>(connection: &'c mut redis::Connection, waiter: &str) -> PubSub<'c> {
    let mut listener = connection.as_pubsub();
    let channel = format!("redisson_lock__channel:{{tickets}}:{waiter}");
    listener.subscribe(channel).unwrap();
    listener
}

#[test]
fn a_silent_first_waiter_costs_10_s_unless_it_is_redisson() {
    let fixture = Fixture::new();
    let (_client, lock) = fixture.process();
    let [theirs, ours] = ["0b6f7a52-0000-4000-8000-000000000002:41", "silent:1:1"];
    let mut connections = [(); 2].map(|()| fixture.server.admin());
    let [first, second] = &mut connections;
    let (_theirs, _ours) = (listen(first, theirs), listen(second, ours));
    fixture.queue(ours);
    let (took, ()) = timed(|| lock.run(|_| ()).unwrap());
    assert!(took >= ms(9900) && took < ms(11_200) + SLACK, "{took:?}");
    fixture.queue(theirs);
    assert!(!elsewhere(|| lock.try_lock_for(ms(12_000)).unwrap()));
    eventually(SLACK, "it has left", || fixture.waiting() == [theirs]);
}

#[test]
fn a_pruned_waiter_is_first_again() {
    let fixture = Fixture::new();
    let [(_one, held), (_two, first), (_three, second)] = [(); 3].map(|()| fixture.process());
    held.lock().unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (number, lock) in [&first, &second].into_iter().enumerate() {
            let order = &order;
            scope.spawn(move || lock.run(|_| order.lock().unwrap().push(number)).unwrap());
            eventually(SLACK, "it waits", || fixture.waiting().len() == number + 1);
        }
        // Like Redisson with a clock that runs ahead.
        let waiting = fixture.waiting();
        fixture.server.cmd(&["LPOP", QUEUE]);
        fixture.server.cmd(&["ZREM", TIMES, &waiting[0]]);
        eventually(ms(1100) + SLACK, "it comes back", || {
            fixture.waiting() == waiting
        });
        held.unlock().unwrap();
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1]);
    fixture.all_goes();
}

#[test]
fn the_queue_survives_a_server_without_its_data() {
    let fixture = Fixture::new();
    let (_client, held) = fixture.process();
    held.lock().unwrap();
    let (_other, lock) = fixture.process();
    let (took, ()) = timed(|| {
        thread::scope(|scope| {
            for number in 0..5 {
                scope.spawn(|| lock.run(|_| thread::sleep(ms(20))).unwrap());
                eventually(SLACK, "it waits", || fixture.waiting().len() == number + 1);
            }
            fixture.server.cmd(&["FLUSHALL"]);
        });
    });
    assert!(took < ms(3500) + SLACK * 2, "{took:?}");
    assert!(held.unlock().unwrap_err().is_lost());
    fixture.all_goes();
}

#[test]
fn scores_stay_within_the_timeout_of_each_entry() {
    const PATIENCE: i64 = 60_000;
    let fixture = Fixture::new();
    let open = || {
        let patience = Duration::from_millis(PATIENCE.unsigned_abs());
        let builder = quick().fair_lock_wait_timeout(patience);
        let client = builder.open(&fixture.server.url()).unwrap();
        (client.fair_lock("tickets"), client)
    };
    let processes = [(); 2].map(|()| open());
    let held = &processes[0].0;
    let lease = 30_000;
    held.lock().unwrap();
    let are_right = |count: usize| {
        let times = fixture.times();
        let is_right = |(place, left): (i64, &i64)| {
            // It counts as alive well beyond the next query, but not beyond all others.
            let least = PATIENCE / 2 - 4000;
            let places = if place > 2 {
                times.len() as i64 + 1
            } else {
                place
            };
            let most = PATIENCE * places + lease + 1000;
            (least..=most).contains(left)
        };
        times.len() == count && (1..).zip(&times).all(is_right)
    };
    thread::scope(|scope| {
        for number in 0..6 {
            let lock = &processes[number % 2].0;
            // The third and the fifth give up.
            scope.spawn(move || {
                let wait = if [2, 4].contains(&number) {
                    ms(1500)
                } else {
                    ms(60_000)
                };
                if lock.try_lock_for(wait).unwrap() {
                    thread::sleep(ms(300));
                    lock.unlock().unwrap();
                }
            });
            eventually(SLACK, "it waits", || fixture.waiting().len() == number + 1);
            assert!(are_right(number + 1), "{:?}", fixture.times());
        }
        eventually(ms(1500) + SLACK, "two leave", || {
            fixture.waiting().len() == 4
        });
        eventually(SLACK, "they are counted", || are_right(4));
        held.unlock().unwrap();
        for left in [3, 2, 1] {
            eventually(SLACK, "one is in", || fixture.waiting().len() == left);
            // The next query counts the entries.
            eventually(SLACK, "they are counted", || {
                are_right(left) || fixture.waiting().len() < left
            });
        }
    });
    fixture.all_goes();
}

#[test]
fn try_lock_leaves_no_queue_entry() {
    let fixture = Fixture::new();
    let [(_one, held), (_two, lock)] = [(); 2].map(|()| fixture.process());
    held.lock().unwrap();
    assert!(!lock.try_lock().unwrap());
    assert!(fixture.waiting().is_empty());
    // A wait that ends leaves no entry.
    let (took, taken) = timed(|| lock.try_lock_for(ms(500)).unwrap());
    assert!(
        !taken && took >= ms(500) && took < ms(800) + SLACK,
        "{took:?}"
    );
    eventually(SLACK, "it has left", || fixture.waiting().is_empty());
    assert_eq!(fixture.server.int(&["EXISTS", TIMES]), 0);
    held.unlock().unwrap();
    assert_eq!(fixture.server.int(&["DBSIZE"]), 0);
}
