//! Work on the server of a hold, which is done only where the hold stands.

use std::time::Duration;

use crate::engine::hold::Hold;
use crate::engine::hold::in_flight::LateCopy;
use crate::engine::hold::state::Phase;
use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;

/// The part of guarded work that the hold knows.
#[derive(Debug)]
pub(crate) struct WriteStart {
    pub(crate) claim: Claim,
    pub(crate) valid_until: BootInstant,
    pub(crate) late_copy: Option<LateCopy>,
}

impl Hold {
    /// Starts work under this hold; `None` if it has ended.
    pub(crate) fn begin_write(&self) -> Option<WriteStart> {
        let state = self.state.lock();
        let now = self.timeline.now();
        let counts = matches!(state.phase, Phase::Held) && now < state.valid_until;
        if !counts || !self.client.has_watchdog() {
            return None;
        }
        let late_copy = state.late_copy().filter(|copy| now < copy.gone_at);
        Some(WriteStart {
            claim: self.claim(&state, Duration::ZERO),
            valid_until: state.valid_until,
            late_copy,
        })
    }

    /// The copy of the request that began it, or of one before it, that may yet come.
    pub(crate) fn late_copy(&self) -> Option<LateCopy> {
        let state = self.state.lock();
        state
            .late_copy()
            .filter(|copy| self.timeline.now() < copy.gone_at)
    }

    /// Notes that no copy comes any more.
    pub(crate) fn has_no_late_copy(&self) {
        if let Some(rare) = &mut self.state.lock().rare {
            rare.late_copy = None;
        }
    }
}
