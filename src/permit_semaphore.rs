//! The semaphore whose permits have ids.

use std::time::Duration;

use crate::engine::hold::Lease;
use crate::engine::raw_lock::RawLock;
use crate::engine::wait_loop::WaitLimit;
use crate::ground::claim::{ENDLESS, LARGEST_COUNT};
use crate::ground::error::Result;
use crate::ground::interrupt::Interrupt;
use crate::ground::permit_id::PermitId;
use crate::semaphore::{Permits, Semaphore};
use crate::store::CountStep;

/// A semaphore whose permits have ids and leases of their own: Redisson's `RPermitExpirableSemaphore`.
///
/// As of a [`Semaphore`], permits are taken by [`PermitSemaphore::acquire`], which renews them and gives them back when
/// they are dropped. Or [`PermitSemaphore::acquire_id`] takes one that no handle owns: its id can be passed to another
/// process, which gives it back with [`PermitSemaphore::release_id`]. A permit that nobody gives back ends with its
/// lease.
///
/// * **A semaphore that nobody has set is waited for.** Call [`PermitSemaphore::try_set`] first; it sets the permits once.
/// * Redisson takes permits back whose ends have passed by the clock of *its* machine. **A machine that is ahead by some
///   seconds takes a fixed lease away so much early**, and nobody here can know. Renewed permits have 20 s to spare with
///   the default lease of 30 s.
/// * **Its name is for nothing else**: a [`Semaphore`] or a [`Latch`](crate::Latch) of the same name is the same number in
///   Redis.
/// * It is not reentrant, and among processes there is no order, as with a [`Semaphore`].
///
/// [`Client::permit_semaphore`](crate::Client::permit_semaphore) makes one without I/O; clones, and those of the same
/// name, are the same semaphore. It exists on one Redis server (also behind sentinels or in a cluster) and in memory. A
/// failover may lose or double a step.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlatch::{Client, PermitId};
///
/// let client = Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
/// let semaphore = client.permit_semaphore("permits:printer");
/// semaphore.try_set(2)?;
///
/// let id = semaphore.acquire_id(Some(Duration::from_secs(60)))?;
/// let sent = id.to_string(); // … to another process, which is done within a minute:
/// let id = PermitId::parse(&sent).expect("an id");
/// assert!(semaphore.release_id(&id)?);
/// assert!(!semaphore.release_id(&id)?, "it was given back before");
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PermitSemaphore {
    semaphore: Semaphore,
}

impl PermitSemaphore {
    pub(crate) fn new(raw_lock: RawLock) -> PermitSemaphore {
        PermitSemaphore {
            semaphore: Semaphore::new(raw_lock),
        }
    }

