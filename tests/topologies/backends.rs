//! The sets of servers on which the laws run here: sentinels, a cluster, a master with replicas, TLS.

use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Guard, Interrupt, Lock, Locks};

use crate::laws::Settings;
use crate::support::topology_fixtures::sentinels::NAME;
use crate::support::topology_fixtures::{AGREEMENT, Cluster, Replicas, Sentinels};
pub(crate) use crate::support::{elsewhere, is_long, timed};
use crate::support::{eventually, ms};

/// The watchdog's lease in these tests: long enough for a busy machine, short enough to wait for.
pub(crate) const LEASE: Duration = ms(900);

/// A lease long enough for renewals on a busy machine.
pub(crate) const KEPT: Duration = ms(3000);

/// The slack of a busy machine.
pub(crate) const SLACK: Duration = ms(2500);

/// A set of servers shared by the laws, with a name prefix for each law.
pub(crate) struct Backend {
    open: Box<dyn Fn(Builder) -> Client + Send + Sync>,
    prefix: String,
    kind: Kind,
}

/// A constructor of locks of one kind.
type Kind = fn(&Client, &str) -> Lock;

/// The source of the locks of one process.
pub(crate) struct Source(Client, Kind);

impl Source {
    pub(crate) fn lock(&self, name: &str) -> Lock {
        self.1(&self.0, name)
    }

    pub(crate) fn locks(&self, prefix: &str) -> Locks {
        self.0.locks(prefix).with_tokens()
    }

    pub(crate) fn shutdown(&self) {
        self.0.shutdown();
    }
}

impl Backend {
    fn of(open: impl Fn(Builder) -> Client + Send + Sync + 'static) -> Backend {
        Backend {
            open: Box::new(open),
            prefix: format!("{:016x}:", fastrand::u64(..)),
            kind: Client::lock,
        }
    }

    /// The same set with locks of another kind.
    fn of_kind(self, kind: Kind) -> Backend {
        Backend { kind, ..self }
    }

    pub(crate) fn sentinel() -> Backend {
        static SHARED: Mutex<Weak<Sentinels>> = Mutex::new(Weak::new());
        let set = shared(&SHARED, Sentinels::start);
        Backend::of(move |builder| builder.sentinel(NAME, set.urls()).unwrap())
    }

    pub(crate) fn cluster() -> Backend {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let set = shared(&SHARED, Cluster::masters);
        Backend::of(move |builder| builder.cluster(set.urls()).unwrap())
    }

    pub(crate) fn replicas() -> Backend {
        static SHARED: Mutex<Weak<Replicas>> = Mutex::new(Weak::new());
        let set = shared(&SHARED, || Replicas::start(1));
        Backend::of(move |builder| {
            // Every grant is acknowledged, so the laws run with acknowledgement as well.
            let builder = builder.wait_replicas(1, ms(1000));
            builder.master_replicas(set.urls()).unwrap()
        })
    }

    pub(crate) fn fenced_behind_sentinels() -> Backend {
        Backend::sentinel().of_kind(Client::fenced_lock)
    }

    pub(crate) fn fenced_in_a_cluster() -> Backend {
        Backend::cluster().of_kind(Client::fenced_lock)
    }

    pub(crate) fn fenced_on_replicas() -> Backend {
        Backend::replicas().of_kind(Client::fenced_lock)
    }

    /// A client of this backend; each call represents another process.
    pub(crate) fn client(&self) -> Source {
        self.client_with(Settings::default().watchdog_timeout(LEASE))
    }

    pub(crate) fn client_with(&self, settings: Settings) -> Source {
        let client = (self.open)(settings.builder().key_prefix(&self.prefix));
        Source(client, self.kind)
    }

    /// Whether a grant needs several servers.
    pub(crate) fn is_slow(&self) -> bool {
        false
    }

    /// Keeps no handle of any client.
    pub(crate) fn forget_clients(&self) {}

    /// The number of lock requests that its servers received; `None` where they are shared.
    pub(crate) fn requests(&self) -> Option<u64> {
        None
    }
}

/// Servers shared by the running tests; they end with the last of them.
fn shared<T>(cell: &'static Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
    cell.upgrade().unwrap_or_else(|| {
        let set = Arc::new(start());
        *cell = Arc::downgrade(&set);
        set
    })
}

/// Runs every law on every backend.
macro_rules! laws {
    ($($law:ident)*) => {
        laws! { @sentinel $($law)* }
        laws! { @cluster $($law)* }
        laws! { @replicas $($law)* }
    };
    (
        every { $($law:ident)* }
        reentrant { $($more:ident)* }
        with_data { $($data:ident)* }
        without_data { $($none:ident)* }
    ) => {
        laws! { $($law)* $($more)* $($data)* }
    };
    (looks { $($law:ident)* }) => {
        laws! { $($law)* }
    };
    (spin { $($law:ident)* }) => {
        laws! { $($law)* }
    };
    (fenced { $($law:ident)* }) => {
        laws! { @fenced_behind_sentinels $($law)* }
        laws! { @fenced_in_a_cluster $($law)* }
        laws! { @fenced_on_replicas $($law)* }
    };
    (@$backend:ident $($law:ident)*) => {
        mod $backend {
            $(
                #[test]
                #[ignore = "needs several servers: make topologies"]
                fn $law() { super::$law(&crate::backends::Backend::$backend()); }
            )*
        }
    };
}

