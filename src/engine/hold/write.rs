//! Work on the server of a hold, which is done only where the hold stands.

use std::time::Duration;

use crate::engine::hold::Hold;
use crate::engine::hold::state::Phase;
use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;

/// The part of guarded work that the hold knows.
#[derive(Debug)]
pub(crate) struct WriteStart {
    pub(crate) claim: Claim,
    pub(crate) valid_until: BootInstant,
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
        Some(WriteStart {
            claim: self.claim(&state, Duration::ZERO),
            valid_until: state.valid_until,
        })
    }
}