    /// Returns the name of the semaphore, key prefix included.
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }

    /// Returns the same semaphore with a fixed lease time for the permits that are taken through it by
    /// [`PermitSemaphore::acquire`] and the like.
    ///
    /// Permits with a fixed lease are not renewed: they end after `lease`, released or not. The range is 10 ms ..= 365
    /// days; anything else is [`Error::InvalidLease`](crate::Error::InvalidLease) at the acquisition. Defaults to no
    /// fixed lease: the watchdog renews the permits.
    #[must_use = "the semaphore itself is left as it is"]
    pub fn with_lease_time(&self, lease: Duration) -> PermitSemaphore {
        // Permits of a handle have an end in any case.
        let lease = if lease < ENDLESS {
            lease
        } else {
            Duration::MAX
        };
        PermitSemaphore {
            semaphore: self.semaphore.with_lease_time(lease),
        }
    }

    /// Sets the number of permits, 0 ..= 2147483647, if there is no semaphore of this name, and returns whether it did.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) if there are too many, and those of
    /// [`Semaphore::add_permits`].
    pub fn try_set(&self, permits: u32) -> Result<bool> {
        self.semaphore.try_set(permits)
    }

    /// Does the same with a semaphore that ends after `life`, 1 ms ..= 365 days, with all permits that were taken from it:
    /// none of them is valid for longer, whatever its lease.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidLease`](crate::Error::InvalidLease) if `life` is out of range, and those of
    /// [`PermitSemaphore::try_set`].
    pub fn try_set_for(&self, permits: u32, life: Duration) -> Result<bool> {
        self.semaphore.try_set_for(permits, life)
    }

    /// Makes so many permits, 0 ..= 2147483647, of those that are free and those that were taken, and the semaphore if
    /// there is none: Redisson's `setPermits`. If more were taken, the number of free ones is below 0 until enough are
    /// back.
    ///
    /// # Errors
    ///
    /// Those of [`PermitSemaphore::try_set`].
    pub fn set(&self, permits: u32) -> Result<()> {
        self.raw_lock().ready()?;
        if permits > LARGEST_COUNT {
            return Err(self.semaphore.invalid(permits.into()));
        }
        self.raw_lock().count(CountStep::Replace(permits)).map(drop)
    }

    /// Takes permits, and waits for them as long as it takes. They are renewed until the handle is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPermits`](crate::Error::InvalidPermits) if it is none, or more than 1000, and those of
    /// [`Semaphore::acquire`].
    pub fn acquire(&self, permits: u32) -> Result<Permits> {
        self.semaphore.acquire(permits)
    }

    /// Takes permits, and waits until it has them or `interrupt` is raised.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`](crate::Error::Interrupted) once `interrupt` is raised, and those of
    /// [`PermitSemaphore::acquire`].
    pub fn acquire_interruptibly(&self, permits: u32, interrupt: &Interrupt) -> Result<Permits> {
        self.semaphore.acquire_interruptibly(permits, interrupt)
    }

    /// Takes permits if there are as many now; `None` if there are not. It bypasses the waiters of this client.
    ///
    /// # Errors
    ///
    /// Those of [`PermitSemaphore::acquire`], each after one attempt.
    pub fn try_acquire(&self, permits: u32) -> Result<Option<Permits>> {
        self.semaphore.try_acquire(permits)
    }

    /// Takes permits, and waits for them at most `wait`; `None` if it did not get them. See
    /// [`Semaphore::try_acquire_for`].
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::try_acquire_for`] and [`PermitSemaphore::acquire`].
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>> {
        self.semaphore.try_acquire_for(permits, wait)
    }

    /// Takes one permit that no handle owns, and waits for it as long as it takes. It ends after `lease`, 10 ms ..= 365
    /// days, or with `None` only when it is given back: **if its id gets lost, so is the permit**.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidLease`](crate::Error::InvalidLease) if `lease` is out of range,
    /// [`Error::Lost`](crate::Error::Lost) or [`Error::Unknown`](crate::Error::Unknown) if it ended while the answer was on its
    /// way, and those of [`Semaphore::acquire`].
    pub fn acquire_id(&self, lease: Option<Duration>) -> Result<PermitId> {
        loop {
            if let Some(id) = self.acquire_id_within(lease, WaitLimit::forever(None))? {
                return Ok(id);
            }
        }
    }

    /// Does the same and waits at most `wait`; `None` if it did not get one. With a `wait` of zero it tries once.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`](crate::Error::InvalidWait) if the end of the wait cannot be expressed as an instant, and
    /// those of [`PermitSemaphore::acquire_id`].
    pub fn try_acquire_id_for(
        &self,
        lease: Option<Duration>,
        wait: Duration,
    ) -> Result<Option<PermitId>> {
        self.acquire_id_within(lease, self.raw_lock().limit(wait, None)?)
    }

    fn acquire_id_within(
        &self,
        lease: Option<Duration>,
        limit: WaitLimit<'_>,
    ) -> Result<Option<PermitId>> {
        let mut semaphore = self.semaphore.clone();
        semaphore.raw_lock.lease = Lease::Fixed(lease.unwrap_or(ENDLESS));
        let Some(taken) = semaphore.take(1, limit)? else {
            return Ok(None);
        };
        let visitor = taken.visitor().clone();
        taken.forget()?;
        Ok(Some(PermitId { visitor }))
    }

    /// Gives a permit back, whoever took it, and returns whether it was taken: false for one that was given back before
    /// or has ended, and for an id of another semaphore.
    ///
    /// A handle that has the permit loses it, and learns of that at its next renewal, or with a fixed lease when it is
    /// released.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::add_permits`].
    pub fn release_id(&self, id: &PermitId) -> Result<bool> {
        Ok(self.count_permit(CountStep::GiveBack, id)? == 1)
    }

    /// Has a permit end `lease` from now, 10 ms ..= 365 days, or with `None` only when it is given back, and returns
    /// whether it was taken. Set it for ids alone: a handle that renews the permit sets its own lease again, and one with a
    /// fixed lease goes on counting that: it says that it is valid until then, and gives nothing back afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidLease`](crate::Error::InvalidLease) if `lease` is out of range, and those of
    /// [`Semaphore::add_permits`].
    pub fn set_lease(&self, id: &PermitId, lease: Option<Duration>) -> Result<bool> {
        let raw_lock = self.raw_lock();
        raw_lock.ready()?;
        if let Some(lease) = lease {
            raw_lock.check_lease(lease)?;
        }
        let step = CountStep::SetLease(lease.unwrap_or(ENDLESS));
        Ok(self.count_permit(step, id)? == 1)
    }

    /// Asks how long a permit lasts, in whole milliseconds, at most as long as its semaphore: `None` if it is not taken, and
    /// [`Duration::MAX`] if it has no end.
    ///
    /// # Errors
    ///
    /// Those of [`PermitSemaphore::available`].
    pub fn lease_of(&self, id: &PermitId) -> Result<Option<Duration>> {
        let left = self.count_permit(CountStep::Lease, id)?;
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        Ok(match left {
            Duration::ZERO => None,
            // Its end is so far from 1970, not from now.
            left if left > ENDLESS / 2 => Some(Duration::MAX),
            left => Some(left),
        })
    }

    /// Asks for the number of permits that are free: below 0 if permits were taken away that are in use; 0 if nobody
    /// has set the semaphore. Permits that have ended count as free.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::available`].
    pub fn available(&self) -> Result<i64> {
        self.semaphore.available()
    }

    /// Asks for the number of permits that were taken and have not ended, by whomever.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::available`].
    pub fn acquired(&self) -> Result<u32> {
        let taken = self.raw_lock().count(CountStep::Taken)?;
        Ok(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    /// Adds permits, or takes some away for good if `permits` is below 0, and makes the semaphore if there is none:
    /// Redisson's `addPermits`. The request is carried out at most once.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::add_permits`].
    pub fn add_permits(&self, permits: i64) -> Result<()> {
        self.semaphore.add_permits(permits)
    }

    /// Takes the semaphore away, and returns whether there was one. Permits that were taken from it are lost.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::add_permits`].
    pub fn delete(&self) -> Result<bool> {
        self.semaphore.delete()
    }

    fn raw_lock(&self) -> &RawLock {
        &self.semaphore.raw_lock
    }

    fn count_permit(&self, step: CountStep, id: &PermitId) -> Result<i64> {
        self.raw_lock().count_permit(step, &id.visitor)
    }
}

impl Permits {
    /// Returns the ids of these permits; none if they are of a [`Semaphore`].
    pub fn ids(&self) -> Vec<PermitId> {
        let has_ids = self.hold.kind.rules().has_ids;
        let owners = self.hold.visitor.owners().filter(|_| has_ids);
        owners.map(|visitor| PermitId { visitor }).collect()
    }
}
