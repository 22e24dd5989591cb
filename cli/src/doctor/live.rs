//! Looks that ask again and again, or take a lock of their own for some seconds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Event, Lock, Observer, Severity};

use crate::connect::{Backend, ConnectArgs};
use crate::doctor::Finding;

/// So many round trips are timed, if they fit into the time.
const ROUND_TRIPS: usize = 100;
const TIMING: Duration = Duration::from_secs(3);
/// How long the clock of the server is compared with ours.
const CLOCK: Duration = Duration::from_secs(3);
/// The lease of the locks taken here; it outlasts all looks, and bounds what is left if this process is killed.
const LEASE: Duration = Duration::from_secs(30);
/// How long a waiter is given to listen, and then to hear.
const MESSAGE: Duration = Duration::from_secs(3);
/// What stands in place of a node where a lock was taken at a majority of them.
pub(super) const ALL_NODES: &str = "all nodes";
/// So often a message may miss the waiter, which also asks by itself about once a second.
const MESSAGES: usize = 3;

/// A server that is looked at by itself.
struct ProbedServer<'a> {
    node: &'a str,
    client: &'a Client,
    /// Another client of the same server.
    other: Option<&'a Client>,
    uses_token_locks: bool,
    lease: Duration,
    /// The longest time for a request to it, where others decide without it.
    node_timeout: Option<Duration>,
}

pub(super) fn probe(
    args: &ConnectArgs,
    backend: &Backend,
    before: &[Finding],
    is_read_only: bool,
) -> Vec<Finding> {
    // Each look would end with the same refusal.
    let is_off =
        |it: &Finding| matches!(it.code, "state" | "lock-table") && it.severity == Severity::Danger;
    if !backend.is_quorum() && before.iter().any(is_off) {
        return Vec::new();
    }
    let others = match is_read_only || backend.uses_token_locks() || backend.is_database() {
        true => None,
        // The same arguments have just been used.
        false => args.open().ok(),
    };
    let clients = backend.clients();
    let other_clients = others.as_ref().map(Backend::clients);
    let servers = clients
        .iter()
        .enumerate()
        .map(|(at, (node, client))| ProbedServer {
            node,
            client,
            other: other_clients
                .as_ref()
                .and_then(|others| others.get(at))
                .map(|(_, client)| *client),
            uses_token_locks: backend.uses_token_locks(),
            lease: backend.lease(),
            node_timeout: backend.is_quorum().then(|| {
                let share = backend.lease() / 200;
                share.clamp(Duration::from_millis(5), Duration::from_millis(150))
            }),
        });
    let servers: Vec<_> = servers.collect();
    let mut found = thread::scope(|scope| {
        let running: Vec<_> = servers
            .iter()
            .map(|server| scope.spawn(|| server.probe(is_read_only)))
            .collect();
        let mut found = Vec::new();
        for (probe, server) in running.into_iter().zip(&servers) {
            found.extend(probe.join().unwrap_or_else(|_| {
                vec![Finding::note(
                    server.node,
                    "dry-run",
                    "the look ended with a panic",
                    "report it as a defect of redlatch",
                )]
            }));
        }
        found
    });
    // Without a majority of votes there is none, which was said already.
    let has_majority = !before
        .iter()
        .any(|it| it.code == "redlock-nodes" && it.severity == Severity::Danger);
    if backend.is_quorum() && has_majority && !is_read_only {
        let lock = backend.lock(&format!("redlatch:doctor:{}:all", own_id(&clients)));
        let tried = dry_run(&lock, backend.uses_token_locks());
        found.push(dry_run_finding(ALL_NODES, tried));
    }
    found
}

/// A part of a name that no other process uses.
fn own_id(clients: &[(String, &Client)]) -> String {
    clients
        .first()
        .map_or_else(String::new, |(_, client)| client.id().to_owned())
}

