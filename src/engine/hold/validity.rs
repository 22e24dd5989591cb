//! Until when a hold is valid: what may be believed while some of its requests may yet run.

#[cfg(test)]
mod tests;

use std::time::Duration;

use smallvec::SmallVec;

use crate::engine::hold::Hold;
use crate::engine::hold::state::State;
use crate::ground::clock::{BootInstant, drift};
use crate::store::EXPIRY_SLACK;

/// A request that sets the lease in the store: a re-entry, a renewal, a level given back, a commit.
///
/// It may run at any time from when it is sent until it is answered, and until it expires if it is not. Two of them of
/// which neither was answered before the other was sent may run in either order, and the lease of the last one stands:
///
/// | one | the other | what stands at least, and is believed |
/// |---|---|---|
/// | answered before the other was sent | sent later | what the other sets, from when it is sent |
/// | under way, or without an answer, when the other is sent | | the shorter of the two, from when the other was sent |
/// | without an answer, and expired when the other is sent | | what the other sets |
/// | answered, while an earlier copy of it or a part of the store may still have it before it | sent later | as without an answer |
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    pub(super) id: InFlightId,
    pub(super) by: By,
    pub(super) sent: BootInstant,
    pub(super) lease: Duration,
    /// The most that its own confirmation may count, for those that may run after it.
    pub(super) most: Option<BootInstant>,
    /// From here on the server refuses it.
    pub(super) expires: BootInstant,
    pub(super) state: Flying,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flying {
    /// Its answer is waited for.
    Awaited,
    /// Nobody waits for its answer any more.
    Unanswered,
    /// It has its answer, but may run once more: in a part of the store that has not answered, or as an earlier copy on a
    /// connection that was cut. No order of connections bounds that, only its expiry.
    Answered,
}

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Holder,
    Watchdog,
}

/// Identifies a request of a hold that sets the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlightId(pub(super) u32);

/// More requests without an answer than these count as one.
pub(super) const MOST_IN_FLIGHT: usize = 8;

/// The end of the validity that a lease gives whose request was sent then.
pub(super) fn end_of_validity(sent: BootInstant, lease: Duration) -> BootInstant {
    sent + lease.saturating_sub(drift(lease))
}

impl Hold {
    /// Notes that what it was taken from ends so long after the request was sent that began it.
    pub(crate) fn with_life(self, life: Option<Duration>) -> Hold {
        let mut state = self.state.lock();
        let sent = state.counted_from;
        state.set_life(sent, life);
        let ends = state.life_ends();
        for level in &mut state.levels {
            level.ends = level.ends.map(|end| ends.map_or(end, |ends| ends.min(end)));
        }
        drop(state);
        self
    }

    /// Notes how long what it was taken from lasts, as a renewal has found it.
    pub(crate) fn note_life(&self, in_flight_id: InFlightId, life: Option<Duration>) {
        let mut state = self.state.lock();
        let request = state.in_flight.iter().find(|it| it.id == in_flight_id);
        if let Some(sent) = request.map(|it| it.sent) {
            state.set_life(sent, life);
        }
    }
}

impl State {
    /// Notes a request that is about to be sent and is refused from `expires` on.
    pub(super) fn note_in_flight(
        &mut self,
        by: By,
        sent: BootInstant,
        lease: Duration,
        expires: BootInstant,
    ) -> InFlightId {
        self.in_flight.retain(|request| sent < request.expires);
        self.merge();
        // The store may be about to shorten the lease, whether we hear of it or not.
        let end = end_of_validity(sent, lease);
        self.valid_until = self.valid_until.min(end);
        self.longest = self.longest.max(lease);
        let mut most = None;
        for other in &mut self.in_flight {
            other.most = Some(other.most.map_or(end, |most| most.min(end)));
            let behind = end_of_validity(sent, other.lease);
            most = Some(most.map_or(behind, |most: BootInstant| most.min(behind)));
        }
        let id = InFlightId(self.next_in_flight_id);
        self.next_in_flight_id = self.next_in_flight_id.wrapping_add(1);
        self.in_flight.push(InFlight {
            id,
            by,
            sent,
            lease,
            most,
            expires: expires + EXPIRY_SLACK,
            state: Flying::Awaited,
        });
        id
    }

    /// Notes how long what it was taken from lasts, as far as a request found that was sent then; `None` if for longer than
    /// its lease.
    pub(super) fn set_life(&mut self, sent: BootInstant, life: Option<Duration>) {
        let ends = life.map(|life| end_of_validity(sent, life));
        if ends != self.life_ends() {
            self.rare().life_ends = ends;
        }
        if let Some(end) = ends {
            self.valid_until = self.valid_until.min(end);
        }
    }

    /// Makes one of many requests that nobody waits for any more, which promises no more than any of them.
    fn merge(&mut self) {
        if self.in_flight.len() < MOST_IN_FLIGHT {
            return;
        }
        let mut left: SmallVec<[InFlight; 1]> = SmallVec::new();
        for request in self.in_flight.drain(..) {
            let alike = |it: &&mut InFlight| (it.by, it.state) == (request.by, request.state);
            match left.iter_mut().find(alike) {
                Some(one) if request.state != Flying::Awaited => {
                    one.lease = one.lease.min(request.lease);
                    one.expires = one.expires.max(request.expires);
                }
                _ => left.push(request),
            }
        }
        self.in_flight = left;
    }

    /// Notes that nobody waits for the answer any more.
    pub(super) fn unanswered(&mut self, in_flight_id: InFlightId) {
        self.mark(in_flight_id, Flying::Unanswered);
    }

    /// Notes that it has its answer, and may run once more.
    pub(super) fn answered(&mut self, in_flight_id: InFlightId) {
        self.mark(in_flight_id, Flying::Answered);
    }

    fn mark(&mut self, in_flight_id: InFlightId, state: Flying) {
        let mut requests = self.in_flight.iter_mut();
        if let Some(request) = requests.find(|it| it.id == in_flight_id) {
            request.state = state;
        }
    }

    /// Counts a confirmed lease, from before its request was sent.
    pub(super) fn confirm(
        &mut self,
        in_flight_id: InFlightId,
        sent: BootInstant,
        lease: Duration,
        may_run_again: bool,
    ) {
        let mut requests = self.in_flight.iter();
        let Some(at) = requests.position(|it| it.id == in_flight_id) else {
            return;
        };
        let mut end = end_of_validity(sent, lease);
        if let Some(request) = self.in_flight.get_mut(at) {
            end = request.most.map_or(end, |most| most.min(end));
            request.state = Flying::Answered;
        }
        end = self.life_ends().map_or(end, |ends| ends.min(end));
        if !may_run_again {
            self.in_flight.swap_remove(at);
        }
        if self.valid_until <= end {
            self.valid_until = end;
            self.counted_from = sent;
        }
    }
}
