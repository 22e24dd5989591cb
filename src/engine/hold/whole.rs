//! All levels of a hold, given back at once to be taken again later.

use std::time::Duration;

use smallvec::SmallVec;

use crate::engine::hold::state::Phase;
use crate::engine::hold::{Hold, Lease};
use crate::ground::claim::Claim;
use crate::ground::loss::LossCause;

/// The leases that the levels of a hold were taken with, the first one first.
pub(crate) type Leases = SmallVec<[Lease; 1]>;

impl Hold {
    /// Whether each of its levels is given back by hand; with `guards`, whether the only one is a guard's.
    pub(crate) fn has_levels_of(&self, guards: bool) -> bool {
        let state = self.state.lock();
        let are_alike = state.levels.iter().all(|level| level.is_guards == guards);
        are_alike && (state.levels.len() == 1 || !guards)
    }

    /// Takes all levels away, before anything is sent, and says what to send. The cause if it was lost before.
    pub(crate) fn leave_all(&self) -> Result<(Claim, Leases), LossCause> {
        let mut state = self.state.lock();
        match &state.phase {
            Phase::Held => {}
            Phase::Lost(cause) => return Err(LossCause::clone(cause)),
            Phase::Released => return Err(LossCause::Gone),
        }
        let mut claim = self.claim(&state, Duration::ZERO);
        let leases = state.levels.drain(..).map(|level| level.lease()).collect();
        // From here on nobody renews it.
        state.phase = Phase::Released;
        let _ended = self.end_notice(&mut state, false);
        claim.lease = state.may_stand(&self.timeline);
        // Whatever hears of the end is not to be called under the lock.
        drop(state);
        Ok((claim, leases))
    }
}
