//! Redisson behind sentinels and in a cluster, each side in its users' usual mode.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Lock};

use crate::driver::unique;
use crate::exclusion::bounded;
use crate::fixture::{LONG, RunLock, SLACK, report, timed};
use crate::jvm::{CLUSTER, JavaLock, Jvm, Redisson, version};
use crate::support::topology_fixtures::sentinels::NAME;
use crate::support::topology_fixtures::{AGREEMENT, Cluster, Node, Sentinels};
use crate::support::{eventually, ms};

/// Makes two tests of each function, behind sentinels and in a cluster.
macro_rules! everywhere {
    ($($test:ident)*) => {
        everywhere! { @sentinel Sentinel $($test)* }
        everywhere! { @cluster Cluster $($test)* }
    };
    (@$module:ident $kind:ident $($test:ident)*) => {
        mod $module {
            use super::Kind;

            $(
                #[test]
                #[ignore = "needs Java: make interop"]
                fn $test() { super::$test(Kind::$kind); }
            )*
        }
    };
}

everywhere! {
    an_unlock_wakes_the_other_side
    both_sides_go_on_after_the_death_of_a_master
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Sentinel,
    Cluster,
}

/// Several servers.
enum Set {
    Sentinel(Sentinels),
    Cluster(Cluster),
}

impl Set {
    fn start(kind: Kind) -> Set {
        match kind {
            Kind::Sentinel => Set::Sentinel(Sentinels::start()),
            Kind::Cluster => Set::Cluster(Cluster::start()),
        }
    }

    /// The servers shared by all running tests that inject no faults; they end with the last test.
    fn shared(kind: Kind) -> Arc<Set> {
        static SENTINEL: Mutex<Weak<Set>> = Mutex::new(Weak::new());
        static CLUSTER: Mutex<Weak<Set>> = Mutex::new(Weak::new());
        let cell = match kind {
            Kind::Sentinel => &SENTINEL,
            Kind::Cluster => &CLUSTER,
        };
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        cell.upgrade().unwrap_or_else(|| {
            // This many servers at once would disturb tests that measure time.
            let _run_lock = RunLock::together();
            let set = Arc::new(Set::start(kind));
            *cell = Arc::downgrade(&set);
            set
        })
    }

    fn nodes(&self) -> &[Node] {
        match self {
            Set::Sentinel(set) => &set.nodes,
            Set::Cluster(cluster) => &cluster.nodes,
        }
    }

    /// A client of ours with sharded messages, if there are any, or with plain ones.
    fn rust(&self, lease: Duration, is_sharded: bool) -> Client {
        let builder = Client::builder().watchdog_timeout(lease);
        match self {
            Set::Sentinel(set) => builder.sentinel(NAME, set.urls()),
            // The default is the mode of the newest generation.
            Set::Cluster(cluster) if is_sharded => builder.cluster(cluster.urls()),
            Set::Cluster(cluster) => builder.sharded_pubsub(false).cluster(cluster.urls()),
        }
        .unwrap()
    }

    /// Whether this Redisson client uses sharded messages.
    ///
    /// The first generations that support them choose at random: they send `SPUBLISH` for the channel with the empty
    /// name to some master, and treat a `MOVED` reply as "not supported".
    fn has_sharded_messages(&self, java: &Redisson) -> bool {
        let name = self.name(&format!("asked{}-", unique()), 0);
        let (holder, waiter) = (java.lock(&name), java.lock(&name));
        holder.lock();
        let waiting = waiter.start("lock", &[]);
        let mut found = (0, 0);
        eventually(SLACK * 2, "Redisson listens", || {
            found = self.listeners(&name);
            found != (0, 0)
        });
        holder.unlock();
        waiting.value();
        waiter.unlock();
        let is_sharded = found == (1, 0);
        assert!(is_sharded || found == (0, 1), "{found:?}");
        if matches!(self, Set::Sentinel(_)) || version() < (3, 22) {
            assert!(!is_sharded);
        } else if version() >= (4, 0) {
            assert!(is_sharded);
        }
        is_sharded
    }

