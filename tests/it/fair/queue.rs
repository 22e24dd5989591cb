//! The queue on the server: those who wait there and do not come, keys that are lost, and times.

use std::thread;
use std::time::Duration;

use redis::PubSub;
use redlatch::{Client, Lock};

use super::WAKE_UP;
use crate::invariants::{SLACK, quick, teach};
use crate::laws::until_queued;
use crate::support::{RedisServer, elsewhere, eventually, ms, timed};

pub(super) const QUEUE: &str = "redisson_lock_queue:{tickets}";
pub(super) const TIMES: &str = "redisson_lock_timeout:{tickets}";

/// A server, and its lock as processes see it.
pub(super) struct Scene {
    pub(super) server: RedisServer,
}

impl Scene {
    pub(super) fn new() -> Scene {
        let server = RedisServer::start();
        teach(&server);
        Scene { server }
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

    /// Has somebody wait who does not come.
    pub(super) fn queue(&self, waiter: &str) {
        let place = i64::try_from(self.waiting().len()).unwrap() + 1;
        let ends = (self.now() + 300_000 * place + 30_000).to_string();
        self.server.cmd(&["ZADD", TIMES, &ends, waiter]);
        self.server.cmd(&["RPUSH", QUEUE, waiter]);
    }

    /// The times of those who wait, from now on, in their order.
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
fn a_dead_head_costs_1_5_s() {
    let scene = Scene::new();
    let (_client, lock) = scene.process();
    for dead in ["dead:1:1", "0b6f7a52-0000-4000-8000-000000000002:41"] {
        for waits in [1, 3] {
            scene.queue(dead);
            let (took, ()) = timed(|| {
                thread::scope(|scope| {
                    for _ in 0..waits {
                        scope.spawn(|| lock.run(|_| ()).unwrap());
                    }
                });
            });
            assert!(took >= ms(1400), "{took:?}: it may be about to come");
            assert!(took < ms(2700) + SLACK, "{took:?}");
            scene.all_goes();
        }
    }
}

#[test]
fn a_dead_process_costs_1_5_s_however_many_threads_it_has() {
    let scene = Scene::new();
    let (_client, lock) = scene.process();
    for threads in [20, 100] {
        (0..threads).for_each(|number| scene.queue(&format!("dead:{number}:{number}")));
        let (took, ()) = timed(|| lock.run(|_| ()).unwrap());
        assert!(took >= ms(1400), "{took:?}: they may come");
        assert!(took < ms(1800) + SLACK, "{took:?} of {threads}");
        scene.all_goes();
    }
}

#[test]
fn one_behind_many_dead_hears_of_an_unlock() {
    let scene = Scene::new();
    let (_client, held) = scene.process();
    held.lock().unwrap();
    (0..20).for_each(|number| scene.queue(&format!("dead:{number}:{number}")));
    let mut connection = scene.server.admin();
    let mut told = listen(&mut connection, "alive:1:1");
    told.set_read_timeout(Some(SLACK * 4)).unwrap();
    scene.queue("alive:1:1");
    held.unlock().unwrap();
    told.get_message().expect("a message");
}

#[test]
fn a_try_passes_the_dead() {
    let scene = Scene::new();
    let (_client, lock) = scene.process();
    scene.queue("dead:1:1");
    let (took, ()) = timed(|| {
        eventually(ms(10_000), "it is taken", || {
            thread::sleep(ms(50));
            lock.try_lock().unwrap()
        });
    });
    assert!(took >= ms(1400) && took < ms(1700) + SLACK, "{took:?}");
    lock.unlock().unwrap();
    scene.all_goes();
}

#[test]
fn one_that_has_just_queued_is_not_thrown_out() {
    let scene = Scene::new();
    let (_client, lock) = scene.process();
    for new in ["0b6f7a52-0000-4000-8000-000000000002:41", "new:1:1"] {
        scene.queue(new);
        // It looks several times.
        for _ in 0..5 {
            assert!(!lock.try_lock().unwrap());
            thread::sleep(ms(50));
        }
        assert_eq!(scene.waiting(), [new]);
        scene.server.cmd(&["DEL", QUEUE, TIMES]);
    }
}

#[test]
fn a_silence_of_an_earlier_wait_does_not_count() {
    let scene = Scene::new();
    let (_client, lock) = scene.process();
    let theirs = "0b6f7a52-0000-4000-8000-000000000002:41";
    scene.queue(theirs);
    assert!(!lock.try_lock().unwrap());
    thread::sleep(ms(1600));
    // It comes in, gives the lock back and waits once more, while nobody looks.
    scene.server.cmd(&["DEL", QUEUE, TIMES]);
    scene.queue(theirs);
    let (took, ()) = timed(|| {
        eventually(ms(10_000), "it is taken", || {
            thread::sleep(ms(50));
            lock.try_lock().unwrap()
        });
    });
    assert!(took >= ms(1400), "{took:?}: it may be about to come");
    assert!(took < ms(1700) + SLACK, "{took:?}");
    lock.unlock().unwrap();
}

#[test]
fn looks_of_a_clock_that_was_set_back_block_nobody() {
    let scene = Scene::new();
    let (_client, lock) = scene.process();
    for dead in ["dead:1:1", "0b6f7a52-0000-4000-8000-000000000002:41"] {
        // Behind now, as far as is known, by some seconds and by all that can be noted.
        for ahead in [5, 60, 200] {
            let now = scene.now();
            let looked = ((now / 100 + ahead * 10) % 2047 + 1) as f64 / 2048.0;
            let ends = (now + 300_000) as f64 + looked;
            scene.server.cmd(&["ZADD", TIMES, &ends.to_string(), dead]);
            scene.server.cmd(&["RPUSH", QUEUE, dead]);
            let (took, ()) = timed(|| lock.run(|_| ()).unwrap());
            assert!(took < ms(2700) + SLACK, "{took:?} behind {dead}");
            scene.all_goes();
        }
    }
}

/// Listens to the channel of a waiter, and reads nothing.
fn listen<'c>(connection: &'c mut redis::Connection, waiter: &str) -> PubSub<'c> {
    let mut listener = connection.as_pubsub();
    let channel = format!("redisson_lock__channel:{{tickets}}:{waiter}");
    listener.subscribe(channel).unwrap();
    listener
}

