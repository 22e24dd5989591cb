//! Shared by all test binaries and benchmarks: real servers, fault injection, and records that prove what happened.
//!
//! Only `contender` and `shop` use the crate under test, so that no test passes because of a mistake common to both.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "no binary uses all of it"
)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test whose servers do not work has failed"
)]

pub mod child;
#[cfg(target_os = "linux")]
pub mod clock;
pub mod contender;
pub mod delay_line;
mod frames;
pub mod history;
#[cfg(feature = "mysql")]
pub mod mariadb;
pub mod monitor;
pub mod program;
pub mod proxy;
pub mod reaper;
#[cfg(target_os = "linux")]
pub mod resolver;
pub mod scripts;
pub mod server;
#[cfg(target_os = "linux")]
mod shim;
pub mod shop;
pub mod topology_fixtures;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

pub use child::Child;
#[cfg(target_os = "linux")]
pub use clock::ClockShim;
pub use delay_line::delayed_url;
pub use frames::Frames;
pub use history::Recorder;
#[cfg(feature = "mysql")]
pub use mariadb::{Database, MariaDb};
pub use monitor::Monitor;
pub use program::product;
pub use proxy::{End, Fault, Proxy, Rule};
#[cfg(target_os = "linux")]
pub use resolver::Resolver;
pub use server::RedisServer;

/// A duration of `millis` milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs `work` in another thread.
pub fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().expect("it does not panic"))
}

/// The duration of `work`.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

/// Whether the long forms of the tests are selected.
pub fn is_long() -> bool {
    std::env::var_os("REDLATCH_LONG").is_some()
}

/// Polls `happened` until it is true, and panics with `what` after `limit`.
#[track_caller]
pub fn eventually(limit: Duration, what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        thread::sleep(ms(2));
    }
}

/// Stops all threads of a child process, and returns when they have stopped: the signal is asynchronous.
fn freeze(process: &std::process::Child) {
    let pid = Pid::from_child(process);
    kill_process(pid, Signal::STOP).expect("a child can be signalled");
    waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("the child has not ended");
}

/// Whether a process is alive, child of this one or not; a zombie is not.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    match stat {
        // The state follows the name, which is in parentheses.
        Ok(stat) => !stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z')),
        Err(_) if cfg!(target_os = "linux") => false,
        Err(_) => i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok()),
    }
}

/// Resumes a frozen child process.
fn thaw(process: &std::process::Child) {
    kill_process(Pid::from_child(process), Signal::CONT).expect("a child can be signalled");
}

/// A free loopback port outside of the range of outgoing connections.
///
/// A port from the ephemeral range would do for a server that starts once. While a server is down for a restart,
/// though, the kernel may give such a port to an outgoing connection, even to a client that dials that very port and
/// then talks to itself.
///
/// Another process may take it before the caller does: who listens on it in this process asks for [`free_listener`].
pub fn free_port() -> u16 {
    let listener = free_listener();
    listener.local_addr().expect("a bound address").port()
}

/// A listener on such a port.
pub fn free_listener() -> TcpListener {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        // Parallel test processes start far apart, and one process never uses a port twice.
        let offset = std::process::id()
            .wrapping_mul(7919)
            .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + offset % COUNT).expect("the range lies below 65536");
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener;
        }
    }
    panic!(
        "no free loopback port between {FIRST} and {}",
        FIRST + COUNT
    );
}
