//! Probes that send many requests, or hold a lock of their own for seconds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Event, Lock, Observer, Severity};

use crate::connect::{Backend, ConnectArgs};
use crate::doctor::Finding;

/// How many round trips are timed, if `TIMING` suffices.
const ROUND_TRIPS: usize = 100;
const TIMING: Duration = Duration::from_secs(3);
/// How long the server's clock is compared with the local clock.
const CLOCK: Duration = Duration::from_secs(3);
/// The lease of the probes' locks, longer than any probe. If this process is killed, its locks expire after this time.
const LEASE: Duration = Duration::from_secs(30);
/// A waiter has a third of this time to subscribe. It gives up after twice this time.
const MESSAGE: Duration = Duration::from_secs(3);
/// The node name in findings about a lock on a majority of nodes.
pub(super) const ALL_NODES: &str = "all nodes";
/// How often a wake-up is tried. A waiter also polls about once a second, so it may acquire the lock before the message.
const MESSAGES: usize = 3;

struct ProbedServer<'a> {
    node: &'a str,
    client: &'a Client,
    /// A second client of the same server.
    other: Option<&'a Client>,
    uses_token_locks: bool,
    lease: Duration,
    /// In a quorum, the timeout of a single node. A quorum does not wait for a slow node.
    node_timeout: Option<Duration>,
}

pub(super) fn probe(
    args: &ConnectArgs,
    backend: &Backend,
    before: &[Finding],
    is_read_only: bool,
) -> Vec<Finding> {
    // All probes would fail for the same reason.
    let is_off =
        |it: &Finding| matches!(it.code, "state" | "lock-table") && it.severity == Severity::Danger;
    if !backend.is_quorum() && before.iter().any(is_off) {
        return Vec::new();
    }
    let others = match is_read_only || backend.uses_token_locks() || backend.is_database() {
        true => None,
        // The first client was opened with the same arguments.
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
                    "a probe panicked",
                    "report this as a defect of redlatch",
                )]
            }));
        }
        found
    });
    // A missing majority was reported before.
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

/// Returns a part of lock names that no other process uses.
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
            Ok(times) => found.push(self.latency_finding(&times)),
            // In a quorum, an unreachable node was reported before.
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
                Ok(Some(latency)) => Finding::ok(
                    self.node,
                    "pubsub",
                    format!("an unlock message notified a waiter after {} ms", latency.as_millis()),
                ),
                Ok(None) => Finding::danger(
                    self.node,
                    "pubsub",
                    "no unlock message arrives; waiters poll about once a second",
                    "grant the user +subscribe, +publish and the channels (resetchannels &redisson_lock__channel:*), \
                     and let proxies pass pub/sub messages",
                ),
                Err(error) => Finding::of_failed_probe(self.node, "pubsub", &error),
            });
        }
        found
    }

    fn latency_finding(&self, times: &[Duration]) -> Finding {
        const CODE: &str = "latency";
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let longest = times.last().copied().unwrap_or_default();
        let seen = format!(
            "{} round trips: median {}, maximum {}",
            times.len(),
            duration_text(median),
            duration_text(longest)
        );
        let advice = "raise --lease (watchdog_timeout) above 100 round trips, or find the cause of the delay (SLOWLOG \
                      GET, redis-cli --latency)";
        if median * 10 > self.lease {
            let seen = format!(
                "{seen}; the lease of {} is shorter than ten round trips",
                duration_text(self.lease)
            );
            return Finding::danger(self.node, CODE, seen, advice);
        }
        if let Some(timeout) = self.node_timeout.filter(|timeout| median * 2 > *timeout) {
            let seen = format!(
                "{seen}; the default node_timeout is {}",
                duration_text(timeout)
            );
            return Finding::note(
                self.node,
                CODE,
                seen,
                "set RedlockBuilder::node_timeout to two round trips or more",
            );
        }
        if longest * 10 > self.lease {
            let seen = format!("{seen}; the lease is {}", duration_text(self.lease));
            return Finding::note(self.node, CODE, seen, advice);
        }
        Finding::ok(self.node, CODE, seen)
    }

    fn clock_finding(&self, (least, most): (f64, f64)) -> Finding {
        const CODE: &str = "clock-rate";
        let percent = |rate: f64| (rate - 1.0) * 100.0;
        let (low, high) = (percent(least), percent(most));
        let seen = format!(
            "over {} s the server clock drifted by {low:+.2} to {high:+.2} % from the local clock",
            CLOCK.as_secs()
        );
        if high < -1.0 || low > 1.0 {
            return Finding::danger(
                self.node,
                CODE,
                format!("{seen}; locks allow for 1 %"),
                "check both clocks (chronyc tracking, timedatectl): one was set, or runs too fast or too slow",
            );
        }
        if low < -1.0 || high > 1.0 {
            return Finding::note(
                self.node,
                CODE,
                format!("{seen}; round trips are too slow to measure 1 %"),
                "run redlatch doctor again under less load",
            );
        }
        Finding::ok(self.node, CODE, seen)
    }
}

