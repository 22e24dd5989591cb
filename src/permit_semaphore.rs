use std::time::Duration;

use crate::engine::wait_loop::WaitLimit;
use crate::ground::claim::{ENDLESS, LARGEST_COUNT};
use crate::ground::clock::SHORTEST_LEASE;
use crate::ground::error::Result;
use crate::ground::interrupt::Interrupt;
use crate::ground::permit_id::PermitId;
use crate::lock::Lock;
use crate::semaphore::{Permits, counter_methods};
use crate::store::CountStep;

/// A semaphore whose permits have ids and separate leases: Redisson's `RPermitExpirableSemaphore`.
///
/// [`PermitSemaphore::acquire`] returns a [`Permits`] handle. Its permits are renewed until the drop of the handle
/// releases them. [`PermitSemaphore::acquire_id`] acquires a permit without a handle. Any process can release this
/// permit by its id with [`PermitSemaphore::release_id`]. Without a release, the permit ends with its lease.
///
/// * **Acquisitions wait until the semaphore has been set.** Call [`PermitSemaphore::try_set`] first. The call has no
///   effect on an existing semaphore.
/// * A Redisson client expires permits by the clock of its own machine. **If that clock is some seconds ahead, fixed leases
///   end that many seconds too early.** Renewed permits with the default lease of 30 s tolerate a clock that is 20 s ahead.
/// * **Use a separate name.** A [`Semaphore`](crate::Semaphore) or a [`Latch`](crate::Latch) of the same name uses the
///   same key in Redis.
/// * As for a [`Semaphore`](crate::Semaphore), acquisitions are not reentrant, and there is no order among processes.
///
/// [`Client::permit_semaphore`](crate::Client::permit_semaphore) returns a semaphore without I/O. All semaphores of one name
/// share the same permits. A semaphore exists on one Redis server (also behind sentinels or in a cluster). A failover may
/// lose a change of the number of free permits, or apply the change twice.
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
/// let sent = id.to_string(); // … to another process, which finishes within a minute:
/// let id = PermitId::parse(&sent).expect("an id");
/// assert!(semaphore.release_id(&id)?);
/// assert!(!semaphore.release_id(&id)?, "it was released before");
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PermitSemaphore {
    pub(crate) lock: Lock,
}

counter_methods!(PermitSemaphore);

impl PermitSemaphore {
    /// Returns another `PermitSemaphore` of this name. A [`Permits`] handle from this value has the fixed lease `lease`.
    ///
    /// Permits with a fixed lease are not renewed. They end after `lease` even without a release. If `lease` is not
    /// 10 ms ..= 365 days, acquisitions return [`Error::InvalidLease`](crate::Error::InvalidLease). Without this method
    /// the watchdog renews the permits.
    #[must_use = "this returns the configured semaphore; the original is unchanged"]
    pub fn with_lease_time(&self, lease: Duration) -> PermitSemaphore {
        // A handle must not have an endless lease. With `Duration::MAX`, its acquisition returns `InvalidLease`.
        let is_endless = lease >= ENDLESS;
        let lease = if is_endless { Duration::MAX } else { lease };
        let lock = self.lock.with_lease_time(lease);
        PermitSemaphore { lock }
    }

    /// Sets the sum of free and acquired permits, 0 ..= 2147483647. Creates the semaphore if none exists. Redisson has
    /// this method as `setPermits`.
    ///
    /// If more than `permits` are acquired now, the number of free permits is negative until enough are released.
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

