use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::ground::loss::Loss;
use crate::ground::metrics;

/// Receives the events of a client's locks.
///
/// [`Builder::observer`](crate::Builder::observer) sets the observer of a client. The observer is called on the thread that
/// caused the event, while that thread holds no mutex of this library. The observer delays that thread, so the observer
/// should return quickly. The observer must not acquire or release locks of this library. Panics of the observer are caught.
/// The feature `metrics` needs no observer.
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
    /// Receives one event.
    fn event(&self, event: &Event<'_>);
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn event(&self, event: &Event<'_>) {
        (**self).event(event);
    }
}

/// An event of a client's locks, requests or connections.
///
/// `docs/observability.md` explains the values of `via`, `outcome`, `end`, `operation` and `result`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A thread acquired a lock.
    #[non_exhaustive]
    Acquired {
        /// The [class](crate::Builder::lock_class) of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
        /// The duration of the call.
        waited: Duration,
        /// How the lock was acquired: `free`, `woken`, `polled`, `handed` or `reentered`.
        via: &'static str,
    },
    /// A call ended without the lock.
    #[non_exhaustive]
    NotAcquired {
        /// The class of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
        /// The duration of the call.
        waited: Duration,
        /// `refused`, `interrupted` or `failed`.
        outcome: &'static str,
    },
    /// A call was refused the lock, or has to wait for it. Each call sends this event at most once.
    #[non_exhaustive]
    Contended {
        /// The class of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
    },
    /// A hold has ended in this client. Only the result of the unlock says whether the store released the hold.
    #[non_exhaustive]
    Ended {
        /// The class of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
        /// The duration of the hold.
        held: Duration,
        /// `unlocked` or `lost`.
        end: &'static str,
    },
    /// A hold was lost. Each hold sends this event at most once; see [`Builder::on_lost`](crate::Builder::on_lost).
    #[non_exhaustive]
    Lost {
        /// The class of the lock.
        class: &'a str,
        /// The loss.
        loss: &'a Loss,
    },
    /// A request to the store has ended.
    #[non_exhaustive]
    Request {
        /// The name of the operation.
        operation: &'static str,
        /// `ok`, `refused`, `gone`, `unknown`, `unreachable`, `unavailable`, `denied` or `failed`. If the request
        /// concerned several holds, this is the result for the first hold.
        result: &'static str,
        /// The duration of the request, including connecting and repetitions.
        took: Duration,
    },
    /// An attempt to connect to a server has ended.
    #[non_exhaustive]
    Connected {
        /// The name of the server.
        node: &'a str,
        /// `ok`, `unreachable`, `refused` or `untrusted`.
        result: &'static str,
        /// The duration of the attempt.
        took: Duration,
    },
    /// A call has waited for a long time. The event is sent again each time the waiting time has doubled.
    #[non_exhaustive]
    LongWait {
        /// The class of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
        /// The number of the waiting thread, or of the [`OwnedGuard`](crate::OwnedGuard) that the call acquires.
        thread: u64,
        /// The time waited so far.
        waited: Duration,
        /// The id of the hold that caused the last refusal, if the store returned this id.
        holder: Option<&'a str>,
        /// The number of other threads of this client that wait for the lock.
        others: usize,
    },
    /// A renewed hold has lasted for a long time. The event is sent again each time the duration has doubled.
    #[non_exhaustive]
    LongHold {
        /// The class of the lock.
        class: &'a str,
        /// The name of the lock, prefix included.
        lock: &'a str,
        /// The number of the holding thread or [`OwnedGuard`](crate::OwnedGuard).
        thread: u64,
        /// The time held so far.
        held: Duration,
    },
}

#[derive(Clone, Default)]
pub(crate) struct Observed(Option<Arc<dyn Observer>>);

impl Observed {
    pub(crate) fn by(observer: Arc<dyn Observer>) -> Observed {
        Observed(Some(observer))
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.0.is_some() || cfg!(feature = "metrics")
    }

    /// The caller must hold no mutex of this library, because this function calls user code.
    pub(crate) fn tell<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if !self.is_heard() {
            return;
        }
        drop(catch_unwind(AssertUnwindSafe(|| {
            let event = event();
            if let Some(observer) = &self.0 {
                observer.event(&event);
            }
            metrics::record(&event);
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