impl ProbedServer<'_> {
    fn lock_of(&self, client: &Client, name: &str) -> Lock {
        match self.uses_token_locks {
            true => client.token_lock(name),
            false => client.lock(name),
        }
    }

    fn probe(&self, is_read_only: bool) -> Vec<Finding> {
        let name = format!("redlatch:doctor:{}", self.client.id());
        let lock = self.lock_of(self.client, &name);
        let mut found = Vec::new();
        match latency(&lock) {
            Ok(took) => found.push(self.latency_finding(&took)),
            // That it is silent was said already, and the others decide without it.
            Err(_) if self.node_timeout.is_some() => return found,
            Err(error) => {
                found.push(Finding::of_error(Some(self.node), "latency", &error));
                return found;
            }
        }
        if is_read_only {
            return found;
        }
        let lock = lock.with_lease_time(LEASE);
        let tried = dry_run(&lock, self.uses_token_locks);
        let is_lockable = matches!(tried, Ok(true));
        found.push(dry_run_finding(self.node, tried));
        if !is_lockable {
            return found;
        }
        found.push(match clock_rate(&lock) {
            Ok(rate) => self.clock_finding(rate),
            Err(error) => Finding::of_failed_probe(self.node, "clock-rate", &error),
        });
        if let Some(other) = self.other {
            let waiting = self.lock_of(other, &name);
            found.push(match wake_up_latency(&lock, &waiting) {
                Ok(Some(took)) => Finding::ok(
                    self.node,
                    "pubsub",
                    format!("a message of an unlock woke a waiter after {} ms", took.as_millis()),
                ),
                Ok(None) => Finding::danger(
                    self.node,
                    "pubsub",
                    "no message of an unlock arrives; waiters ask about once a second",
                    "give the user +subscribe, +publish and the channels (resetchannels &redisson_lock__channel:*), and let \
                     proxies pass messages",
                ),
                Err(error) => Finding::of_failed_probe(self.node, "pubsub", &error),
            });
        }
        found
    }

    fn latency_finding(&self, took: &[Duration]) -> Finding {
        const CODE: &str = "latency";
        let median = took.get(took.len() / 2).copied().unwrap_or_default();
        let longest = took.last().copied().unwrap_or_default();
        let seen = format!(
            "{} round trips: {} at the median, {} at most",
            took.len(),
            short(median),
            short(longest)
        );
        let advice = "raise --lease (watchdog_timeout) above a hundred round trips, or find out what slows the server or the \
                      network down (SLOWLOG GET, redis-cli --latency)";
        if median * 10 > self.lease {
            let seen = format!("{seen}; a lease of {} is less than ten", short(self.lease));
            return Finding::danger(self.node, CODE, seen, advice);
        }
        if let Some(timeout) = self.node_timeout.filter(|timeout| median * 2 > *timeout) {
            let seen = format!("{seen}; node_timeout is {} by default", short(timeout));
            return Finding::note(
                self.node,
                CODE,
                seen,
                "set RedlockBuilder::node_timeout to two round trips or more",
            );
        }
        if longest * 10 > self.lease {
            let seen = format!("{seen}; a lease is {}", short(self.lease));
            return Finding::note(self.node, CODE, seen, advice);
        }
        Finding::ok(self.node, CODE, seen)
    }

    fn clock_finding(&self, (least, most): (f64, f64)) -> Finding {
        const CODE: &str = "clock-rate";
        let percent = |rate: f64| (rate - 1.0) * 100.0;
        let (low, high) = (percent(least), percent(most));
        let seen = format!(
            "over {} s its clock ran by {low:+.2} to {high:+.2} % against ours",
            CLOCK.as_secs()
        );
        if high < -1.0 || low > 1.0 {
            return Finding::danger(
                self.node,
                CODE,
                format!("{seen}, and locks reckon with 1 %"),
                "look at both clocks (chronyc tracking, timedatectl): one was set, or runs too fast or too slow",
            );
        }
        if low < -1.0 || high > 1.0 {
            return Finding::note(
                self.node,
                CODE,
                format!("{seen}: round trips are too slow to see 1 %"),
                "look again when the machines and the network are quiet",
            );
        }
        Finding::ok(self.node, CODE, seen)
    }
}

/// A time with as many digits as it takes.
fn short(time: Duration) -> String {
    match time.as_millis() {
        0..=9 => format!("{:.2} ms", time.as_secs_f64() * 1000.0),
        10..=9_999 => format!("{} ms", time.as_millis()),
        _ => format!("{} s", time.as_secs()),
    }
}

/// The times of round trips, the shortest first.
fn latency(lock: &Lock) -> Result<Vec<Duration>, Error> {
    // The first one connects.
    lock.is_locked()?;
    let end = Instant::now() + TIMING;
    let mut took = Vec::with_capacity(ROUND_TRIPS);
    while took.len() < ROUND_TRIPS && (took.is_empty() || Instant::now() < end) {
        let start = Instant::now();
        lock.is_locked()?;
        took.push(start.elapsed());
    }
    took.sort_unstable();
    Ok(took)
}

