//! A hold whose row a transaction has locked.

#[cfg(test)]
mod tests;

use std::time::Duration;

use smallvec::SmallVec;

use crate::engine::hold::state::Phase;
use crate::engine::hold::validity::By;
use crate::engine::hold::{Hold, LevelId};
use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;

impl Hold {
    /// Leaves the hold to a transaction, which the clock does not end and the watchdog does not disturb. Returns
    /// whether it is held and no other transaction has it.
    pub(crate) fn pin(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = matches!(state.phase, Phase::Held) && state.pinned_since().is_none();
        if is_free {
            state.rare().pinned_since = Some(self.timeline.now());
        }
        is_free
    }

    /// The levels that are to be given back now that no transaction has it any more.
    pub(crate) fn take_put_off(&self) -> SmallVec<[LevelId; 1]> {
        let mut state = self.state.lock();
        let rare = state.rare.as_mut();
        rare.map(|it| std::mem::take(&mut it.put_off))
            .unwrap_or_default()
    }

    /// Ends what [`Hold::pin`] began. `committed` is the lease that the transaction has set, and from when it counts:
    /// it holds even if the one before it had run out meanwhile, because nobody could take the row.
    pub(crate) fn unpin(&self, committed: Option<(BootInstant, Duration)>) {
        let mut state = self.state.lock();
        let rare = state.rare.as_mut();
        let Some(since) = rare.and_then(|it| it.pinned_since.take()) else {
            return;
        };
        if let (Phase::Held, Some((sent, lease))) = (&state.phase, committed) {
            // A renewal that was sent before may have waited for the row.
            let in_flight_id = state.note_in_flight(By::Holder, sent, lease, sent);
            state.confirm(in_flight_id, sent, lease, false);
        }
        let now = self.timeline.now();
        if committed.is_none() && state.counted_from + state.pace() / 3 < now {
            state.rare().last_trouble = Some(format!(
                "a transaction blocked its renewal for {} ms",
                since.until(now).as_millis()
            ));
        }
    }

    /// The claim that extends this hold; its lease is zero if no level counts on it any more.
    pub(crate) fn extension(&self) -> Claim {
        let state = self.state.lock();
        let rest = state.rest(self.timeline.now()).unwrap_or_default();
        self.claim(&state, rest)
    }
}