#[test]
fn one_that_listens_and_is_silent_costs_10_s_unless_it_is_redissons() {
    let scene = Scene::new();
    let (_client, lock) = scene.process();
    let [theirs, ours] = ["0b6f7a52-0000-4000-8000-000000000002:41", "silent:1:1"];
    let mut connections = [(); 2].map(|()| scene.server.admin());
    let [first, second] = &mut connections;
    let (_theirs, _ours) = (listen(first, theirs), listen(second, ours));
    scene.queue(ours);
    let (took, ()) = timed(|| lock.run(|_| ()).unwrap());
    assert!(took >= ms(9900) && took < ms(11_200) + SLACK, "{took:?}");
    scene.queue(theirs);
    assert!(!elsewhere(|| lock.try_lock_for(ms(12_000)).unwrap()));
    eventually(SLACK, "it has left", || scene.waiting() == [theirs]);
}

#[test]
fn one_that_only_polls_keeps_its_place() {
    let scene = Scene::new();
    let [(_one, held), (_two, polls), (_three, listens)] = [(); 3].map(|()| scene.process());
    let polls = polls.with_backoff(ms(900), ms(900));
    held.lock().unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (number, lock) in [&polls, &listens].into_iter().enumerate() {
            let order = &order;
            scope.spawn(move || lock.run(|_| order.lock().unwrap().push(number)).unwrap());
            eventually(SLACK, "it waits", || scene.waiting().len() == number + 1);
        }
        thread::sleep(ms(1000));
        held.unlock().unwrap();
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1]);
    scene.all_goes();
}

#[test]
fn a_pruned_waiter_is_first_again() {
    let scene = Scene::new();
    let [(_one, held), (_two, first), (_three, second)] = [(); 3].map(|()| scene.process());
    held.lock().unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (number, lock) in [&first, &second].into_iter().enumerate() {
            let order = &order;
            scope.spawn(move || lock.run(|_| order.lock().unwrap().push(number)).unwrap());
            eventually(SLACK, "it waits", || scene.waiting().len() == number + 1);
        }
        // As Redisson does whose clock is ahead.
        let waiting = scene.waiting();
        scene.server.cmd(&["LPOP", QUEUE]);
        scene.server.cmd(&["ZREM", TIMES, &waiting[0]]);
        eventually(ms(1100) + SLACK, "it comes back", || {
            scene.waiting() == waiting
        });
        held.unlock().unwrap();
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1]);
    scene.all_goes();
}

#[test]
fn lost_keys_of_the_queue_lose_nobody_and_let_newcomers_pass_nobody() {
    let scene = Scene::new();
    let processes = [(); 3].map(|()| scene.process());
    for lost in [&[QUEUE][..], &[TIMES], &[QUEUE, TIMES]] {
        let (_, held) = &processes[0];
        held.lock().unwrap();
        let order = std::sync::Mutex::new(Vec::new());
        thread::scope(|scope| {
            let order = &order;
            let waits = |number: usize| {
                let (_, lock) = &processes[number % 3];
                scope.spawn(move || lock.run(|_| order.lock().unwrap().push(number)).unwrap());
            };
            for number in 0..5 {
                waits(number);
                eventually(SLACK, "it waits", || scene.waiting().len() == number + 1);
            }
            lost.iter()
                .for_each(|key| drop(scene.server.cmd(&["DEL", key])));
            eventually(ms(3500) + SLACK, "they come back", || {
                let mut waiting = scene.waiting();
                waiting.sort();
                waiting.dedup();
                waiting.len() == 5 && scene.server.int(&["ZCARD", TIMES]) == 5
            });
            assert_eq!(scene.waiting().len(), 5, "each has one place");
            waits(5);
            eventually(SLACK, "it waits", || scene.waiting().len() == 6);
            held.unlock().unwrap();
        });
        let mut order = order.into_inner().unwrap();
        assert_eq!(order.last(), Some(&5), "{lost:?}: {order:?}");
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3, 4, 5], "{lost:?}");
        scene.all_goes();
    }
}

