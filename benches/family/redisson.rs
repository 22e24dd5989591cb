//! Redisson, in a JVM after its warm-up.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Pending, unique};
use crate::jvm::Jvm;
use crate::pairs::KINDS;
use crate::rush::Rushed;
use crate::{CLIENTS, Plan};

/// Redisson's defaults in ms: the lease of the watchdog, and the timeout of a reply.
const WATCHDOG: &str = "30000";
const TIMEOUT: &str = "3000";

/// More than the warm-up acquires.
const PERMITS: &str = "1000";

pub(crate) struct Other {
    jvm: Arc<Jvm>,
    clients: Vec<String>,
}

impl Other {
    /// Builds the JVM program, starts it and runs its loops until they are compiled. `None` if it is not available.
    pub(crate) fn start(plan: &Plan) -> Option<Other> {
        let version = std::env::var("REDLATCH_BENCH_REDISSON");
        let version = version.unwrap_or_else(|_| "4.7.0".to_owned());
        if version.is_empty() {
            return None;
        }
        println!("building the side of Redisson {version} …");
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/build");
        if !runs(Command::new(&build).arg(&version)) || !runs(Command::new("java").arg("-version"))
        {
            eprintln!();
            eprintln!(
                "!! Redisson is LEFT OUT: {} {version} fails; it needs a JDK of 17 or later and Maven",
                build.display()
            );
            eprintln!();
            return None;
        }
        let other = Other {
            jvm: Jvm::start_version(&version, &[]),
            clients: (0..CLIENTS).map(|at| format!("client{at}")).collect(),
        };
        for client in &other.clients {
            let url = plan.server.url();
            let words = ["open", client, "default", &url, WATCHDOG, TIMEOUT, ""];
            other.ask(&new_thread(), &words).value();
        }
        other.warm_up(plan);
        Some(other)
    }

    fn warm_up(&self, plan: &Plan) {
        println!("warming it up …");
        for kind in ["semaphore", "permits"] {
            let name = format!("warm:{kind}");
            let words = [kind, &self.clients[0], &name, "trySetPermits", PERMITS];
            self.ask(&new_thread(), &words).value();
        }
        for kind in KINDS {
            self.pairs(kind, &format!("warm:{kind}"), plan.warm_up / 4);
        }
        for (kind, threads) in [("fair", 2), ("mixed", 4), ("read", 16), ("semaphore", 8)] {
            let name = format!("warm:{kind}");
            self.rush(kind, &name, threads, plan.warm_up, Duration::ZERO);
        }
    }

    /// Acquires and releases for `time`. Returns the median of a pair in ns, and the number of pairs.
    pub(crate) fn pairs(&self, kind: &str, name: &str, time: Duration) -> [f64; 2] {
        let time = time.as_millis().to_string();
        let words = ["pairs", &self.clients[0], kind, name, &time];
        match numbers(&self.ask(&new_thread(), &words))[..] {
            [median, count] => [median as f64, count as f64],
            ref other => panic!("two numbers, not {other:?}"),
        }
    }

    /// The results of this many threads of each client.
    pub(crate) fn rush(
        &self,
        kind: &str,
        name: &str,
        threads: usize,
        time: Duration,
        inside: Duration,
    ) -> Rushed {
        let (clients, threads) = (self.clients.join(" "), threads.to_string());
        let [time, inside] = [time.as_millis(), inside.as_micros()].map(|it| it.to_string());
        let words = ["rush", &clients, kind, name, &threads, &time, &inside];
        Rushed::of(&numbers(&self.ask(&new_thread(), &words)))
    }

    /// Starts an operation of a fair lock, in a thread that runs its operations in order.
    pub(crate) fn fair(&self, thread: &str, client: usize, name: &str, operation: &str) -> Pending {
        let client = &self.clients[client % self.clients.len()];
        self.ask(thread, &[operation, client, "fair", name])
    }

    fn ask(&self, thread: &str, words: &[&str]) -> Pending {
        self.jvm.ask(&[&[thread], words].concat())
    }
}

/// The name of a new thread.
pub(crate) fn new_thread() -> String {
    format!("thread{}", unique())
}

fn numbers(answer: &Pending) -> Vec<u64> {
    let answer = answer.value();
    let words = answer.split_whitespace();
    words.map(|word| word.parse().expect("a number")).collect()
}

fn runs(command: &mut Command) -> bool {
    let ran = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ran.is_ok_and(|status| status.success())
}
