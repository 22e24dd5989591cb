//! One process of rslock or redis-lock: its tasks acquire the same lock. As `quorum`: of rslock or redlock.

#[path = "../../contention/protocol.rs"]
#[allow(dead_code, reason = "the benchmark itself needs more of it")]
mod protocol;
mod quorum;

use std::sync::Arc;
use std::time::Duration;

use protocol::{Acquisition, Load, Notes, OUT_OF_THE_WAY, Order, notes, write};
use redis::aio::MultiplexedConnection;
use redis_lock::{LockAcrossOptions, lock_across};
use rslock::LockManager;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Mutex;
use tokio::time::sleep;

/// For rslock, which has no default, and for redis-lock, whose default is too short.
const LEASE: Duration = Duration::from_secs(30);

#[derive(Clone)]
enum Peer {
    Rslock(LockManager),
    RedisLock(Arc<Mutex<MultiplexedConnection>>),
}

impl Peer {
    async fn new(who: &str, url: &str) -> Peer {
        match who {
            "rslock" => Peer::Rslock(LockManager::new(vec![url])),
            "redis-lock" => {
                let client = redis::Client::open(url).expect("a good URL");
                let connection = client.get_multiplexed_async_connection().await;
                Peer::RedisLock(Arc::new(Mutex::new(connection.expect("a connection"))))
            }
            other => panic!("no such peer: {other}"),
        }
    }

    /// Acquires the lock, holds it for a while and releases it. `None` if that failed.
    async fn stay(
        &self,
        name: &str,
        inside: Duration,
        options: LockAcrossOptions,
        held: fn(),
    ) -> Option<Acquisition> {
        let asked = now();
        let keep = async move {
            let had = now();
            held();
            if !inside.is_zero() {
                sleep(inside).await;
            }
            let left = now();
            Acquisition { asked, had, left }
        };
        match self {
            Peer::Rslock(manager) => {
                let guard = manager.acquire(name, LEASE).await.ok()?;
                let stay = keep.await;
                guard.release().await;
                Some(stay)
            }
            Peer::RedisLock(connection) => {
                lock_across(&[Arc::clone(connection)], name, keep, options)
                    .await
                    .ok()
            }
        }
    }

    async fn rush(self, name: Arc<str>, order: Load) -> (Notes, u64) {
        let (mut notes, mut failed) = (notes(), 0);
        sleep(Duration::from_nanos(order.start.saturating_sub(now()))).await;
        while now() < order.end {
            let options = LockAcrossOptions::default();
            match self.stay(&name, order.inside, options, || ()).await {
                Some(stay) => notes.push(stay),
                None => failed += 1,
            }
        }
        (notes, failed)
    }
}

/// Executes commands. Arguments: contender, server, name, number of tasks; or `quorum`, contender, servers.
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [part, who, urls @ ..] = &args[..]
        && part == "quorum"
    {
        return quorum::act(who, urls);
    }
    let [who, url, name, tasks] = &args[..] else {
        panic!("four arguments")
    };
    let tasks: usize = tasks.parse().expect("a number");
    let name: Arc<str> = name.as_str().into();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let peer = runtime.block_on(Peer::new(who, url));
    say(&[]);
    for order in std::io::stdin().lines().map_while(Result::ok) {
        match Order::parse(&order) {
            Order::Load(rush) => {
                let before = cpu_time();
                let tasks: Vec<_> = (0..tasks)
                    .map(|_| runtime.spawn(peer.clone().rush(Arc::clone(&name), rush.clone())))
                    .collect();
                let (mut threads, mut failed) = (Vec::new(), 0);
                for task in tasks {
                    let (notes, failures) = runtime.block_on(task).expect("a task");
                    threads.push(notes);
                    failed += failures;
                }
                let used = cpu_time() - before;
                write(&rush.file, &threads);
                say(&[used, failed]);
            }
            Order::Hold(hold) => {
                let options = LockAcrossOptions {
                    ttl: LEASE,
                    ..LockAcrossOptions::default()
                };
                let stay = runtime.block_on(peer.stay(&name, hold, options, || say(&[])));
                std::thread::sleep(OUT_OF_THE_WAY);
                say(&[stay.expect("the lock comes").left]);
            }
            Order::Wait => {
                let options = LockAcrossOptions::default();
                let stay = runtime.block_on(peer.stay(&name, Duration::ZERO, options, || ()));
                let stay = stay.expect("the lock comes");
                say(&[stay.asked, stay.had]);
            }
        }
    }
}

fn say(numbers: &[u64]) {
    let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
    println!("{}", words.join(" "));
}

/// Nanoseconds on a clock shared by all processes.
fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds of CPU time of this process.
fn cpu_time() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or_default()
}