fn duration_text(time: Duration) -> String {
    match time.as_millis() {
        0..=9 => format!("{:.2} ms", time.as_secs_f64() * 1000.0),
        10..=9_999 => format!("{} ms", time.as_millis()),
        _ => format!("{} s", time.as_secs()),
    }
}

/// Returns the times of round trips, in ascending order.
fn latency(lock: &Lock) -> Result<Vec<Duration>, Error> {
    // The first request connects, so it is not timed.
    lock.is_locked()?;
    let end = Instant::now() + TIMING;
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    while times.len() < ROUND_TRIPS && (times.is_empty() || Instant::now() < end) {
        let start = Instant::now();
        lock.is_locked()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

/// Returns `false` if the lock was refused.
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
        Ok(true) => Finding::ok(node, "dry-run", "a lock was acquired and released"),
        Ok(false) => Finding::danger(
            node,
            "dry-run",
            "a lock was refused although no other client uses its name",
            "check whether a proxy replies in place of the server",
        ),
        Err(error) => Finding::of_error(Some(node), "dry-run", &error),
    }
}

/// Compares how much of a lease has elapsed on the server with the local time. Returns bounds for the rate of the server's
/// clock relative to the local clock.
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
    // The server rounds the remaining lease to milliseconds.
    let passed = first.left.as_secs_f64() - second.left.as_secs_f64();
    let (least, most) = (
        (second.before - first.after).as_secs_f64(),
        (second.after - first.before).as_secs_f64(),
    );
    Ok(((passed - 0.001) / most, (passed + 0.001) / least))
}

/// The remaining lease at an unknown instant between `before` and `after`.
struct LeaseSample {
    before: Instant,
    left: Duration,
    after: Instant,
}

/// Queries the remaining lease 20 times. Returns the sample with the shortest round trip.
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
        let round_trip = |it: &LeaseSample| it.after - it.before;
        if best
            .as_ref()
            .is_none_or(|best| round_trip(&sample) < round_trip(best))
        {
            best = Some(sample);
        }
    }
    // This default is never used, because the loop took at least one sample.
    let now = Instant::now();
    Ok(best.unwrap_or(LeaseSample {
        before: now,
        left: Duration::ZERO,
        after: now,
    }))
}

/// The number of waiters of this process that a message has woken.
static WOKEN: AtomicU64 = AtomicU64::new(0);

pub(crate) struct WakeUpCounter;

impl Observer for WakeUpCounter {
    fn event(&self, event: &Event<'_>) {
        if let Event::Acquired { via: "woken", .. } = event {
            WOKEN.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the time from an unlock until a waiter of another client is woken. `None` if no message arrives.
fn wake_up_latency(lock: &Lock, waiting: &Lock) -> Result<Option<Duration>, Error> {
    let woken = || WOKEN.load(Ordering::Relaxed);
    for _ in 0..MESSAGES {
        if !lock.try_lock()? {
            return Ok(None);
        }
        let before = woken();
        let (woken_at, unlocked_at) = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let taken = waiting.try_lock_for(MESSAGE * 2)?;
                let at = Instant::now();
                if taken {
                    waiting.unlock()?;
                }
                Ok::<_, Error>(at)
            });
            let end = Instant::now() + MESSAGE / 3;
            // If the server cannot count listeners, this loop ends at `end`. By then the waiter has subscribed.
            while Instant::now() < end
                && !matches!(lock.describe(), Ok(info) if info.listening > Some(0))
            {
                thread::sleep(Duration::from_millis(5));
            }
            // After it has subscribed, a waiter tries the lock once more.
            thread::sleep(Duration::from_millis(20));
            let unlocked_at = Instant::now();
            let unlocked = lock.unlock();
            let woken_at = waiter.join().unwrap_or_else(|_| Ok(Instant::now()));
            unlocked
                .and(woken_at)
                .map(|woken_at| (woken_at, unlocked_at))
        })?;
        if woken() > before {
            return Ok(Some(woken_at.saturating_duration_since(unlocked_at)));
        }
    }
    Ok(None)
}
