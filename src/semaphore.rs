use std::num::NonZeroU32;
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

/// A number of permits under one name, which threads of many processes share.
///
/// The format is that of Redisson's `RSemaphore`, and the behaviour is that of `java.util.concurrent.Semaphore`: an
/// acquisition waits until enough permits are free, and takes them. The permits belong to the returned [`Permits`]
/// handle. They are free again when the handle is dropped, or one lease after the process has died.
///
/// * **Acquisitions wait until the semaphore has been set.** Call [`Semaphore::try_set`] first. The call has no effect
///   on an existing semaphore.
/// * The permits of a dead holder become free when any client of this library next attempts to acquire permits.
///   **Redisson does not free them.**
/// * **Use a separate name.** A [`Latch`](crate::Latch) of the same name uses the same counter in Redis.
///   [`Lock::force_unlock`] of a [`token_lock`](crate::Client::token_lock) of the same name deletes the semaphore.
/// * A semaphore is not reentrant: a thread that has permits and acquires more may wait for itself.
/// * The waiting threads of one client acquire permits in the order of arrival. [`Semaphore::try_acquire`] bypasses the
///   waiting threads. There is no order among processes.
///
/// [`Client::semaphore`](crate::Client::semaphore) returns a semaphore without I/O. All semaphores of one name share the
/// same permits. A semaphore exists on one Redis server (also behind sentinels or in a cluster). A failover may lose a
/// change of the number of free permits, or apply the change twice.
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
    /// Returns another `Semaphore` of this name. Permits acquired through this value have the fixed lease `lease`.
    ///
    /// Permits with a fixed lease are not renewed. They end after `lease` even without a release. If `lease` is not
    /// 10 ms ..= 365 days, acquisitions return [`Error::InvalidLease`]. By default, the watchdog renews permits.
    #[must_use = "this returns the configured semaphore; the original is unchanged"]
    pub fn with_lease_time(&self, lease: Duration) -> Semaphore {
        let lock = self.lock.with_lease_time(lease);
        Semaphore { lock }
    }

    /// Adds permits like [`Semaphore::add_permits`], but only to an existing semaphore. Returns whether it exists.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::add_permits`].
    pub fn add_permits_if_exists(&self, permits: i64) -> Result<bool> {
        let step = CountStep::AddIfThere(permits);
        Ok(self.lock.add_permits(permits, step)? == 1)
    }

    /// Takes all free permits, and returns their number. The taken permits have no owner.
    ///
    /// Afterwards the number of free permits is 0. If the number was negative, the call returns the negative number, as
    /// in `java.util.concurrent`. The call also takes the permits of up to 5,000 holders whose leases have ended.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::add_permits`].
    pub fn drain(&self) -> Result<i64> {
        self.lock.raw_lock().count(CountStep::Drain)
    }
}

