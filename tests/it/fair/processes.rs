//! Processes that wait for a fair lock, and are stopped or killed.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::Client;

use super::queue::Fixture;
use crate::invariants::SLACK;
use crate::support::child::{self, arg};
use crate::support::{Child, eventually, ms, timed};

pub(crate) const ROLE: &str = "one that waits for a fair lock";

/// In a child: this many threads wait for the lock, and report when they have it.
pub(crate) fn wait() {
    let client = Client::open(&arg("URL")).unwrap();
    let lock = client.fair_lock("tickets");
    let threads: usize = arg("THREADS").parse().unwrap();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                lock.run(|_| {
                    child::say("in");
                    thread::sleep(ms(50));
                })
                .unwrap();
            });
        }
    });
    child::say("over");
}

impl Fixture {
    /// A process whose threads wait for the held lock.
    fn waiters(&self, threads: usize) -> Child {
        let before = self.waiting().len();
        let env = [
            ("URL", &*self.server.url()),
            ("THREADS", &threads.to_string()),
        ];
        let child = Child::spawn(ROLE, &env);
        let listens = |waiter: &String| {
            let channel = format!("redisson_lock__channel:{{tickets}}:{waiter}");
            let reply = self.server.cmd(&["PUBSUB", "NUMSUB", &channel]);
            let (_, listeners): (String, u32) = redis::from_redis_value(reply).unwrap();
            listeners > 0
        };
        eventually(Duration::from_secs(30), "they wait", || {
            let waiting = self.waiting();
            waiting.len() == before + threads && waiting[before..].iter().all(listens)
        });
        child
    }

    /// Stops a waiting process while none of its requests is in flight: a request whose reply is late costs the queue
    /// entry.
    fn stop_asleep(&self, child: &Child) {
        loop {
            let before = self.server.eval_count();
            thread::sleep(ms(150));
            if self.server.eval_count() != before {
                continue;
            }
            child.freeze();
            if self.server.eval_count() == before {
                return;
            }
            child.thaw();
        }
    }
}

#[test]
fn killed_waiters_cost_a_second_anywhere_in_the_queue() {
    let fixture = Fixture::new();
    let (_client, held) = fixture.process();
    let (other, lock) = fixture.process();
    // At the head, in the middle, at the end, and several.
    for (before, threads, behind) in [(0, 1, 1), (1, 1, 1), (2, 1, 0), (0, 20, 1), (0, 64, 1)] {
        held.lock().unwrap();
        let (took, ()) = thread::scope(|scope| {
            let wait = |count: usize| {
                for _ in 0..count {
                    let waiting = fixture.waiting().len();
                    scope.spawn(|| lock.run(|_| ()).unwrap());
                    eventually(SLACK, "it waits", || fixture.waiting().len() == waiting + 1);
                }
            };
            wait(before);
            let mut killed = fixture.waiters(threads);
            wait(behind);
            killed.kill();
            timed(|| {
                held.unlock().unwrap();
                eventually(Duration::from_secs(60), "all had it", || {
                    fixture
                        .waiting()
                        .iter()
                        .all(|it| !it.starts_with(other.id()))
                        && !lock.is_locked().unwrap()
                });
            })
        });
        println!("{took:?} with {threads} killed behind {before}");
        assert!(took < ms(2700) + SLACK, "with {threads} behind {before}");
        // Entries at the end are removed by the next query.
        lock.run(|_| ()).unwrap();
        fixture.all_goes();
    }
}

#[test]
fn a_briefly_stopped_process_keeps_its_queue_entry() {
    let fixture = Fixture::new();
    let (_client, held) = fixture.process();
    let (_other, lock) = fixture.process();
    for stopped in [1, 5] {
        held.lock().unwrap();
        let waits = fixture.waiters(1);
        fixture.stop_asleep(&waits);
        thread::scope(|scope| {
            let behind = scope.spawn(|| lock.run(|_| ()).unwrap());
            eventually(SLACK, "it waits", || fixture.waiting().len() == 2);
            held.unlock().unwrap();
            thread::sleep(Duration::from_secs(stopped));
            assert!(!behind.is_finished(), "it keeps its place");
            waits.thaw();
            waits.expect_line("in", SLACK);
            behind.join().unwrap();
        });
        fixture.all_goes();
    }
}

#[test]
fn a_stopped_process_is_skipped_and_returns_to_the_front() {
    let fixture = Fixture::new();
    let (_client, held) = fixture.process();
    let (_other, lock) = fixture.process();
    held.lock().unwrap();
    let waits = fixture.waiters(1);
    fixture.stop_asleep(&waits);
    thread::scope(|scope| {
        let behind = scope.spawn(|| lock.lock().unwrap());
        eventually(SLACK, "it waits", || fixture.waiting().len() == 2);
        let (took, ()) = timed(|| {
            held.unlock().unwrap();
            behind.join().unwrap();
        });
        assert!(took < ms(11_200) + SLACK, "{took:?}");
        // It acquires before a waiter that arrived later.
        let later = scope.spawn(|| held.lock().unwrap());
        eventually(SLACK, "it waits", || fixture.waiting().len() == 1);
        waits.thaw();
        eventually(SLACK, "it is back", || fixture.waiting().len() == 2);
        assert!(lock.force_unlock().unwrap());
        waits.expect_line("in", SLACK);
        later.join().unwrap();
        assert!(lock.force_unlock().unwrap());
    });
    fixture.all_goes();
}

#[test]
fn stopped_waiters_cost_10_s_anywhere_in_the_queue() {
    let fixture = Fixture::new();
    let (_client, held) = fixture.process();
    let (_other, lock) = fixture.process();
    held.lock().unwrap();
    let is_taken = || {
        let is_taken = lock.try_lock_for(Duration::from_secs(40)).unwrap();
        is_taken.then(|| lock.unlock().unwrap()).is_some()
    };
    thread::scope(|scope| {
        let mut both = Vec::new();
        for _ in 0..2 {
            let stopped = fixture.waiters(10);
            let before = fixture.waiting().len();
            both.push((stopped, scope.spawn(is_taken)));
            eventually(SLACK, "it waits", || fixture.waiting().len() == before + 1);
        }
        both.iter().for_each(|(stopped, _)| stopped.freeze());
        let began = Instant::now();
        held.unlock().unwrap();
        for (stopped, waits) in both {
            assert!(waits.join().unwrap(), "the silences add up");
            let took = began.elapsed();
            println!("{took:?} with 10 stopped, and 10 before them");
            assert!(took < ms(11_200) + SLACK, "{took:?}");
            stopped.thaw();
            stopped.expect_line("over", Duration::from_secs(30));
        }
    });
    fixture.all_goes();
}