    /// Acquires one permit without a handle, and waits without a limit until a permit is free.
    ///
    /// The permit ends after `lease`, 10 ms ..= 365 days. With `None` the permit ends only when it is released. **If the id
    /// of such a permit is lost, the permit stays taken.**
    ///
    /// # Errors
    ///
    /// [`Error::InvalidLease`](crate::Error::InvalidLease) if `lease` is out of range.
    /// [`Error::Lost`](crate::Error::Lost) or [`Error::Unknown`](crate::Error::Unknown) if the permit ended before the
    /// reply arrived. Other errors are those of [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire_id(&self, lease: Option<Duration>) -> Result<PermitId> {
        WaitLimit::without_end(None, |limit| self.acquire_id_within(lease, limit))
    }

    /// Acquires one permit without a handle, and waits at most `wait` until a permit is free. Returns `None` if the wait
    /// ended without a permit. A `wait` of zero makes one attempt.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`](crate::Error::InvalidWait) if the end of the wait cannot be represented as an
    /// `Instant`, and those of [`PermitSemaphore::acquire_id`].
    #[must_use = "a permit whose id is dropped stays taken until its lease ends"]
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

    /// Releases a permit that any process acquired. Returns false if the permit was released before, has ended, or belongs
    /// to another semaphore.
    ///
    /// If the permit belongs to a [`Permits`] handle, the handle is lost. The loss is noticed at the next renewal or,
    /// with a fixed lease, at the release of the handle.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::add_permits`](crate::Semaphore::add_permits).
    pub fn release_id(&self, id: &PermitId) -> Result<bool> {
        let raw_lock = self.lock.raw_lock();
        Ok(raw_lock.count_permit(CountStep::GiveBack, &id.visitor)? == 1)
    }

    /// Sets the remaining lease of a permit to `lease`, 10 ms ..= 365 days, and returns whether the permit is taken. With
    /// `None` the permit gets a lease without an end.
    ///
    /// Use this method only for permits without a handle. A renewal of a handle overwrites the new lease. A handle with
    /// a fixed lease does not notice the new lease.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidLease`](crate::Error::InvalidLease) if `lease` is out of range, and those of
    /// [`Semaphore::add_permits`](crate::Semaphore::add_permits).
    pub fn set_lease(&self, id: &PermitId, lease: Option<Duration>) -> Result<bool> {
        let raw_lock = self.lock.raw_lock();
        raw_lock.ready()?;
        if let Some(lease) = lease {
            raw_lock.check_lease(SHORTEST_LEASE, lease)?;
        }
        let step = CountStep::SetLease(lease.unwrap_or(ENDLESS));
        Ok(raw_lock.count_permit(step, &id.visitor)? == 1)
    }

    /// Queries the remaining lease of a permit, in whole milliseconds. Returns `None` if the permit is not taken, and
    /// [`Duration::MAX`] if neither its lease nor the semaphore has an end.
    ///
    /// # Errors
    ///
    /// Those of [`PermitSemaphore::available`].
    pub fn lease_of(&self, id: &PermitId) -> Result<Option<Duration>> {
        let raw_lock = self.lock.raw_lock();
        let left = raw_lock.count_permit(CountStep::Lease, &id.visitor)?;
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        Ok(match left {
            Duration::ZERO => None,
            // The store writes the end of an endless lease as 1970 plus `ENDLESS`, so less than `ENDLESS` remains.
            left if left > ENDLESS / 2 => Some(Duration::MAX),
            left => Some(left),
        })
    }

    /// Queries the number of acquired permits of all processes.
    ///
    /// # Errors
    ///
    /// Those of [`Semaphore::available`](crate::Semaphore::available).
    pub fn acquired(&self) -> Result<u32> {
        let taken = self.lock.raw_lock().count(CountStep::Taken)?;
        Ok(u32::try_from(taken).unwrap_or(u32::MAX))
    }
}

impl Permits {
    /// Returns the ids of these permits. Permits of a [`Semaphore`](crate::Semaphore) have no ids, so their list is empty.
    pub fn ids(&self) -> Vec<PermitId> {
        let has_ids = self.guard.held().hold.kind.rules().has_ids;
        let owners = self.guard.held().hold.visitor.owners().filter(|_| has_ids);
        owners.map(|visitor| PermitId { visitor }).collect()
    }
}
