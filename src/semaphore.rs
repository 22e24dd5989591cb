//! The semaphore, and the permits that were taken from it.

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
/// It is Redisson's `RSemaphore`, with the meaning of `java.util.concurrent.Semaphore`: each acquisition takes permits, and
/// waits until there are as many. Here they are owned by the [`Permits`] that it returns, and come back when those are
/// dropped, or a lease after their process has died.
///
/// * **A semaphore that nobody has set is waited for.** Call [`Semaphore::try_set`] first; it sets the permits once.
/// * The permits of a holder that died are given back by the next acquisition or wait of any client of this library. **If
///   only Redisson waits, nobody gives them back.**
/// * **Its name is for nothing else.** A [`Latch`](crate::Latch) of the same name is the same number in Redis, and a
///   [`Client::token_lock`](crate::Client::token_lock) takes it for a key that never ends: to count the one down, or to set
///   the other free, takes permits away, or the semaphore.
/// * It is not reentrant: a thread that has permits and asks for more may wait for itself.
/// * The threads of one client that wait get permits in the order in which they came, so that one which wants many is not
///   overtaken. A try without a wait bypasses them. Among processes there is no order.
///
/// [`Client::semaphore`](crate::Client::semaphore) makes a semaphore without I/O; clones, and semaphores of the same name,
/// are the same semaphore. It exists on one Redis server (also behind sentinels or in a cluster) and in memory. A failover
/// may lose or double a step.
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
    /// Returns the same semaphore with a fixed lease time for the permits that are taken through it.
    ///
    /// Permits with a fixed lease are not renewed: they are anybody's after `lease`, released or not. The range is 10 ms ..=
    /// 365 days; anything else is [`Error::InvalidLease`] at the acquisition. Defaults to no fixed lease: the watchdog
    /// renews the permits.
    #[must_use = "this returns the configured semaphore; the original is unchanged"]
    pub fn with_lease_time(&self, lease: Duration) -> Semaphore {
        let lock = self.lock.with_lease_time(lease);
        Semaphore { lock }
    }

    /// Does the same if there is a semaphore of this name, and returns whether there was.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::add_permits`].
    pub fn add_permits_if_exists(&self, permits: i64) -> Result<bool> {
        let step = CountStep::AddIfThere(permits);
        Ok(self.lock.add_permits(permits, step)? == 1)
    }

    /// Takes all permits that are free, without an owner, and returns how many those were.
    ///
    /// Afterwards none is free, as in `java.util.concurrent`: a number below 0, which [`Semaphore::add_permits`] has left,
    /// is returned and becomes 0, so that reduction ends. Permits of holders whose leases are over are taken, too, those of
    /// 5,000 of them at most.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::add_permits`].
    pub fn drain(&self) -> Result<i64> {
        self.lock.raw_lock().count(CountStep::Drain)
    }
}

