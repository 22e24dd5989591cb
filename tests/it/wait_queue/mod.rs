//! The queue of the waiters inside a process, and the hand-off from one to the next.

mod exhausted;
mod hand_off;
mod head_start;
mod order;
mod pollers;
mod unreplicated;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use std::{slice, thread};

use redlatch::{Client, Error, Lock, LossCause};

use crate::laws::until_queued;
use crate::support::{End, Fault, Proxy, RedisServer, eventually, ms, timed};

const SLACK: Duration = ms(2500);

/// Lets `threads` run `work` once each; they queue one after another for a lock that is held until all are queued.
fn line_up<'a>(
    scope: &'a thread::Scope<'a, '_>,
    lock: &Lock,
    threads: usize,
    work: impl Fn(usize) + Send + Copy + 'a,
) {
    for number in 0..threads {
        scope.spawn(move || work(number));
        until_queued(lock, number + 1);
    }
}

/// Waits until this many threads are queued for the lock and send no requests: the attempt that follows a subscription
/// is over.
#[track_caller]
fn until_at_rest(servers: &[RedisServer], lock: &Lock, threads: usize) {
    until_queued(lock, threads);
    let asked = || servers.iter().map(RedisServer::eval_count).sum::<u64>();
    let mut before = asked();
    eventually(SLACK * 2, "they sleep", || {
        thread::sleep(ms(50));
        let now = asked();
        std::mem::replace(&mut before, now) == now
    });
}
