//! The semaphore and its permits.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::wait_loop::WaitLimit;
use crate::ground::claim::{LARGEST_COUNT, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::interrupt::Interrupt;
use crate::guard::OwnedGuard;
use crate::lock::Lock;
use crate::losses::Losses;
use crate::store::CountStep;

/// A number of permits that threads of many processes share by its name.
///
/// It is Redisson's `RSemaphore`, with the meaning of `java.util.concurrent.Semaphore`: an acquisition takes permits, and
/// waits until enough are free. In this library the permits belong to the returned [`Permits`]. They are free again when the
/// [`Permits`] are dropped, or one lease after their process died.
///
/// * **Acquisitions wait until the semaphore has been set.** Call [`Semaphore::try_set`] first; it sets the permits
///   once.
/// * The next acquisition or wait of any client of this library frees the permits of dead holders. **Redisson does
///   not.**
/// * **Use a separate name.** A [`Latch`](crate::Latch) of the same name is the same number in Redis, and
///   [`Lock::force_unlock`] of a [`token_lock`](crate::Client::token_lock) of the same name deletes the semaphore.
/// * It is not reentrant: a thread that has permits and acquires more may wait for itself.
/// * The waiting threads of one client acquire permits in the order of arrival. [`Semaphore::try_acquire`] bypasses them.
///   There is no order among processes.
///
/// [`Client::semaphore`](crate::Client::semaphore) creates a semaphore without I/O; semaphores of the same name are the same
/// semaphore. A semaphore exists on one Redis server (also behind sentinels or in a cluster). A failover may lose a change
/// of the number of free permits, or apply it twice.
///
/// # Examples
///
/// ```
/// use redlatch::Client;
///
/// let client = Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
/// let semaphore = client.semaphore("semaphore:mail");
/// semaphore.try_set(3)?;
///
/// let two = semaphore.acquire(2)?; // waits; they are renewed until they are released
/// assert!(two.is_valid());
/// assert_eq!(semaphore.available()?, 1);
/// assert!(semaphore.try_acquire(2)?.is_none());
/// two.release()?;
/// assert_eq!(semaphore.available()?, 3);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    pub(crate) lock: Lock,
}

impl Semaphore {
    /// Returns the same semaphore with a fixed lease for the permits that are acquired through it.
    ///
    /// Permits with a fixed lease are not renewed, and are free after `lease`, released or not. 10 ms ..= 365 days; other
    /// values are [`Error::InvalidLease`] at the acquisition. Defaults to no fixed lease: the watchdog renews the permits.
    #[must_use = "this returns the configured semaphore; the original is unchanged"]
    pub fn with_lease_time(&self, lease: Duration) -> Semaphore {
        let lock = self.lock.with_lease_time(lease);
        Semaphore { lock }
    }

    /// Adds permits as [`Semaphore::add_permits`] does if there is a semaphore of this name, and returns whether
    /// there was one.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::add_permits`].
    pub fn add_permits_if_exists(&self, permits: i64) -> Result<bool> {
        let step = CountStep::AddIfThere(permits);
        Ok(self.lock.add_permits(permits, step)? == 1)
    }

    /// Takes all free permits, which then have no owner, and returns how many there were.
    ///
    /// Afterwards no permit is free, as in `java.util.concurrent`: a negative number of free permits is returned and becomes
    /// 0. Permits of dead holders are taken, too, but those of at most 5,000 holders.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::add_permits`].
    pub fn drain(&self) -> Result<i64> {
        self.lock.raw_lock().count(CountStep::Drain)
    }
}