/// The methods that the two semaphores have in common.
macro_rules! counter_methods {
    ($semaphore:ident) => {
        impl $semaphore {
            /// Returns the name of the semaphore, key prefix included.
            pub fn name(&self) -> &str {
                self.lock.name()
            }

            /// Sets the number of permits, 0 ..= 2147483647, if there is no semaphore of this name, and returns whether it did.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) if there are too many, and those of
            /// [`Semaphore::add_permits`](crate::Semaphore::add_permits).
            pub fn try_set(&self, permits: u32) -> Result<bool> {
                self.lock.set_permits(permits, None)
            }

            /// Does the same with a semaphore that ends after `life`, 1 ms ..= 365 days, with all permits that were taken from
            /// it: none of them is valid for longer, whatever its lease.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidLease`](crate::Error::InvalidLease) if `life` is out of range, and those of
            /// [`Semaphore::try_set`](crate::Semaphore::try_set).
            pub fn try_set_for(&self, permits: u32, life: Duration) -> Result<bool> {
                self.lock.set_permits(permits, Some(life))
            }

            /// Takes permits, and waits for them as long as it takes.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) if it is none, or more than 2147483647 (1000 of a
            /// [`PermitSemaphore`](crate::PermitSemaphore)), and those of [`Lock::lock`](crate::Lock::lock) that one server
            /// has. After every error nothing was taken; after [`Error::Unknown`](crate::Error::Unknown) what the request may
            /// have taken is given back in the background.
            pub fn acquire(&self, permits: u32) -> Result<Permits> {
                WaitLimit::without_end(None, |limit| self.lock.take_permits(permits, limit))
            }

            /// Takes permits, and waits until it has them or `interrupt` is raised.
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

            /// Takes permits if there are as many now; `None` if there are not.
            ///
            /// It sends one attempt, and bypasses the waiters of this client.
            ///
            /// # Errors
            ///
            /// Those of [`Semaphore::acquire`](crate::Semaphore::acquire), each after one attempt.
            pub fn try_acquire(&self, permits: u32) -> Result<Option<Permits>> {
                self.lock.take_permits(permits, WaitLimit::once())
            }

            /// Takes permits, and waits for them at most `wait`; `None` if it did not get them.
            ///
            /// The call takes up to 250 ms more than `wait` if the server is slow. With a `wait` of zero it tries once.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidWait`](crate::Error::InvalidWait) if the end of the wait cannot be expressed as an instant, and
            /// those of [`Semaphore::acquire`](crate::Semaphore::acquire), with the end of the wait in place of the outage
            /// timeout.
            pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>> {
                let limit = self.lock.raw_lock().limit(wait, None)?;
                self.lock.take_permits(permits, limit)
            }

            /// Asks for the number of permits that are free, those of holders whose leases are over included: below 0 if
            /// permits were taken away by [`Semaphore::add_permits`](crate::Semaphore::add_permits) that are in use; 0 if
            /// nobody has set the semaphore.
            ///
            /// # Errors
            ///
            /// Those of [`Semaphore::add_permits`](crate::Semaphore::add_permits), but
            /// [`Error::Unreachable`](crate::Error::Unreachable) in place of [`Error::Unknown`](crate::Error::Unknown).
            pub fn available(&self) -> Result<i64> {
                self.lock.raw_lock().count(CountStep::Get)
            }

            /// Adds permits that nobody owned, or takes some away for good if `permits` is below 0, and makes the semaphore if
            /// there is none: Redisson's `addPermits`, and the `release` of its `RSemaphore`.
            ///
            /// It is for permits that were forgotten ([`Permits::forget`](crate::Permits::forget)) or drained, and for a new
            /// limit. The request is carried out at most once: if its answer is lost, it is sent again under the same number.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) if it is 0, or if more than 2147483647 permits would be
            /// free, or fewer than none by that many; permits that are owned are not counted. After
            /// [`command_timeout`](crate::Builder::command_timeout) at the latest:
            ///
            /// - [`Error::Unknown`](crate::Error::Unknown): no answer came, so it was carried out once, or not at all. A second
            ///   call may add twice;
            /// - [`Error::Unreachable`](crate::Error::Unreachable), [`Error::Exhausted`](crate::Error::Exhausted): nothing was
            ///   sent;
            /// - [`Error::Unavailable`](crate::Error::Unavailable): the server cannot serve now, and nothing was done;
            /// - [`Error::Permission`](crate::Error::Permission), [`Error::Untrusted`](crate::Error::Untrusted): the user lacks
            ///   a right, or TLS does not trust the other side;
            /// - [`Error::WrongType`](crate::Error::WrongType), [`Error::Unexpected`](crate::Error::Unexpected): the key is no
            ///   count, or the server answered something unexpected;
            /// - [`Error::InvalidName`](crate::Error::InvalidName), [`Error::Unsupported`](crate::Error::Unsupported): the name
            ///   cannot be used, or semaphores cannot be kept here;
            /// - [`Error::Forked`](crate::Error::Forked): the client was made before this process was forked.
            pub fn add_permits(&self, permits: i64) -> Result<()> {
                let step = CountStep::Add(permits);
                self.lock.add_permits(permits, step).map(drop)
            }

            /// Takes the semaphore away, and returns whether there was one. Permits that were taken from it are lost.
            ///
            /// # Errors
            ///
            /// Those of [`Semaphore::add_permits`](crate::Semaphore::add_permits).
            pub fn delete(&self) -> Result<bool> {
                let raw_lock = self.lock.raw_lock();
                let deleted = raw_lock.count(CountStep::Delete)?;
                // Holders of this client learn of it at once.
                raw_lock.inner.watchdog.check_now(self.name());
                Ok(deleted == 1)
            }
        }
    };
}
pub(crate) use counter_methods;

counter_methods!(Semaphore);

/// What both semaphores do with the lock that they are.
impl Lock {
    pub(crate) fn set_permits(&self, permits: u32, life: Option<Duration>) -> Result<bool> {
        let raw_lock = self.raw_lock();
        raw_lock.ready()?;
        if permits > LARGEST_COUNT {
            return Err(self.invalid_permits(permits.into()));
        }
        if let Some(life) = life {
            let longest = raw_lock.inner.store.facts().longest_lease;
            if !(Duration::from_millis(1)..=longest).contains(&life) {
                return Err(Error::InvalidLease {
                    lock: Arc::clone(self.full_name()),
                    lease: life,
                    longest,
                });
            }
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
        Error::InvalidPermits {
            name: Arc::clone(&self.raw_lock().key.lock.name),
            permits,
        }
    }
}

/// Permits of a [`Semaphore`] or a [`PermitSemaphore`](crate::PermitSemaphore), which are given back when this is dropped.
///
/// They belong to this handle and to no thread, so it can be sent to another one. They are renewed as long as it lives, unless
/// they have a fixed lease. Dropping it gives them back within one
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
    /// Returns how many these are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether the permits are certainly owned at this moment, by local knowledge alone and without I/O; see
    /// [`Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Returns the [`Losses`] of these permits, on which their loss arrives; see [`Guard::lost`](crate::Guard::lost).
    ///
    /// A semaphore that was deleted under them, or whose life is over, is [`LossCause::Gone`](crate::LossCause::Gone).
    pub fn lost(&self) -> Losses {
        self.guard.lost()
    }

    /// Returns the id of their owner in the store: `permits*uuid:thread:hold`, or their ids, one behind the other.
    pub fn visitor(&self) -> &VisitorId {
        self.guard.visitor()
    }

    /// Gives the permits back, and returns the error that a drop would only log.
    ///
    /// They are gone in any case; after an error they are given back in the background, or a lease later.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the cause if they were lost: then nothing is given back. And those of
    /// [`Lock::unlock`](crate::Lock::unlock) that one server has.
    pub fn release(self) -> Result<()> {
        self.guard.unlock()
    }

    /// Gives the ownership up and keeps the permits taken: from now on they are anybody's, who gives them back with
    /// [`Semaphore::add_permits`], from whatever process. Nobody renews them, and no death gives them back. Those with ids are
    /// given back by these ([`PermitSemaphore::release_id`](crate::PermitSemaphore::release_id)), or end with their leases.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the cause if they were lost, [`Error::Unknown`] if no answer came, and those of
    /// [`Permits::release`]. After an error the permits are anybody's, or are given back a lease later.
    pub fn forget(self) -> Result<()> {
        self.guard.forget()
    }
}
