//! The line of waiters inside a process, and the hand-over from one to the next.

mod hand_off;
mod order;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Interrupt, LossCause};

use crate::invariants::{TRANSFER, sha, somebody_waits};
#[cfg(target_os = "linux")]
use crate::support::ClockShim;
use crate::support::{End, Fault, Proxy, RedisServer, eventually, ms};

const SLACK: Duration = ms(2500);

/// Lets `threads` run `work` once each, lined up one behind the other for a lock that is held until all stand there.
fn line_up<'a>(
    scope: &'a thread::Scope<'a, '_>,
    threads: usize,
    work: impl Fn(usize) + Send + Copy + 'a,
) {
    for number in 0..threads {
        scope.spawn(move || work(number));
        thread::sleep(ms(40));
    }
}