macro_rules! counter_methods {
    ($semaphore:ident) => {
        impl $semaphore {
            /// Returns the name of the semaphore, key prefix included.
            pub fn name(&self) -> &str {
                self.lock.name()
            }

            /// Creates the semaphore with this number of permits, 0 ..= 2147483647, unless a semaphore of this name exists.
            /// Returns whether this call created the semaphore.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) if `permits` is out of range, and those of
            /// [`Semaphore::add_permits`](crate::Semaphore::add_permits).
            pub fn try_set(&self, permits: u32) -> Result<bool> {
                self.lock.set_permits(permits, None)
            }

            /// Creates a semaphore as [`Semaphore::try_set`](crate::Semaphore::try_set) does. The semaphore expires
            /// after `life`, 1 ms ..= 365 days. All permits then end, even if their leases are longer.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidLease`](crate::Error::InvalidLease) if `life` is out of range, and those of
            /// [`Semaphore::try_set`](crate::Semaphore::try_set).
            pub fn try_set_for(&self, permits: u32, life: Duration) -> Result<bool> {
                self.lock.set_permits(permits, Some(life))
            }

            /// Acquires permits, and waits without a limit until enough permits are free.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) for 0 permits, or for more than 2147483647 permits
            /// (more than 1000 of a [`PermitSemaphore`](crate::PermitSemaphore)), and the errors of
            /// [`Lock::lock`](crate::Lock::lock) on one server. After an error the caller has no permits. After
            /// [`Error::Unknown`](crate::Error::Unknown) a background thread releases the permits that the request may have
            /// acquired.
            pub fn acquire(&self, permits: u32) -> Result<Permits> {
                WaitLimit::without_end(None, |limit| self.lock.take_permits(permits, limit))
            }

            /// Acquires permits, and waits until enough permits are free or `interrupt` is raised.
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

            /// Acquires permits if enough permits are free now; otherwise returns `None`.
            ///
            /// The call makes one attempt, and does not queue behind the waiters of this client.
            ///
            /// # Errors
            ///
            /// Those of [`Semaphore::acquire`](crate::Semaphore::acquire). Each error is returned after one attempt.
            #[must_use = "the permits are dropped, which releases them at once; bind them to a name"]
            pub fn try_acquire(&self, permits: u32) -> Result<Option<Permits>> {
                self.lock.take_permits(permits, WaitLimit::once())
            }

            /// Acquires permits, and waits for them at most `wait`. Returns `None` if the wait ended without permits.
            ///
            /// If the server is slow, the call takes up to 250 ms longer than `wait`. A `wait` of zero makes one attempt.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidWait`](crate::Error::InvalidWait) if the end of the wait cannot be represented as an
            /// `Instant`, and those of [`Semaphore::acquire`](crate::Semaphore::acquire). While the server cannot be
            /// reached, `wait` limits the call instead of the outage timeout.
            #[must_use = "the permits are dropped, which releases them at once; bind them to a name"]
            pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>> {
                let limit = self.lock.raw_lock().limit(wait, None)?;
                self.lock.take_permits(permits, limit)
            }

            /// Queries the number of free permits, including permits whose lease has ended; 0 if no semaphore exists.
            ///
            /// If [`Semaphore::add_permits`](crate::Semaphore::add_permits) has removed more permits than were free,
            /// the number is negative until holders have released enough permits.
            ///
            /// # Errors
            ///
            /// Those of [`Semaphore::add_permits`](crate::Semaphore::add_permits). A lost reply is
            /// [`Error::Unreachable`](crate::Error::Unreachable) instead of [`Error::Unknown`](crate::Error::Unknown).
            pub fn available(&self) -> Result<i64> {
                self.lock.raw_lock().count(CountStep::Get)
            }

            /// Adds free permits, or removes free permits if `permits` is negative. Creates the semaphore if none exists.
            /// Redisson has this method as `addPermits`, and as `release` of its `RSemaphore`.
            ///
            /// Use this method to change the total number of permits, and to free permits that were drained or
            /// forgotten ([`Permits::forget`](crate::Permits::forget)). The server executes the request at most once,
            /// even if the client repeats the request after a lost reply.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) for 0 permits, or if `permits` is outside
            /// -2147483647 ..= 2147483647 or would take the number of free permits out of this range. The other errors
            /// are returned within one [`command_timeout`](crate::Builder::command_timeout):
            ///
            /// - [`Error::Unknown`](crate::Error::Unknown): no reply came. The request was executed once or not at all.
            ///   Another call may add the permits a second time;
            /// - [`Error::Unreachable`](crate::Error::Unreachable), [`Error::Exhausted`](crate::Error::Exhausted):
            ///   nothing was sent;
            /// - [`Error::Unavailable`](crate::Error::Unavailable): the server cannot serve now, and nothing was
            ///   changed;
            /// - [`Error::Permission`](crate::Error::Permission), [`Error::Untrusted`](crate::Error::Untrusted): the user
            ///   lacks a right, or TLS does not trust the server;
            /// - [`Error::WrongType`](crate::Error::WrongType), [`Error::Unexpected`](crate::Error::Unexpected): the key
            ///   does not contain a number, or the server sent an unexpected reply;
            /// - [`Error::InvalidName`](crate::Error::InvalidName),
            ///   [`Error::Unsupported`](crate::Error::Unsupported): the name is invalid, or the store has no
            ///   semaphores;
            /// - [`Error::Forked`](crate::Error::Forked): the client was created before this process was forked.
            pub fn add_permits(&self, permits: i64) -> Result<()> {
                let step = CountStep::Add(permits);
                self.lock.add_permits(permits, step).map(drop)
            }

            /// Deletes the semaphore, and returns whether it existed. The holders lose their permits.
            ///
            /// # Errors
            ///
            /// Those of [`Semaphore::add_permits`](crate::Semaphore::add_permits).
            pub fn delete(&self) -> Result<bool> {
                let raw_lock = self.lock.raw_lock();
                let deleted = raw_lock.count(CountStep::Delete)?;
                // Renews now, so that the holders of this client notice the loss early.
                raw_lock.inner.watchdog.check_now(self.name());
                Ok(deleted == 1)
            }
        }
    };
}
pub(crate) use counter_methods;

counter_methods!(Semaphore);

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
        let lock = self.with(|raw_lock| raw_lock.permits = NonZeroU32::new(permits));
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

/// Acquired permits of a [`Semaphore`] or a [`PermitSemaphore`](crate::PermitSemaphore). A drop of this value releases them.
///
/// The permits belong to this handle and not to a thread, so the handle can be sent to another thread. The permits are
/// renewed until the drop, unless they have a fixed lease. The drop takes at most one
/// [`command_timeout`](crate::Builder::command_timeout). If the drop fails, the error is only logged (feature
/// `tracing`). [`Permits::release`] returns the error.
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
    /// If the semaphore was deleted or has expired, the cause is [`LossCause::Gone`](crate::LossCause::Gone).
    pub fn lost(&self) -> Losses {
        self.guard.lost()
    }

    /// Returns the id of this hold in the store: `permits*uuid:thread:hold`, where `permits` is the number of permits.
    /// For a [`PermitSemaphore`](crate::PermitSemaphore) the id consists of the concatenated ids of the permits.
    pub fn visitor(&self) -> &VisitorId {
        self.guard.visitor()
    }

    /// Releases the permits, and returns the error that a drop would only log.
    ///
    /// After an error a background thread releases the permits. They are free one lease later at the latest.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::unlock`](crate::Lock::unlock) on one server, such as [`Error::Lost`] if the permits were lost.
    pub fn release(self) -> Result<()> {
        self.guard.unlock()
    }

    /// Drops the handle but leaves the permits taken. The permits then have no owner, and are not renewed.
    ///
    /// Permits of a [`Semaphore`] stay taken even after the process dies, until any process frees them with
    /// [`Semaphore::add_permits`]. Permits with ids end with their leases, or when
    /// [`PermitSemaphore::release_id`](crate::PermitSemaphore::release_id) releases them.
    ///
    /// # Errors
    ///
    /// Those of [`Permits::release`]. After an error, the permits either stay taken without an owner, or are free one
    /// lease later at the latest.
    pub fn forget(self) -> Result<()> {
        self.guard.forget()
    }
}
