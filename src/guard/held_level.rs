use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::hold::{Hold, LevelId};
use crate::engine::raw_lock::RawLock;
use crate::ground::error::Result;
use crate::ground::guarded_work::Work;
use crate::ground::reply::Reply;
use crate::lock::Lock;
use crate::losses::Losses;
#[cfg(feature = "mysql")]
use crate::stores::mysql::MySql;

pub(crate) struct HeldLevel {
    pub(super) lock: Lock,
    pub(crate) hold: Arc<Hold>,
    pub(super) level: LevelId,
}

impl HeldLevel {
    pub(super) fn new(lock: Lock, hold: Arc<Hold>, level: LevelId) -> HeldLevel {
        hold.guard(level);
        HeldLevel { lock, hold, level }
    }

    pub(crate) fn raw_lock(&self) -> &RawLock {
        self.lock.raw_lock()
    }

    pub(super) fn is_valid(&self) -> bool {
        // In a forked child the hold's mutex may stay locked forever, so `is_forked` is called first.
        !self.raw_lock().inner.is_forked() && self.hold.is_valid()
    }

    pub(super) fn remaining_validity(&self) -> Duration {
        match self.raw_lock().inner.is_forked() {
            true => Duration::ZERO,
            false => self.hold.remaining_validity(),
        }
    }

    pub(super) fn lost(&self) -> Losses {
        Losses::of(Arc::clone(&self.hold), self.raw_lock().inner.pid)
    }

    pub(crate) fn work(&self, work: Work<'_>) -> Result<Vec<Reply>> {
        self.raw_lock().ready()?;
        self.raw_lock().write(&self.hold, work)
    }

    #[cfg(feature = "mysql")]
    pub(crate) fn parts(&self) -> (&RawLock, Option<&MySql>, &Arc<Hold>) {
        (self.raw_lock(), self.lock.database.as_deref(), &self.hold)
    }
}

impl fmt::Debug for HeldLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLevel")
            .field("lock", &self.hold.name)
            .field("visitor", &self.hold.visitor)
            .field("is_valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
