use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::hold::{Hold, InFlightId, LevelId, ReleasePlan};
use crate::engine::owner::Owner;
use crate::engine::raw_lock::RawLock;
use crate::ground::backoff::Backoff;
use crate::ground::claim::Claim;
use crate::ground::error::Result;
use crate::ground::loss::LossCause;
use crate::ground::{events, time};
use crate::store::{Left, Outcome, Released};

/// The estimated duration of a poller's request.
const FOR_A_QUESTION: Duration = Duration::from_millis(10);

impl RawLock {
    /// The caller must have called [`RawLock::ready`].
    pub(crate) fn release(&self, hold: &Arc<Hold>, level: LevelId) -> Result<()> {
        // A guard may be dropped while its thread ends. Then the thread has no `Owner` any more.
        let me = self.inner.thread(&self.key.lock.name).ok();
        self.release_of(me.as_deref(), hold, level)
    }

    /// The caller must have called [`RawLock::ready`].
    pub(crate) fn release_of(
        &self,
        owner: Option<&Owner>,
        hold: &Arc<Hold>,
        level: LevelId,
    ) -> Result<()> {
        self.inner.watchdog.end_lapsed(hold);
        let deadline = self.inner.deadline();
        let outcome = match hold.release_level(level, deadline) {
            ReleasePlan::Lost { cause, had_level } => {
                if had_level && let Some(owner) = owner {
                    owner.held.remove_lapsed_level(&self.key, hold);
                }
                Err(hold.lost_error(cause))
            }
            ReleasePlan::AlreadyGivenBack => Err(self.given_back(hold)),
            ReleasePlan::Whole(claim) => self.release_whole(hold, &claim, deadline),
            ReleasePlan::Part(claim, in_flight_id) => {
                // The validity may end before the reply, so the watchdog must check the hold when the validity ends.
                self.inner.watchdog.rewatch(hold);
                self.give_level_back(hold, &claim, in_flight_id, deadline)
            }
            ReleasePlan::Expired(claim) => {
                self.inner.watchdog.report_expired(hold);
                self.release_whole(hold, &claim, deadline)
            }
        };
        if let Some(owner) = owner {
            owner.held.remove_if_released(&self.key, hold);
        }
        outcome
    }

    /// Releases `hold`, which must have one level, in the background. The caller must have called [`RawLock::ready`].
    pub(crate) fn release_in_background(&self, owner: &Owner, hold: &Arc<Hold>, level: LevelId) {
        self.inner.watchdog.end_lapsed(hold);
        let in_doubt = hold.in_doubt();
        let deadline = self.inner.deadline();
        // Any other plan means that the hold was lost, and its loss is already reported.
        if let ReleasePlan::Whole(claim) = hold.release_level(level, deadline) {
            if self.inner.watchdog.release_later(in_doubt) {
                self.inner.watchdog.unwatch(hold);
                self.inner.wait_queues.freed(&self.key.lock, None, None);
                hold.close_listeners();
                events::unlocked(&claim.name, &claim.visitor);
            } else if let Err(error) = self.release_whole(hold, &claim, deadline) {
                events::unlock_failed(&claim.name, &error);
            }
        }
        owner.held.remove_if_released(&self.key, hold);
    }

    fn give_level_back(
        &self,
        hold: &Arc<Hold>,
        claim: &Claim,
        in_flight_id: InFlightId,
        deadline: Instant,
    ) -> Result<()> {
        let inner = &self.inner;
        let left = Left::Levels(claim.count.saturating_sub(1));
        match inner.ask_by("release", |store| store.release(claim, left, deadline)) {
            Ok(Outcome::Done(Released { leftover, .. })) => {
                let now = inner.store.facts().timeline.now();
                hold.confirmed(in_flight_id, None, leftover.is_some(), now);
                self.inner.watchdog.rewatch(hold);
                Ok(())
            }
            Ok(Outcome::Gone(cause)) => {
                // Some nodes of the store may still have the hold. `lost` releases the hold there in the background.
                Err(self.inner.watchdog.lost(hold, cause))
            }
            Ok(Outcome::Unknown { error, .. }) | Err(error) => {
                hold.unanswered(in_flight_id);
                self.inner.watchdog.rewatch(hold);
                Err(error)
            }
        }
    }

    pub(super) fn release_whole(
        &self,
        hold: &Hold,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<()> {
        self.inner.watchdog.unwatch(hold);
        let outcome = match self.hand_off(hold, claim, deadline) {
            Some(outcome) => outcome,
            None => match self.free(claim, deadline) {
                Ok(None) => Ok(()),
                Ok(Some(cause)) => Err(self.inner.watchdog.lost_in_release(hold, cause)),
                Err(error) => Err(error),
            },
        };
        hold.close_listeners();
        events::unlocked(&claim.name, &claim.visitor);
        outcome
    }

    /// Returns the cause of the loss if the store no longer had the hold.
    pub(super) fn free(&self, claim: &Claim, deadline: Instant) -> Result<Option<LossCause>> {
        let (mut head_start, mut pause) = (None, None);
        let left = match self.polling() {
            Some(_) => Left::NothingQuietly,
            None => Left::Nothing,
        };
        let inner = &self.inner;
        let outcome = match inner.ask_by("release", |store| store.release(claim, left, deadline)) {
            Ok(Outcome::Done(Released {
                others, leftover, ..
            })) => {
                if let Some(leftover) = leftover {
                    self.inner.watchdog.resolve_later(leftover);
                }
                // Other processes get a head start of two round trips: the unlock message and an attempt.
                head_start = (others > 0).then(|| {
                    let left = deadline.saturating_duration_since(time::now());
                    let took = self.inner.timeouts.request().saturating_sub(left);
                    (took * 2, others)
                });
                pause = self.poll_pause();
                Ok(None)
            }
            Ok(Outcome::Gone(cause)) => {
                if inner.store.facts().is_composite {
                    inner.watchdog.resolve_later(claim.in_doubt(0));
                }
                Ok(Some(cause))
            }
            Ok(Outcome::Unknown { in_doubt, error }) => {
                self.inner.watchdog.resolve_later(in_doubt);
                Err(error)
            }
            Err(error) => {
                self.inner.watchdog.resolve_later(claim.in_doubt(0));
                Err(error)
            }
        };
        let wait_queues = &inner.wait_queues;
        wait_queues.freed(&self.key.lock, head_start, pause);
        outcome
    }

    /// Returns the longest time between two attempts of a poller; `None` if the lock is not polled.
    pub(super) fn poll_pause(&self) -> Option<Duration> {
        let is_polled = (self.inner.store.facts().is_polled)(self.key.lock.kind);
        let longest = match self.polling() {
            Some(polling) => polling.longest,
            None if is_polled => Backoff::LONGEST_POLL,
            None => return None,
        };
        Some(Backoff::longest_of(longest) + FOR_A_QUESTION)
    }
}
