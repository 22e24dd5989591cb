//! Until when those who wait count as alive: what one that leaves takes off the times of others.

use std::thread;
use std::time::Duration;

use super::queue::{QUEUE, Scene, TIMES};
use crate::invariants::{SLACK, quick};
use crate::support::{eventually, ms};

const PATIENCE: Duration = Duration::from_secs(60);

/// The time of those behind, in s, before the one before them leaves and then. One that takes less than half of a patience from
/// them took its place more often than it paid for it.
const BEHIND: [(i64, i64); 4] = [(70, 30), (50, 30), (20, 20), (200, 140)];

impl Scene {
    /// Has one more wait who counts as alive for so many s.
    fn queue_for(&self, waiter: &str, left: i64) {
        let ends = (self.now() + left * 1000).to_string();
        self.server.cmd(&["ZADD", TIMES, &ends, waiter]);
        self.server.cmd(&["RPUSH", QUEUE, waiter]);
    }
}

/// One that comes in, or gives up, before others who have so much time.
#[track_caller]
fn leaves(comes_in: bool) {
    let scene = Scene::new();
    let client = quick().fair_lock_wait_timeout(PATIENCE);
    let client = client.open(&scene.server.url()).unwrap();
    let lock = client.fair_lock("tickets");
    let (_other, held) = scene.process();
    held.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let most = if comes_in { ms(30_000) } else { ms(2000) };
            assert_eq!(lock.try_lock_for(most).unwrap(), comes_in);
            let behind = || scene.waiting().len() == BEHIND.len();
            eventually(SLACK, "it has left", behind);
            for (left, (_, told)) in scene.times().into_iter().zip(BEHIND) {
                let most = told * 1000;
                assert!((most - 9000..=most).contains(&left), "{left} for {told} s");
            }
            if comes_in {
                lock.unlock().unwrap();
            }
        });
        eventually(SLACK, "it waits", || scene.waiting().len() == 1);
        for (number, (left, _)) in BEHIND.iter().enumerate() {
            scene.queue_for(&format!("dead:{number}:1"), *left);
        }
        if comes_in {
            held.unlock().unwrap();
        }
    });
}

#[test]
fn one_that_comes_in_leaves_half_of_their_time_to_others() {
    leaves(true);
}

#[test]
fn one_that_gives_up_leaves_half_of_their_time_to_others() {
    leaves(false);
}
