//! Guarded writes: commands that the store runs only while a hold is valid.

use crate::engine::hold::Hold;
use crate::engine::raw_lock::RawLock;
use crate::ground::error::{Error, Result};
use crate::ground::guarded_work::Work;
use crate::ground::reply::Reply;
use crate::ground::sync;
use crate::store::{Guarded, Outcome};

impl RawLock {
    /// The caller must have called [`RawLock::ready`].
    pub(crate) fn write(&self, hold: &Hold, work: Work<'_>) -> Result<Vec<Reply>> {
        let inner = &self.inner;
        work.check(&hold.name)?;
        let deadline = inner.deadline();
        loop {
            let Some((claim, valid_until)) = hold.begin_write() else {
                return Err(self.ended(hold));
            };
            let guarded = Guarded {
                claim: &claim,
                work,
                valid_until,
            };
            match inner.ask_by("write", |store| {
                store.redis_for(&self.key.lock)?.guarded(&guarded, deadline)
            }) {
                Ok(Outcome::Done(replies)) => return Ok(replies),
                Ok(Outcome::Refused(left)) => sync::sleep(left),
                Ok(Outcome::Gone(cause)) => return Err(inner.watchdog.lost(hold, cause)),
                Ok(Outcome::Unknown { error, .. }) | Err(error) => {
                    // If the work may have run, this error is returned, even if the hold has ended.
                    let is_done =
                        error.is_ambiguous() || matches!(error, Error::CommandFailed { .. });
                    let has_ended = || hold.lapse().is_some() || hold.loss_cause().is_some();
                    let is_over = !is_done && has_ended();
                    return Err(if is_over { self.ended(hold) } else { error });
                }
            }
        }
    }

    fn ended(&self, hold: &Hold) -> Error {
        self.inner.watchdog.end_lapsed(hold);
        let watchdog = &self.inner.watchdog;
        match hold.loss_cause() {
            Some(cause) => hold.lost_error(cause),
            None if self.inner.counters.has_watchdog() => self.given_back(hold),
            None => {
                let died = watchdog.ensure_running(&hold.name).err();
                died.unwrap_or_else(|| self.given_back(hold))
            }
        }
    }
}