#[test]
fn the_queue_survives_a_server_without_its_data() {
    let scene = Scene::new();
    let (_client, held) = scene.process();
    held.lock().unwrap();
    let (_other, lock) = scene.process();
    let (took, ()) = timed(|| {
        thread::scope(|scope| {
            for number in 0..5 {
                scope.spawn(|| lock.run(|_| thread::sleep(ms(20))).unwrap());
                eventually(SLACK, "it waits", || scene.waiting().len() == number + 1);
            }
            scene.server.cmd(&["FLUSHALL"]);
        });
    });
    assert!(took < ms(3500) + SLACK * 2, "{took:?}");
    assert!(held.unlock().unwrap_err().is_lost());
    scene.all_goes();
}

#[test]
fn times_that_are_missing_over_or_far_ahead_block_nobody() {
    let scene = Scene::new();
    let processes = [(); 2].map(|()| scene.process());
    for ends in [None, Some(-5000), Some(24 * 60 * 60 * 1000)] {
        let (_, held) = &processes[0];
        held.lock().unwrap();
        let (took, ()) = timed(|| {
            thread::scope(|scope| {
                for number in 0..4 {
                    let (_, lock) = &processes[number % 2];
                    scope.spawn(|| lock.run(|_| ()).unwrap());
                    eventually(SLACK, "it waits", || scene.waiting().len() == number + 1);
                }
                for waiter in scene.waiting() {
                    match ends {
                        Some(left) => {
                            let ends = (scene.now() + left).to_string();
                            scene.server.cmd(&["ZADD", TIMES, &ends, &waiter]);
                        }
                        None => drop(scene.server.cmd(&["ZREM", TIMES, &waiter])),
                    }
                }
                held.unlock().unwrap();
            });
        });
        assert!(took < ms(3500) + SLACK, "{ends:?}: {took:?}");
        scene.all_goes();
    }
}

#[test]
fn scores_stay_within_the_patience_of_each_place() {
    const PATIENCE: i64 = 60_000;
    let scene = Scene::new();
    let open = || {
        let patience = Duration::from_millis(PATIENCE.unsigned_abs());
        let builder = quick().fair_lock_wait_timeout(patience);
        let client = builder.open(&scene.server.url()).unwrap();
        (client.fair_lock("tickets"), client)
    };
    let processes = [(); 2].map(|()| open());
    let held = &processes[0].0;
    let lease = 30_000;
    held.lock().unwrap();
    let are_right = |count: usize| {
        let times = scene.times();
        let is_right = |(place, left): (i64, &i64)| {
            // So that it counts as alive long behind the next look, and no longer than behind all others.
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
            eventually(SLACK, "it waits", || scene.waiting().len() == number + 1);
            assert!(are_right(number + 1), "{:?}", scene.times());
        }
        eventually(ms(1500) + SLACK, "two leave", || scene.waiting().len() == 4);
        eventually(SLACK, "they are counted", || are_right(4));
        held.unlock().unwrap();
        for left in [3, 2, 1] {
            eventually(SLACK, "one is in", || scene.waiting().len() == left);
            // The places are counted by the next one that looks.
            eventually(SLACK, "they are counted", || {
                are_right(left) || scene.waiting().len() < left
            });
        }
    });
    scene.all_goes();
}