    fn java(&self, lease: Duration) -> Redisson {
        let (mode, urls) = match self {
            Set::Sentinel(set) => (NAME, set.urls()),
            Set::Cluster(cluster) => (CLUSTER, cluster.urls()),
        };
        Redisson::open_set(&Jvm::shared(), mode, &urls, lease)
    }

    /// A name with this prefix; in a cluster, on this shard.
    fn name(&self, stem: &str, shard: usize) -> String {
        match self {
            Set::Sentinel(_) => stem.to_owned(),
            Set::Cluster(cluster) => cluster.name_at(shard % 3, stem),
        }
    }

    /// The number of subscribers of `name`: sharded and plain.
    fn listeners(&self, name: &str) -> (u32, u32) {
        let count = |question: &str| {
            let listeners = self.nodes().iter().filter_map(|node| {
                let reply = node.try_cmd(&["PUBSUB", question, &channel(name)]).ok()?;
                let (_, listeners): (String, u32) = redis::from_redis_value(reply).ok()?;
                Some(listeners)
            });
            listeners.sum()
        };
        (count("SHARDNUMSUB"), count("NUMSUB"))
    }

    /// Waits until `name` has this many subscribers, all sharded or all plain.
    #[track_caller]
    fn until_listening(&self, name: &str, wanted: u32, is_sharded: bool) {
        let expected = if is_sharded { (wanted, 0) } else { (0, wanted) };
        let mut found = (0, 0);
        let start = Instant::now();
        while start.elapsed() < SLACK * 2 && {
            found = self.listeners(name);
            found != expected
        } {
            thread::sleep(ms(2));
        }
        assert_eq!(found, expected, "sharded and plain listeners");
        // One more attempt comes between the subscription and the sleep.
        thread::sleep(ms(50));
    }

    /// Kills the server with the lock `name` and waits until a replica with all locks is promoted.
    fn lose_master(&self, name: &str) {
        match self {
            Set::Sentinel(set) => {
                set.nodes[set.master()].replicate(2, name);
                set.lose_master();
            }
            Set::Cluster(cluster) => {
                cluster.nodes[cluster.owner_of(name)].replicate(1, name);
                cluster.lose_owner(name);
            }
        }
    }
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// A set of servers with a client of either side. Clients are dropped first.
struct BothSides {
    rust: Client,
    java: Redisson,
    set: Arc<Set>,
    is_sharded: bool,
    _run_lock: RunLock,
}

impl BothSides {
    fn of(set: Arc<Set>, turn: RunLock, lease: Duration) -> BothSides {
        let java = set.java(lease);
        let is_sharded = set.has_sharded_messages(&java);
        BothSides {
            rust: set.rust(lease, is_sharded),
            java,
            set,
            is_sharded,
            _run_lock: turn,
        }
    }

    #[track_caller]
    fn until_listening(&self, name: &str, wanted: u32) {
        self.set.until_listening(name, wanted, self.is_sharded);
    }

    fn locks(&self, name: &str) -> (Lock, JavaLock) {
        (self.rust.lock(name), self.java.lock(name))
    }
}

fn an_unlock_wakes_the_other_side(kind: Kind) {
    let set = Set::shared(kind);
    let sides = BothSides::of(set, RunLock::alone(), LONG);
    let (mut java_woke, mut we_woke) = (Vec::new(), Vec::new());
    for round in 0..12 {
        // A subscription of ours stays for a while, so each round has its own name.
        let name = sides.set.name(&format!("woken{round}-"), round);
        let (rust, java) = sides.locks(&name);
        rust.lock().unwrap();
        let waiting = java.start("lock", &[]);
        sides.until_listening(&name, 1);
        let (took, ()) = timed(|| {
            rust.unlock().unwrap();
            waiting.value();
        });
        assert!(took < SLACK, "Redisson slept for the lease: {took:?}");
        java_woke.push(took);

        sides.until_listening(&name, 0);
        we_woke.push(thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                rust.lock().unwrap();
                let woken = Instant::now();
                rust.unlock().unwrap();
                woken
            });
            sides.until_listening(&name, 1);
            let start = Instant::now();
            java.unlock();
            waiting.join().unwrap().duration_since(start)
        }));
    }
    let messages = if sides.is_sharded { "sharded" } else { "plain" };
    let what = format!("{kind:?}, {messages} messages");
    bounded(&format!("{what}: our unlock wakes Redisson"), java_woke);
    bounded(&format!("{what}: Redisson's unlock wakes us"), we_woke);
}