/// The methods that both semaphores have.
macro_rules! counter_methods {
    ($semaphore:ident) => {
        impl $semaphore {
            /// Returns the name of the semaphore, key prefix included.
            pub fn name(&self) -> &str {
                self.lock.name()
            }

            /// Sets the number of permits, 0 ..= 2147483647, if there is no semaphore of this name, and returns
            /// whether it did.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) if `permits` is out of range, and those of
            /// [`Semaphore::add_permits`](crate::Semaphore::add_permits).
            pub fn try_set(&self, permits: u32) -> Result<bool> {
                self.lock.set_permits(permits, None)
            }

            /// Sets the number of permits as [`Semaphore::try_set`](crate::Semaphore::try_set) does, for a semaphore that
            /// expires after `life`.
            ///
            /// `life` is 1 ms ..= 365 days. No permit is valid for longer, whatever its lease.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidLease`](crate::Error::InvalidLease) if `life` is out of range, and those of
            /// [`Semaphore::try_set`](crate::Semaphore::try_set).
            pub fn try_set_for(&self, permits: u32, life: Duration) -> Result<bool> {
                self.lock.set_permits(permits, Some(life))
            }

            /// Acquires permits, and waits for them without a limit.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) for 0 permits, or more than 2147483647 (1000
            /// of a [`PermitSemaphore`](crate::PermitSemaphore)), and those of [`Lock::lock`](crate::Lock::lock) on
            /// one server. After an error nothing was acquired; after [`Error::Unknown`](crate::Error::Unknown) a
            /// background thread releases what the request may have acquired.
            pub fn acquire(&self, permits: u32) -> Result<Permits> {
                WaitLimit::without_end(None, |limit| self.lock.take_permits(permits, limit))
            }

            /// Acquires permits, and waits for them until `interrupt` is raised.
            ///
            /// # Errors
            ///
            /// [`Error::Interrupted`](crate::Error::Interrupted) once `interrupt` is raised, and those of
            /// [`Semaphore::acquire`](crate::Semaphore::acquire).
            pub fn acquire_interruptibly(
                &self,
                permits: u32,
                interrupt: &Interrupt,
            ) -> Result<Permits> {
                let take = |limit: WaitLimit<'_>| self.lock.take_permits(permits, limit);
                WaitLimit::without_end(Some(interrupt), take)
            }

            /// Acquires permits if enough are free now; `None` if not.
            ///
            /// The call sends one attempt, and bypasses the waiters of this client.
            ///
            /// # Errors
            ///
            /// Those of [`Semaphore::acquire`](crate::Semaphore::acquire), each after one attempt.
            #[must_use = "the permits are dropped, which releases them at once; bind them to a name"]
            pub fn try_acquire(&self, permits: u32) -> Result<Option<Permits>> {
                self.lock.take_permits(permits, WaitLimit::once())
            }

            /// Acquires permits, and waits for them at most `wait`; `None` if the wait is over.
            ///
            /// The call takes up to 250 ms more than `wait` if the server is slow. A `wait` of zero tries once.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidWait`](crate::Error::InvalidWait) if the end of the wait cannot be represented as an
            /// `Instant`, and those of [`Semaphore::acquire`](crate::Semaphore::acquire), where `wait` replaces the
            /// outage timeout.
            #[must_use = "the permits are dropped, which releases them at once; bind them to a name"]
            pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>> {
                let limit = self.lock.raw_lock().limit(wait, None)?;
                self.lock.take_permits(permits, limit)
            }

            /// Queries the number of free permits, including those of dead holders; 0 if the semaphore was never set.
            ///
            /// The number is negative if [`Semaphore::add_permits`](crate::Semaphore::add_permits) has removed more permits
            /// than were free, until enough are released.
            ///
            /// # Errors
            ///
            /// Those of [`Semaphore::add_permits`](crate::Semaphore::add_permits), with
            /// [`Error::Unreachable`](crate::Error::Unreachable) instead of [`Error::Unknown`](crate::Error::Unknown).
            pub fn available(&self) -> Result<i64> {
                self.lock.raw_lock().count(CountStep::Get)
            }

            /// Adds free permits, or removes some if `permits` is negative, and creates the semaphore if there is
            /// none: Redisson's `addPermits`, and the `release` of its `RSemaphore`.
            ///
            /// Use this method to free forgotten ([`Permits::forget`](crate::Permits::forget)) or drained permits, and to
            /// change the limit. The server executes the request at most once: after a lost reply the request is sent again
            /// with the same request number.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) for 0 permits, or if the number of free
            /// permits would leave the range of -2147483647 ..= 2147483647. After
            /// [`command_timeout`](crate::Builder::command_timeout) at the latest:
            ///
            /// - [`Error::Unknown`](crate::Error::Unknown): no reply came, and the request was executed once or not
            ///   at all. A second call may add twice;
            /// - [`Error::Unreachable`](crate::Error::Unreachable), [`Error::Exhausted`](crate::Error::Exhausted):
            ///   nothing was sent;
            /// - [`Error::Unavailable`](crate::Error::Unavailable): the server cannot serve now, and nothing was
            ///   changed;
            /// - [`Error::Permission`](crate::Error::Permission), [`Error::Untrusted`](crate::Error::Untrusted): the
            ///   user lacks a right, or TLS does not trust the other side;
            /// - [`Error::WrongType`](crate::Error::WrongType), [`Error::Unexpected`](crate::Error::Unexpected): the
            ///   key is no count, or the server sent an unexpected reply;
            /// - [`Error::InvalidName`](crate::Error::InvalidName),
            ///   [`Error::Unsupported`](crate::Error::Unsupported): the name is invalid, or the store has no
            ///   semaphores;
            /// - [`Error::Forked`](crate::Error::Forked): the client was created before this process was forked.
            pub fn add_permits(&self, permits: i64) -> Result<()> {
                let step = CountStep::Add(permits);
                self.lock.add_permits(permits, step).map(drop)
            }

            /// Deletes the semaphore, and returns whether there was one. Acquired permits are lost.
            ///
            /// # Errors
            ///
            /// Those of [`Semaphore::add_permits`](crate::Semaphore::add_permits).
            pub fn delete(&self) -> Result<bool> {
                let raw_lock = self.lock.raw_lock();
                let deleted = raw_lock.count(CountStep::Delete)?;
                // Notifies the holders of this client at once.
                raw_lock.inner.watchdog.check_now(self.name());
                Ok(deleted == 1)
            }
        }
    };
}
pub(crate) use counter_methods;

