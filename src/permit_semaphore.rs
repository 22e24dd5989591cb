//! The semaphore whose permits have ids.

use std::time::Duration;

use crate::engine::wait_loop::WaitLimit;
use crate::ground::claim::{ENDLESS, LARGEST_COUNT};
use crate::ground::error::Result;
use crate::ground::interrupt::Interrupt;
use crate::ground::permit_id::PermitId;
use crate::lock::Lock;
use crate::semaphore::{Permits, counter_methods};
use crate::store::CountStep;

/// A semaphore whose permits have ids and leases of their own: Redisson's `RPermitExpirableSemaphore`.
///
/// As of a [`Semaphore`](crate::Semaphore), permits are taken by [`PermitSemaphore::acquire`], which renews them and gives them back when
/// they are dropped. Or [`PermitSemaphore::acquire_id`] takes one that no handle owns: its id can be passed to another
/// process, which gives it back with [`PermitSemaphore::release_id`]. A permit that nobody gives back ends with its
/// lease.
///
/// * **A semaphore that nobody has set is waited for.** Call [`PermitSemaphore::try_set`] first; it sets the permits once.
/// * Redisson takes permits back whose ends have passed by the clock of *its* machine. **A machine that is ahead by some
///   seconds takes a fixed lease away so much early**, and nobody here can know. Renewed permits have 20 s to spare with
///   the default lease of 30 s.
/// * **Its name is for nothing else**: a [`Semaphore`](crate::Semaphore) or a [`Latch`](crate::Latch) of the same name is the same number in
///   Redis.
/// * It is not reentrant, and among processes there is no order, as with a [`Semaphore`](crate::Semaphore).
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
    pub(crate) lock: Lock,
}

counter_methods!(PermitSemaphore);

impl PermitSemaphore {
    /// Returns the same semaphore with a fixed lease time for the permits that are taken through it by
    /// [`PermitSemaphore::acquire`] and the like.
    ///
    /// Permits with a fixed lease are not renewed: they end after `lease`, released or not. The range is 10 ms ..= 365
    /// days; anything else is [`Error::InvalidLease`](crate::Error::InvalidLease) at the acquisition. Defaults to no
    /// fixed lease: the watchdog renews the permits.
    #[must_use = "this returns the configured semaphore; the original is unchanged"]
    pub fn with_lease_time(&self, lease: Duration) -> PermitSemaphore {
        // Permits of a handle have an end in any case.
        let is_endless = lease >= ENDLESS;
        let lease = if is_endless { Duration::MAX } else { lease };
        let lock = self.lock.with_lease_time(lease);
        PermitSemaphore { lock }
    }

    /// Makes so many permits, 0 ..= 2147483647, of those that are free and those that were taken, and the semaphore if
    /// there is none: Redisson's `setPermits`. If more were taken, the number of free ones is below 0 until enough are
    /// back.
    ///
    /// # Errors
    ///
    /// Those of [`PermitSemaphore::try_set`].
    pub fn set(&self, permits: u32) -> Result<()> {
        let raw_lock = self.lock.raw_lock();
        raw_lock.ready()?;
        if permits > LARGEST_COUNT {
            return Err(self.lock.invalid_permits(permits.into()));
        }
        raw_lock.count(CountStep::Replace(permits)).map(drop)
    }

    /// Takes one permit that no handle owns, and waits for it as long as it takes. It ends after `lease`, 10 ms ..= 365
    /// days, or with `None` only when it is given back: **if its id gets lost, so is the permit**.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidLease`](crate::Error::InvalidLease) if `lease` is out of range,
    /// [`Error::Lost`](crate::Error::Lost) or [`Error::Unknown`](crate::Error::Unknown) if it ended while the answer was on its
    /// way, and those of [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire_id(&self, lease: Option<Duration>) -> Result<PermitId> {
        WaitLimit::without_end(None, |limit| self.acquire_id_within(lease, limit))
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
        self.acquire_id_within(lease, self.lock.raw_lock().limit(wait, None)?)
    }

    fn acquire_id_within(
        &self,
        lease: Option<Duration>,
        limit: WaitLimit<'_>,
    ) -> Result<Option<PermitId>> {
        let lock = self.lock.with_lease_time(lease.unwrap_or(ENDLESS));
        let Some(taken) = lock.take_permits(1, limit)? else {
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
    /// Those of [`Semaphore::add_permits`](crate::Semaphore::add_permits).
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
    /// [`Semaphore::add_permits`](crate::Semaphore::add_permits).
    pub fn set_lease(&self, id: &PermitId, lease: Option<Duration>) -> Result<bool> {
        let raw_lock = self.lock.raw_lock();
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

    /// Asks for the number of permits that were taken and have not ended, by whomever.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::available`](crate::Semaphore::available).
    pub fn acquired(&self) -> Result<u32> {
        let taken = self.lock.raw_lock().count(CountStep::Taken)?;
        Ok(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    fn count_permit(&self, step: CountStep, id: &PermitId) -> Result<i64> {
        self.lock.raw_lock().count_permit(step, &id.visitor)
    }
}

impl Permits {
    /// Returns the ids of these permits; none if they are of a [`Semaphore`](crate::Semaphore).
    pub fn ids(&self) -> Vec<PermitId> {
        let has_ids = self.guard.held().hold.kind.rules().has_ids;
        let owners = self.guard.held().hold.visitor.owners().filter(|_| has_ids);
        owners.map(|visitor| PermitId { visitor }).collect()
    }
}
