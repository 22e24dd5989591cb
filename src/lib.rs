//! Blocking, reentrant, self-renewing locks on Redis, with the contract of `java.util.concurrent.locks.Lock`.
//!
//! Threads of many processes share a [`Lock`] by its name. While a lock without a fixed lease is held, a background
//! thread renews it. An unlock wakes waiters. The lock uses the wire format of Redisson's `RLock`, so Rust and Java
//! processes exclude and wake each other.
//!
//! **A lock is a lease, not a mutex.** If the server is silent for too long or loses its data, the lock is lost while
//! the thread that acquired it continues to work. [`Guard::is_valid`], [`Guard::lost`], [`Builder::on_lost`] and the
//! result of [`Guard::unlock`] report the loss. The lock may be lost right after any check. So a resource that must
//! never serve two holders has to check a [fencing token](Guard::fencing_token).
//!
//! ```no_run
//! use redlatch::Client;
//!
//! let client = Client::open("redis://127.0.0.1:6379")?;
//! let lock = client.lock("lock:orders:42");
//!
//! let guard = lock.guard()?; // waits for the lock; dropping the guard unlocks
//! // … one thread of one process at a time …
//! guard.unlock()?; // as the drop does, and returns the error
//!
//! lock.run(|_| println!("alone"))?; // acquires, runs the closure, and unlocks
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! [`Lock::lock`] and [`Lock::unlock`] acquire and release without a guard, as in Java.
//!
//! | lock | is |
//! |---|---|
//! | [`Client::lock`] | reentrant, on one Redis; with a `mysql://` URL a row in a table |
//! | [`Redlock::lock`] | reentrant, on several independent masters, granted by a majority of them |
//! | [`Client::token_lock`] | the plain lock of the Redis documentation, shared with other languages |
//! | [`Client::fair_lock`] | acquired in the order of arrival over all processes, shared with Redisson |
//! | [`Client::fenced_lock`] | with a fencing token that rises with each hold, shared with Redisson |
//! | [`Client::read_write_lock`] | many readers or one writer, shared with Redisson |
//! | [`MultiLock::of`] | several locks acquired together |
//! | [`Client::semaphore`] | permits that become free after their holder died, shared with Redisson |
//! | [`Client::permit_semaphore`] | permits with ids, which any process can release, shared with Redisson |
//! | [`Lock::condition`] | a condition variable for threads that hold a lock |
//! | [`Client::latch`] | a gate that opens when its count reaches 0, shared with Redisson |
//!
//! The README of the repository lists the guarantees of a lock, and links to the pages in `docs/`.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `tracing` | spans for waits and holds, and events for acquired, contended, renewed and lost locks, unknown outcomes and reconnects (target `redlatch`) |
//! | `metrics` | counters, gauges and histograms, some labelled by [class](Builder::lock_class), recorded through the crate `metrics` |
//! | `tls` | `rediss://` and `mysqls://`: TLS with rustls, private certificate authorities and client certificates |
//! | `mysql` | locks in a MySQL or MariaDB database: [`Lock`] with fencing tokens and transactions, row locks, optimistic updates (module `mysql`) |
//! | `in-memory` | [`Client::in_memory`]: a Redis inside the process that runs the same scripts, for examples and tests; needs a C compiler |
//! | `test-util` | the module `testing`: control of clocks and renewals; the feature `in-memory` includes `test-util` and adds control of the server |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(unix))]
compile_error!("redlatch runs on Unix systems only");

// The unit tests share `tests/support`, which imports this crate by its name.
#[cfg(all(test, feature = "test-util"))]
extern crate self as redlatch;
#[cfg(all(test, feature = "test-util"))]
#[path = "../tests/support/mod.rs"]
mod support;

mod activity;
mod builder;
mod checks;
mod client;
mod condition;
mod engine;
mod ground;
mod guard;
mod guarded;
mod latch;
mod lock;
mod losses;
mod multi_lock;
#[cfg(feature = "mysql")]
pub mod mysql;
mod permit_semaphore;
mod read_write_lock;
mod redlock;
mod semaphore;
mod store;
mod stores;
mod survey;
#[cfg(feature = "test-util")]
pub mod testing;

pub use activity::{ActiveHold, ActiveWait, Activity, ConnectionStats};
pub use builder::Builder;
pub use client::Client;
pub use condition::Condition;
pub use engine::owner::current_thread_id;
pub use ground::claim::VisitorId;
pub use ground::error::{Error, IoSource, NodeAnswer, Result, RunError};
pub use ground::guarded_work::Batch;
pub use ground::interrupt::Interrupt;
pub use ground::loss::{Loss, LossCause, NoLoss};
pub use ground::observer::{Event, Observer};
pub use ground::permit_id::PermitId;
pub use ground::reply::Reply;
pub use guard::{Guard, OwnedGuard};
pub use latch::Latch;
pub use lock::Lock;
pub use losses::Losses;
pub use multi_lock::MultiLock;
pub use permit_semaphore::PermitSemaphore;
pub use read_write_lock::ReadWriteLock;
pub use redlock::{Redlock, RedlockBuilder};
pub use semaphore::{Permits, Semaphore};
pub use store::{HealthWarning, Holder, LockInfo, LockKind, Severity};
pub use survey::Locks;

/// The README and pages of `docs/` as doctests. `tests/worlds` runs the code of `docs/worlds.md`.
#[cfg(doctest)]
mod documents {
    macro_rules! pages {
        ($($(#[$cfg:meta])? $name:ident = $page:expr;)*) => {
            $($(#[$cfg])? #[doc = $page] mod $name {})*
        };
    }

    pages! {
        readme = include_str!("../README.md");
        guarantees = include_str!("../docs/guarantees.md");
        #[cfg(feature = "in-memory")] kinds = include_str!("../docs/kinds.md");
        failures = include_str!("../docs/failures.md");
        configuration = include_str!("../docs/configuration.md");
        rights = include_str!("../docs/rights.md");
        redisson = include_str!("../docs/redisson.md");
        redlock = include_str!("../docs/redlock.md");
        #[cfg(feature = "mysql")] database = include_str!("../docs/database.md");
        benchmarks = include_str!("../docs/benchmarks.md");
        observability = include_str!("../docs/observability.md");
        #[cfg(feature = "test-util")] testing = include_str!("../docs/testing.md");
        from_redisson = include_str!("../docs/migrate/redisson.md");
        from_set_nx = include_str!("../docs/migrate/set-nx.md");
        from_rslock_redlock = include_str!("../docs/migrate/rslock-redlock.md");
        from_flock_consul = include_str!("../docs/migrate/flock-consul.md");
    }
}
