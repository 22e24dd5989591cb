//! The cores of the server and the clients, and whether the machine ran them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::RedisServer;

/// The cores of the server and of the clients.
pub(crate) struct Cores {
    server: usize,
    clients: usize,
}

impl Cores {
    /// Pins the server, the calling thread and its later threads to the clients' core.
    pub(crate) fn join(&self, server: &RedisServer) {
        pin_process(server.pid(), self.clients);
        pin_this_thread(self.clients);
    }

    /// Pins the server to its core, the calling thread and its later threads to the other one.
    pub(crate) fn split(&self, server: &RedisServer) {
        pin_process(server.pid(), self.server);
        pin_this_thread(self.clients);
    }
}

#[cfg(target_os = "linux")]
mod pinning {
    use std::fs;

    use rustix::process::Pid;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::Cores;

    impl Cores {
        /// The first two cores available to this process.
        pub(crate) fn choose() -> Cores {
            let allowed = sched_getaffinity(None).expect("the cores of this process");
            let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
            let server = cores.next().expect("a core");
            Cores {
                server,
                clients: cores.next().unwrap_or(server),
            }
        }
    }

    pub(super) fn pin_this_thread(core: usize) {
        sched_setaffinity(None, &only(core)).expect("this thread is pinned");
    }

    pub(super) fn pin_process(process: u32, core: usize) {
        let threads =
            fs::read_dir(format!("/proc/{process}/task")).expect("the threads of the server");
        for thread in threads.flatten() {
            let id = thread
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let id = id.and_then(Pid::from_raw).expect("a thread id");
            sched_setaffinity(Some(id), &only(core)).expect("a thread of the server is pinned");
        }
    }

    fn only(core: usize) -> CpuSet {
        let mut set = CpuSet::new();
        set.set(core);
        set
    }
}

/// Without pinning the ratios depend on the scheduler.
#[cfg(not(target_os = "linux"))]
mod pinning {
    impl super::Cores {
        pub(crate) fn choose() -> super::Cores {
            super::Cores {
                server: 0,
                clients: 0,
            }
        }
    }

    pub(super) fn pin_this_thread(_: usize) {}

    pub(super) fn pin_process(_: u32, _: usize) {}
}

use pinning::{pin_process, pin_this_thread};

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if cfg!(not(target_os = "linux")) {
            f.write_str("not pinned")
        } else if self.server == self.clients {
            f.write_str("one core only, so nothing runs beside the server")
        } else {
            write!(
                f,
                "server on core {}, clients on core {}",
                self.server, self.clients
            )
        }
    }
}

/// Detects when a core runs no thread, which no lease can survive for long.
pub(crate) struct Stalls {
    ended: Arc<AtomicBool>,
    lookouts: Vec<JoinHandle<Duration>>,
}

impl Stalls {
    const LOOK: Duration = Duration::from_millis(20);

    pub(crate) fn watch(cores: &Cores) -> Stalls {
        let ended = Arc::new(AtomicBool::new(false));
        let lookouts = [cores.server, cores.clients].map(|core| {
            let ended = Arc::clone(&ended);
            thread::spawn(move || {
                pin_this_thread(core);
                let mut longest = Duration::ZERO;
                while !ended.load(Ordering::Relaxed) {
                    let asleep = Instant::now();
                    thread::sleep(Stalls::LOOK);
                    longest = longest.max(asleep.elapsed().saturating_sub(Stalls::LOOK));
                }
                longest
            })
        });
        Stalls {
            ended,
            lookouts: lookouts.into(),
        }
    }

    /// The longest stall of either core.
    pub(crate) fn longest(self) -> Duration {
        self.ended.store(true, Ordering::Relaxed);
        let stalls = self.lookouts.into_iter().map(|lookout| lookout.join());
        stalls.flatten().max().unwrap_or_default()
    }
}
