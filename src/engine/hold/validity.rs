//! Computes the end of a hold's validity, even while requests of the hold are on their way to the store.

#[cfg(test)]
mod tests;

use std::time::Duration;

use smallvec::SmallVec;

use crate::engine::hold::Hold;
use crate::engine::hold::state::State;
use crate::ground::clock::{BootInstant, Nanos, drift};
use crate::store::EXPIRY_SLACK;

/// A request that sets the lease in the store, such as a re-entry, a renewal, the release of a level or a commit.
///
/// Such a request can run at any time between its sending and its reply. Without a reply, it can run until it expires. If
/// these periods overlap for two requests, the requests can run in either order. The last one to run sets the lease:
///
/// | first request | lease that counts |
/// |---|---|
/// | got its reply before the second is sent | the second lease, from when the second is sent |
/// | no reply yet when the second is sent | the shorter lease, from when the second is sent |
/// | no reply, and expired when the second is sent | the second lease |
/// | got its reply, but may run once more ([`Flying::Answered`]) | as without a reply |
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    pub(super) id: InFlightId,
    pub(super) by: By,
    pub(super) sent: BootInstant,
    pub(super) lease: Nanos,
    /// A reply to this request extends the validity to this moment at most, because other requests may run after this one.
    pub(super) most: Option<BootInstant>,
    /// The server refuses the request from this moment on.
    pub(super) expires: BootInstant,
    pub(super) state: Flying,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flying {
    Awaited,
    /// The caller no longer waits for the reply to the request.
    Unanswered,
    /// The request got its reply, but may run once more until it expires. A quorum node that has not replied can run
    /// the request, or the server can receive an earlier copy that was sent over a connection closed since.
    Answered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Holder,
    Watchdog,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlightId(pub(super) u32);

/// If a hold has this many requests in flight, the requests whose reply is no longer awaited are merged.
pub(super) const MOST_IN_FLIGHT: usize = 8;

pub(super) fn end_of_validity(sent: BootInstant, lease: Duration) -> BootInstant {
    sent + lease.saturating_sub(drift(lease))
}

impl Hold {
    /// Notes the lifetime of the semaphore's key, counted from when the request that acquired the hold was sent.
    pub(crate) fn set_lifetime(&self, life: Duration) {
        let mut state = self.state.lock();
        let sent = state.counted_from;
        state.set_life(sent, Some(life));
        let ends = state.life_ends();
        for level in &mut state.levels {
            level.ends = level.ends.map(|end| ends.map_or(end, |ends| ends.min(end)));
        }
    }
}

impl State {
    /// Notes a request before it is sent. The function adds [`EXPIRY_SLACK`] to `expires`, the request's deadline.
    pub(super) fn note_in_flight(
        &mut self,
        by: By,
        sent: BootInstant,
        lease: Duration,
        expires: BootInstant,
    ) -> InFlightId {
        self.in_flight.retain(|request| sent < request.expires);
        self.merge();
        // The request may shorten the lease, even if its reply never arrives.
        let end = end_of_validity(sent, lease);
        self.valid_until = self.valid_until.min(end);
        self.longest = self.longest.max(lease.into());
        let mut most = None;
        for other in &mut self.in_flight {
            other.most = Some(other.most.map_or(end, |most| most.min(end)));
            let behind = end_of_validity(sent, other.lease.get());
            most = Some(most.map_or(behind, |most: BootInstant| most.min(behind)));
        }
        let id = InFlightId(self.next_id());
        self.in_flight.push(InFlight {
            id,
            by,
            sent,
            lease: lease.into(),
            most,
            expires: expires + EXPIRY_SLACK,
            state: Flying::Awaited,
        });
        id
    }

    /// Notes the lifetime of the semaphore's key, as found by a request that was sent at `sent`. `life` is `None` if the
    /// lifetime exceeds the lease.
    pub(super) fn set_life(&mut self, sent: BootInstant, life: Option<Duration>) {
        let ends = life.map(|life| end_of_validity(sent, life));
        if ends != self.life_ends() {
            self.rare().life_ends = ends;
        }
        if let Some(end) = ends {
            self.valid_until = self.valid_until.min(end);
        }
    }

    /// A merged request has the shortest lease and the latest expiry of the original requests.
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

    pub(super) fn unanswered(&mut self, in_flight_id: InFlightId) {
        self.mark(in_flight_id, Flying::Unanswered);
    }

    pub(super) fn mark(&mut self, in_flight_id: InFlightId, state: Flying) {
        let mut requests = self.in_flight.iter_mut();
        if let Some(request) = requests.find(|it| it.id == in_flight_id) {
            request.state = state;
        }
    }

    /// Extends the validity by a confirmed lease, counted from when its request was sent.
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
