//! Faults of time, pauses and the process itself: F47 to F58 of the table in `tests/it/faults/README.md`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and one that goes on may say how far"
)]

mod clocks;
mod ends;
mod forks;
mod renewal_thread;
mod settings;
mod threads;

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fork::Fork;
#[cfg(feature = "test-util")]
use redlatch::testing;
use redlatch::{Client, Error, Guard, Lock, LossCause, Losses, current_thread_id};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::child::{arg, listen, say};
use crate::support::{Child, Monitor, RedisServer, elsewhere, eventually, ms};
#[cfg(target_os = "linux")]
use crate::support::{ClockShim, clock::OFFSET_VARIABLE};

/// The slack of a busy machine.
const SLACK: Duration = ms(2500);

/// Longer than any wait of these tests may take.
const MINUTE: Duration = Duration::from_secs(60);

/// The time limit of a child.
const CHILD: Duration = Duration::from_secs(30);

/// The class of an error, as children print it.
fn class(error: &Error) -> &'static str {
    match error {
        Error::Lost { .. } => "Lost",
        Error::Forked { .. } => "Forked",
        Error::NotHeld { .. } => "NotHeld",
        Error::Closed { .. } => "Closed",
        Error::Unreachable { .. } => "Unreachable",
        Error::WatchdogDied { .. } => "WatchdogDied",
        Error::InvalidConfig { .. } => "InvalidConfig",
        _ => "another error",
    }
}

fn outcome<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => class(&error).to_owned(),
    }
}

/// Runs `role` in a child process; returns false for a role of other files.
pub(crate) fn play(role: &str) -> bool {
    match role {
        "paused holder" => clocks::paused_holder(),
        "holder under a shifted clock" => clocks::holder_under_a_shifted_clock(),
        #[cfg(feature = "test-util")]
        "holder in suspend" => clocks::holder_in_suspend(),
        "forking holder" => forks::forking_holder(),
        "holder without threads" => renewal_thread::holder_without_threads(),
        "dying holder" => ends::dying_holder(),
        "holder of thousands" => renewal_thread::holder_of_thousands(),
        "holder without files" => ends::holder_without_files(),
        _ => return false,
    }
    true
}

/// Leaves no memory for another thread's stack, but enough for everything else.
///
/// Process limits do not bind root, and cgroups are not always available.
#[cfg(target_os = "linux")]
pub(crate) fn forbid_threads() {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let maximum = getrlimit(Resource::As).maximum;
    let room = pages * 4096 + (1 << 20);
    let limit = Rlimit {
        current: Some(room),
        maximum,
    };
    setrlimit(Resource::As, limit).unwrap();
    // The stack of an ended thread is reused.
    let refused = (0..8).any(|_| thread::Builder::new().spawn(thread::park).is_err());
    assert!(refused, "the limit has its effect");
}

#[cfg(target_os = "linux")]
pub(crate) fn allow_threads() {
    let maximum = getrlimit(Resource::As).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::As, limit).unwrap();
}