/// Either side holds a lock while the master of both dies.
fn both_sides_go_on_after_the_death_of_a_master(kind: Kind) {
    let turn = RunLock::together();
    let sides = BothSides::of(Arc::new(Set::start(kind)), turn, LONG);
    let ours = sides.set.name("orders", 1);
    let theirs = format!("{{{ours}}}:theirs");
    let (held, refused) = sides.locks(&ours);
    let (refuses, theirs_held) = sides.locks(&theirs);
    let guard = held.guard().unwrap();
    theirs_held.lock();
    let (took, ()) = timed(|| sides.set.lose_master(&ours));
    let (java_took, ()) = timed(|| {
        eventually(AGREEMENT, "Redisson goes on", || {
            let outcome = refused.start("tryLock", &["0", "-1"]).outcome();
            outcome.is_ok_and(|got| {
                assert_eq!(got, "false", "the lock is held");
                true
            })
        });
    });
    eventually(AGREEMENT, "we go on", || {
        refuses.try_lock().is_ok_and(|got| {
            assert!(!got, "the lock is held");
            true
        })
    });
    assert!(guard.is_valid());
    assert!(theirs_held.is_held());
    report(&format!(
        "{kind:?}: the new master was there after {took:.1?}, Redisson went on {java_took:.1?} later"
    ));

    let waiting = refused.start("lock", &[]);
    sides.until_listening(&ours, 1);
    let (took, ()) = timed(|| {
        guard.unlock().unwrap();
        waiting.value();
    });
    assert!(took < SLACK, "Redisson woke after {took:?}");
    refused.unlock();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            refuses.lock().unwrap();
            refuses.unlock().unwrap();
        });
        thread::sleep(ms(100));
        theirs_held.unlock();
        let (took, ()) = timed(|| waiting.join().unwrap());
        assert!(took < SLACK, "we woke after {took:?}");
    });
}

/// The purpose of [`sharded_pubsub`](redlatch::Builder::sharded_pubsub).
#[test]
#[ignore = "needs Java: make interop"]
fn locks_exclude_with_mixed_sharded_and_plain_messages() {
    let set = Set::shared(Kind::Cluster);
    let Set::Cluster(cluster) = &*set else {
        unreachable!()
    };
    let name = cluster.name_at(1, "misheard");
    let _run_lock = RunLock::together();
    let redisson = set.java(LONG);
    let is_sharded = set.has_sharded_messages(&redisson);
    let builder = Client::builder()
        .watchdog_timeout(LONG)
        .sharded_pubsub(!is_sharded);
    let rust = builder.cluster(cluster.urls()).unwrap().lock(&name);
    let java = redisson.lock(&name);

    rust.lock().unwrap();
    let waiting = java.start("lock", &[]);
    set.until_listening(&name, 1, is_sharded);
    rust.unlock().unwrap();
    assert!(waiting.still_runs_after(ms(1500)), "our message was heard");
    let publish = if is_sharded { "SPUBLISH" } else { "PUBLISH" };
    cluster.nodes[1].cmd(&[publish, &channel(&name), "0"]);
    waiting.value();

    assert!(!rust.try_lock().unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            rust.lock().unwrap();
            rust.unlock().unwrap();
        });
        thread::sleep(ms(100));
        java.unlock();
        let (took, ()) = timed(|| waiting.join().unwrap());
        assert!(took < SLACK, "the cap of our sleep: {took:?}");
    });
}