/// Waits until the hold is renewed again.
#[track_caller]
pub(crate) fn is_renewed(guard: &Guard) {
    let ends = || Instant::now() + guard.remaining_validity();
    let (end, lost) = (ends(), guard.lost());
    eventually(Duration::from_secs(20), "it is renewed", || {
        assert!(guard.is_valid(), "{:?}", lost.recv());
        ends() > end + ms(50)
    });
}

/// The channel of the unlock messages of the lock `name`.
pub(crate) fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Acquires and releases the lock, and checks that nothing is left.
#[track_caller]
pub(crate) fn all_works(lock: &Lock) {
    assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
    assert!(lock.is_held_by_current_thread().unwrap());
    lock.unlock().unwrap();
    assert!(!lock.is_held_by_current_thread().unwrap());
}

/// Lets `waiter` wait for the lock of `holder`, runs `meanwhile`, unlocks, and returns how long the waiter then
/// needed.
#[track_caller]
pub(crate) fn hand_over(holder: &Lock, waiter: &Lock, meanwhile: impl FnOnce()) -> Duration {
    assert!(holder.try_lock_for(Duration::from_secs(20)).unwrap());
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let _end = RaiseInPanic(&interrupt);
        let waiting = scope.spawn(|| {
            waiter.lock_interruptibly(&interrupt).unwrap();
            let now = Instant::now();
            waiter.unlock().unwrap();
            now
        });
        meanwhile();
        // One more attempt comes between the subscription and the sleep.
        thread::sleep(ms(100));
        let freed = Instant::now();
        holder.unlock().unwrap();
        waiting.join().unwrap().duration_since(freed)
    })
}

/// Ends the waiter when the rest of the test has failed.
struct RaiseInPanic<'a>(&'a Interrupt);

impl Drop for RaiseInPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.raise();
        }
    }
}

/// Hands a lock over repeatedly, the first time with `meanwhile` in between: a message wakes the waiter.
///
/// A waiter without messages polls once a second, so half of the times would be above half a second.
#[track_caller]
pub(crate) fn is_woken(holder: &Lock, waiter: &Lock, meanwhile: impl FnOnce()) {
    let mut times = vec![hand_over(holder, waiter, meanwhile)];
    assert!(times[0] < SLACK, "{times:?}");
    times.extend((0..8).map(|_| hand_over(holder, waiter, || thread::sleep(ms(50)))));
    times.sort_unstable();
    assert!(times[times.len() / 2] < ms(200), "{times:?}");
}

/// The results of a thread that acquires and releases a lock repeatedly.
pub(crate) struct Grants {
    times: Vec<Instant>,
}

impl Grants {
    /// Acquires and releases `lock` while `meanwhile` runs, and once more after the instant that it returns.
    pub(crate) fn during(lock: &Lock, meanwhile: impl FnOnce() -> Instant) -> (Grants, Instant) {
        let (end, begun) = (OnceLock::new(), Barrier::new(2));
        thread::scope(|scope| {
            let locking = scope.spawn(|| {
                all_works(lock);
                begun.wait();
                let (mut times, start) = (Vec::new(), Instant::now());
                loop {
                    assert!(start.elapsed() < AGREEMENT * 2, "no grant");
                    match lock.try_lock_for(Duration::from_secs(20)) {
                        Ok(true) => times.push(Instant::now()),
                        Ok(false) => continue,
                        Err(error) => {
                            assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
                            continue;
                        }
                    }
                    if let Err(error) = lock.unlock() {
                        assert!(
                            error.is_retryable() || error.is_ambiguous() || error.is_lost(),
                            "{error}"
                        );
                    }
                    if end.get().is_some_and(|end| times.last() > Some(end)) {
                        return times;
                    }
                    thread::sleep(ms(1));
                }
            });
            begun.wait();
            let over = *end.get_or_init(meanwhile);
            let times = locking.join().unwrap();
            (Grants { times }, over)
        })
    }

    /// How long after `moment` the first grant was.
    pub(crate) fn first_after(&self, moment: Instant) -> Duration {
        let first = self.times.iter().find(|time| **time >= moment);
        first.expect("there are grants").duration_since(moment)
    }

    /// The longest time without a grant.
    pub(crate) fn longest_gap(&self) -> Duration {
        let gaps = self
            .times
            .windows(2)
            .map(|pair| pair[1].duration_since(pair[0]));
        gaps.max().unwrap_or_default()
    }
}
