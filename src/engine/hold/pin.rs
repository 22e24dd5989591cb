//! Pinned holds: a MySQL transaction has locked the row of such a hold.

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
    /// Notes that a transaction has locked the row of this database lock. Until [`Hold::unpin`], the hold is not
    /// renewed, and not lost when its validity ends. Returns false if the hold has ended or is already pinned.
    pub(crate) fn pin(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = matches!(state.phase, Phase::Held) && state.pinned_since().is_none();
        if is_free {
            state.rare().pinned_since = Some(self.client.timeline.now());
        }
        is_free
    }

    pub(crate) fn take_put_off(&self) -> SmallVec<[LevelId; 1]> {
        let mut state = self.state.lock();
        let rare = state.rare.as_mut();
        rare.map(|it| std::mem::take(&mut it.put_off))
            .unwrap_or_default()
    }

    /// Ends [`Hold::pin`]. `committed`: when the commit was sent, and the lease that it set. This lease counts even if the
    /// previous lease has ended, because the locked row excluded other clients.
    pub(crate) fn unpin(&self, committed: Option<(BootInstant, Duration)>) {
        let mut state = self.state.lock();
        let rare = state.rare.as_mut();
        let Some(since) = rare.and_then(|it| it.pinned_since.take()) else {
            return;
        };
        if let (Phase::Held, Some((sent, lease))) = (&state.phase, committed) {
            // A renewal that waits for the row lock may later shorten the lease. `note_in_flight` allows for this.
            let in_flight_id = state.note_in_flight(By::Holder, sent, lease, sent);
            state.confirm(in_flight_id, sent, lease, false);
        }
        let now = self.client.timeline.now();
        if committed.is_none() && state.counted_from + state.pace() / 3 < now {
            state.rare().last_trouble = Some(format!(
                "a transaction blocked its renewal for {} ms",
                since.until(now).as_millis()
            ));
        }
    }

    /// If the lease of every level has ended, the lease of the claim is zero.
    pub(crate) fn extension(&self) -> Claim {
        let state = self.state.lock();
        let rest = state.rest(self.client.timeline.now()).unwrap_or_default();
        self.claim(&state, rest)
    }
}