counter_methods!(Semaphore);

/// The operations on the inner lock that both kinds of semaphores share.
impl Lock {
    pub(crate) fn set_permits(&self, permits: u32, life: Option<Duration>) -> Result<bool> {
        let raw_lock = self.raw_lock();
        raw_lock.ready()?;
        if permits > LARGEST_COUNT {
            return Err(self.invalid_permits(permits.into()));
        }
        if let Some(life) = life {
            raw_lock.check_lease(Duration::from_millis(1), life)?;
        }
        let set = CountStep::SetIfMissing(permits, life);
        Ok(raw_lock.count(set)? == 1)
    }

    pub(crate) fn take_permits(
        &self,
        permits: u32,
        limit: WaitLimit<'_>,
    ) -> Result<Option<Permits>> {
        self.raw_lock().ready()?;
        let most = self.raw_lock().key.lock.kind.rules().most_permits;
        if !(1..=most).contains(&permits) {
            return Err(self.invalid_permits(permits.into()));
        }
        let lock = self.with(|raw_lock| raw_lock.permits = Some(permits));
        let entered = lock.raw_lock().acquire(limit)?;
        Ok(entered.map(|entry| Permits {
            guard: OwnedGuard::new(lock, entry),
            count: permits,
        }))
    }

    pub(crate) fn add_permits(&self, permits: i64, step: CountStep) -> Result<i64> {
        self.raw_lock().ready()?;
        if permits == 0 || permits.unsigned_abs() > LARGEST_COUNT.into() {
            return Err(self.invalid_permits(permits));
        }
        self.raw_lock().count(step)
    }

    pub(crate) fn invalid_permits(&self, permits: i64) -> Error {
        let name = Arc::clone(self.full_name());
        Error::InvalidPermits { name, permits }
    }
}

/// Permits of a [`Semaphore`] or a [`PermitSemaphore`](crate::PermitSemaphore), which are released when this is dropped.
///
/// The permits belong to this handle and not to a thread, so the handle can be sent to another thread. The permits are
/// renewed until the drop, unless they have a fixed lease. The drop takes at most one
/// [`command_timeout`](crate::Builder::command_timeout) and only logs an error (feature `tracing`); [`Permits::release`]
/// returns the error.
///
/// # Examples
///
/// ```
/// # let client = redlatch::Client::in_memory();
/// # let semaphore = client.semaphore("semaphore:mail");
/// # semaphore.try_set(3)?;
/// let permits = semaphore.acquire(1)?;
/// let worker = std::thread::spawn(move || {
///     // … send mail …
///     permits.release()
/// });
/// worker.join().unwrap()?;
/// assert_eq!(semaphore.available()?, 3);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[must_use = "the permits are released as soon as this is dropped"]
#[derive(Debug)]
pub struct Permits {
    pub(crate) guard: OwnedGuard,
    count: u32,
}

impl Permits {
    /// Returns the number of these permits.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether the permits are certainly held at this moment, without I/O; see
    /// [`Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Returns the [`Losses`] of these permits; see [`Guard::lost`](crate::Guard::lost).
    ///
    /// A deleted or expired semaphore is [`LossCause::Gone`](crate::LossCause::Gone).
    pub fn lost(&self) -> Losses {
        self.guard.lost()
    }

    /// Returns the id of the holder in the store: `permits*uuid:thread:hold`, or the ids of the permits in sequence.
    pub fn visitor(&self) -> &VisitorId {
        self.guard.visitor()
    }

    /// Releases the permits, and returns the error that a drop would only log.
    ///
    /// After an error a background thread releases them, or they are free a lease later.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the cause if they were lost, and those of [`Lock::unlock`](crate::Lock::unlock) on one server.
    pub fn release(self) -> Result<()> {
        self.guard.unlock()
    }

    /// Leaves the permits taken without an owner.
    ///
    /// They are not renewed, and stay taken after the process dies. Any process can free them with
    /// [`Semaphore::add_permits`]. Permits with ids end with their leases, or are freed by
    /// [`PermitSemaphore::release_id`](crate::PermitSemaphore::release_id).
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the cause if they were lost, [`Error::Unknown`] if no reply came, and those of
    /// [`Permits::release`]. After an error the permits stay taken without an owner, or are free a lease later.
    pub fn forget(self) -> Result<()> {
        self.guard.forget()
    }
}
