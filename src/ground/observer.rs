//! The way from this library to the program that observes it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::ground::loss::Loss;
use crate::ground::numbers;

/// Hears what happens to the locks of a client, as it happens.
///
/// [`Builder::observer`](crate::Builder::observer) sets one. It is called on the thread that an event is about, with no mutex
/// of this library locked, and delays that thread: it is to be quick, and not to lock or unlock. A panic in it is contained.
/// With the feature `metrics` numbers need no observer.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use redlatch::{Client, Event, Observer};
///
/// #[derive(Default)]
/// struct Waited(AtomicU64);
///
/// impl Observer for Waited {
///     fn event(&self, event: &Event<'_>) {
///         if let Event::Acquired { waited, .. } = event {
///             self.0.fetch_add(waited.as_micros() as u64, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let waited = Arc::new(Waited::default());
/// let client = Client::builder().observer(Arc::clone(&waited)).in_memory()?;
/// client.lock("orders:42").run(|_| ())?;
/// println!("{} µs", waited.0.load(Ordering::Relaxed));
/// # Ok::<(), redlatch::Error>(())
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Hears of one event.
    fn event(&self, event: &Event<'_>);
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn event(&self, event: &Event<'_>) {
        (**self).event(event);
    }
}

/// Something that happened to the locks of a client.
///
/// The words of `via`, `outcome`, `end`, `operation` and `result` are those of the labels in `docs/observability.md`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A thread got a lock.
    #[non_exhaustive]
    Acquired {
        /// The [class](crate::Builder::lock_class) of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
        /// How long the call took.
        waited: Duration,
        /// The way it came to it: `free`, `woken`, `polled`, `handed` or `reentered`.
        via: &'static str,
    },
    /// A call ended without the lock.
    #[non_exhaustive]
    NotAcquired {
        /// The class of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
        /// How long the call took.
        waited: Duration,
        /// `refused`, `interrupted` or `failed`.
        outcome: &'static str,
    },
    /// A call found somebody else there first; once for each call.
    #[non_exhaustive]
    Contended {
        /// The class of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
    },
    /// A hold has ended here; what becomes of the request that gives it back is told by the unlock.
    #[non_exhaustive]
    Ended {
        /// The class of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
        /// How long the hold lasted.
        held: Duration,
        /// `unlocked` or `lost`.
        end: &'static str,
    },
    /// A hold was lost; told once for each, and at the same time as to [`Builder::on_lost`](crate::Builder::on_lost).
    #[non_exhaustive]
    Lost {
        /// The class of the lock.
        class: &'a str,
        /// The loss.
        loss: &'a Loss,
    },
    /// A request has ended.
    #[non_exhaustive]
    Request {
        /// The operation.
        operation: &'static str,
        /// Its result; of one that concerns several holds, that of the first.
        result: &'static str,
        /// How long it took, connecting and repetitions included.
        took: Duration,
    },
    /// An attempt to connect to a server has ended.
    #[non_exhaustive]
    Connected {
        /// The server.
        node: &'a str,
        /// `ok`, `unreachable`, `refused` or `untrusted`.
        result: &'static str,
        /// How long it took.
        took: Duration,
    },
    /// A call has waited for long; told again each time that the time has doubled.
    #[non_exhaustive]
    LongWait {
        /// The class of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
        /// The number of the thread that waits.
        thread: u64,
        /// How long it has waited.
        waited: Duration,
        /// The hold that refused it last, where the store names it.
        holder: Option<&'a str>,
        /// How many other threads of this client wait for the same lock.
        others: usize,
    },
    /// A hold that the watchdog renews has lasted for long; told again each time that the time has doubled.
    #[non_exhaustive]
    LongHold {
        /// The class of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
        /// The number of the thread that holds it.
        thread: u64,
        /// How long it has lasted.
        held: Duration,
    },
}

/// The observer of a client, if it has one.
#[derive(Clone, Default)]
pub(crate) struct Observed(Option<Arc<dyn Observer>>);

impl Observed {
    pub(crate) fn by(observer: Arc<dyn Observer>) -> Observed {
        Observed(Some(observer))
    }

    /// Whether anybody hears of events.
    pub(crate) fn is_heard(&self) -> bool {
        self.0.is_some() || cfg!(feature = "metrics")
    }

    /// Tells of an event, with no mutex of this library locked.
    pub(crate) fn tell<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if !self.is_heard() {
            return;
        }
        // What the observer or a recorder does wrong stays its own affair.
        drop(catch_unwind(AssertUnwindSafe(|| {
            let event = event();
            if let Some(observer) = &self.0 {
                observer.event(&event);
            }
            numbers::record(&event);
        })));
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "an observer",
            None => "nobody",
        })
    }
}