/// Locks, re-enters and unlocks. Returns whether it could.
fn dry_run(lock: &Lock, uses_token_locks: bool) -> Result<bool, Error> {
    if !lock.try_lock()? {
        return Ok(false);
    }
    let inner = match uses_token_locks {
        true => Ok(true),
        false => lock.try_lock().and_then(|entered| {
            lock.unlock()?;
            Ok(entered)
        }),
    };
    let outer = lock.unlock();
    let entered = inner?;
    outer?;
    Ok(entered)
}

fn dry_run_finding(node: &str, tried: Result<bool, Error>) -> Finding {
    match tried {
        Ok(true) => Finding::ok(node, "dry-run", "a lock was taken and unlocked"),
        Ok(false) => Finding::danger(
            node,
            "dry-run",
            "a lock with a name of its own was refused",
            "look whether a proxy answers in place of the server",
        ),
        Err(error) => Finding::of_error(Some(node), "dry-run", &error),
    }
}

/// The least and the greatest rate at which the clock of the server may run, 1 for ours: how much of a lease went by there.
fn clock_rate(lock: &Lock) -> Result<(f64, f64), Error> {
    if !lock.try_lock()? {
        return Ok((0.0, f64::INFINITY));
    }
    let first = sample_remaining_lease(lock);
    if first.is_ok() {
        thread::sleep(CLOCK);
    }
    let second = sample_remaining_lease(lock);
    let unlocked = lock.unlock();
    let (first, second) = (first?, second?);
    unlocked?;
    // The server tells whole milliseconds.
    let passed = first.left.as_secs_f64() - second.left.as_secs_f64();
    let (least, most) = (
        (second.before - first.after).as_secs_f64(),
        (second.after - first.before).as_secs_f64(),
    );
    Ok(((passed - 0.001) / most, (passed + 0.001) / least))
}

/// What was left of a lease at some instant between two.
struct LeaseSample {
    before: Instant,
    left: Duration,
    after: Instant,
}

/// Asks often, and takes the quickest answer.
fn sample_remaining_lease(lock: &Lock) -> Result<LeaseSample, Error> {
    let mut best: Option<LeaseSample> = None;
    for _ in 0..20 {
        let before = Instant::now();
        let left = lock.remaining_lease()?.unwrap_or_default();
        let sample = LeaseSample {
            before,
            left,
            after: Instant::now(),
        };
        let took = |it: &LeaseSample| it.after - it.before;
        if best.as_ref().is_none_or(|best| took(&sample) < took(best)) {
            best = Some(sample);
        }
    }
    // At least one was taken.
    let now = Instant::now();
    Ok(best.unwrap_or(LeaseSample {
        before: now,
        left: Duration::ZERO,
        after: now,
    }))
}

/// How many waiters of this process a message has woken.
static WOKEN: AtomicU64 = AtomicU64::new(0);

/// Counts them.
pub(crate) struct WakeUpCounter;

impl Observer for WakeUpCounter {
    fn event(&self, event: &Event<'_>) {
        if let Event::Acquired { via: "woken", .. } = event {
            WOKEN.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How long a message of an unlock took to a waiter of another client; `None` if none arrives.
fn wake_up_latency(lock: &Lock, waiting: &Lock) -> Result<Option<Duration>, Error> {
    let woken = || WOKEN.load(Ordering::Relaxed);
    for _ in 0..MESSAGES {
        if !lock.try_lock()? {
            return Ok(None);
        }
        let before = woken();
        let (heard, freed) = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let taken = waiting.try_lock_for(MESSAGE * 2)?;
                let at = Instant::now();
                if taken {
                    waiting.unlock()?;
                }
                Ok::<_, Error>(at)
            });
            let end = Instant::now() + MESSAGE / 3;
            // Where that is not told, it has had the time.
            while Instant::now() < end
                && !matches!(lock.describe(), Ok(info) if info.listening > Some(0))
            {
                thread::sleep(Duration::from_millis(5));
            }
            // It asks once more as soon as it listens.
            thread::sleep(Duration::from_millis(20));
            let freed = Instant::now();
            let unlocked = lock.unlock();
            let heard = waiter.join().unwrap_or_else(|_| Ok(Instant::now()));
            unlocked.and(heard).map(|heard| (heard, freed))
        })?;
        if woken() > before {
            return Ok(Some(heard.saturating_duration_since(freed)));
        }
    }
    Ok(None)
}