#[test]
fn nobody_spins() {
    let scene = Scene::new();
    let processes = [(); 4].map(|()| scene.process());
    let (_, held) = &processes[0];
    held.lock().unwrap();
    thread::scope(|scope| {
        for number in 0..40 {
            let (_, lock) = &processes[number % 4];
            scope.spawn(|| lock.run(|_| ()).unwrap());
        }
        eventually(ms(20_000), "they wait", || scene.waiting().len() == 40);
        thread::sleep(ms(500));
        let before = scene.server.eval_count();
        thread::sleep(ms(6000));
        let looks = scene.server.eval_count() - before;
        // A third of them each second, the first two each second, and a renewal.
        assert!(looks < 6 * 40 * 45 / 100, "{looks} requests");
        held.unlock().unwrap();
    });
    // Nor while the lock is free and the first does not come.
    scene.all_goes();
    let theirs = "0b6f7a52-0000-4000-8000-000000000002:41";
    let mut connection = scene.server.admin();
    let listener = listen(&mut connection, theirs);
    scene.queue(theirs);
    thread::scope(|scope| {
        for number in 0..8 {
            let (_, lock) = &processes[number % 4];
            scope.spawn(|| lock.run(|_| ()).unwrap());
        }
        eventually(ms(20_000), "they wait", || scene.waiting().len() == 9);
        thread::sleep(ms(500));
        let before = scene.server.eval_count();
        thread::sleep(ms(3000));
        let looks = scene.server.eval_count() - before;
        assert!(looks < 3 * 8 * 2, "{looks} requests");
        drop(listener);
        scene.server.cmd(&["LREM", QUEUE, "0", theirs]);
        scene.server.cmd(&["ZREM", TIMES, theirs]);
    });
    scene.all_goes();
}

#[test]
fn a_try_leaves_nothing() {
    let scene = Scene::new();
    let [(_one, held), (_two, lock)] = [(); 2].map(|()| scene.process());
    held.lock().unwrap();
    assert!(!lock.try_lock().unwrap());
    assert!(scene.waiting().is_empty());
    // A wait that ends leaves no entry.
    let (took, taken) = timed(|| lock.try_lock_for(ms(500)).unwrap());
    assert!(
        !taken && took >= ms(500) && took < ms(800) + SLACK,
        "{took:?}"
    );
    eventually(SLACK, "it has left", || scene.waiting().is_empty());
    assert_eq!(scene.server.int(&["EXISTS", TIMES]), 0);
    held.unlock().unwrap();
    assert_eq!(scene.server.int(&["DBSIZE"]), 0);
}

#[test]
fn one_that_leaves_a_free_lock_tells_the_next() {
    let scene = Scene::new();
    let (_client, lock) = scene.process();
    let [theirs, other] = ["0b6f7a52-0000-4000-8000-000000000002:41", "…:42"];
    let mut connections = [(); 2].map(|()| scene.server.admin());
    let [first, second] = &mut connections;
    let (_theirs, mut told) = (listen(first, theirs), listen(second, other));
    scene.queue(theirs);
    thread::scope(|scope| {
        let leaves = scope.spawn(|| lock.try_lock_for(ms(700)).unwrap());
        until_queued(&lock, 1);
        eventually(SLACK, "it waits", || scene.waiting().len() == 2);
        scene.queue(other);
        // The first is gone, and tells nobody.
        scene.server.cmd(&["LREM", QUEUE, "0", theirs]);
        scene.server.cmd(&["ZREM", TIMES, theirs]);
        // It gets it at its next look, or leaves before that.
        if leaves.join().unwrap() {
            lock.force_unlock().unwrap();
        }
    });
    told.get_message().unwrap();
    let (took, ()) = timed(|| {
        scene.server.cmd(&["LREM", QUEUE, "0", other]);
        scene.server.cmd(&["ZREM", TIMES, other]);
        lock.run(|_| ()).unwrap();
    });
    assert!(took < WAKE_UP, "{took:?}");
    scene.all_goes();
}

#[test]
fn times_that_were_lost_come_back_with_an_end() {
    let scene = Scene::new();
    let [(_one, held), (_two, lock)] = [(); 2].map(|()| scene.process());
    held.lock().unwrap();
    thread::scope(|threads| {
        threads.spawn(|| lock.run(|_| ()).unwrap());
        eventually(SLACK, "it waits", || scene.waiting().len() == 1);
        scene.server.cmd(&["DEL", TIMES]);
        eventually(ms(1100) + SLACK, "it has a time again", || {
            !scene.times().is_empty()
        });
        let left = scene.server.int(&["PTTL", TIMES]);
        held.unlock().unwrap();
        assert!((86_300_000..=86_400_000).contains(&left), "{left}");
    });
}

#[test]
fn the_keys_of_the_queue_have_an_end() {
    let scene = Scene::new();
    let [(_one, held), (_two, lock)] = [(); 2].map(|()| scene.process());
    held.lock().unwrap();
    scene.queue("0b6f7a52-0000-4000-8000-000000000002:41");
    thread::scope(|scope| {
        scope.spawn(|| lock.try_lock_for(ms(800)).unwrap());
        eventually(SLACK, "it waits", || scene.waiting().len() == 2);
        for key in [QUEUE, TIMES] {
            let left = scene.server.int(&["PTTL", key]);
            assert!((86_300_000..=86_400_000).contains(&left), "{key}: {left}");
        }
    });
    held.unlock().unwrap();
    assert!(!elsewhere(|| lock.try_lock().unwrap()), "another one waits");
}
