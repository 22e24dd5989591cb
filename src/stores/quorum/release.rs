use std::time::{Duration, Instant};

use crate::ground::claim::{Claim, LockId};
use crate::ground::error::Result;
use crate::ground::loss::LossCause;
use crate::ground::time;
use crate::store::{Outcome, Released};
use crate::stores::quorum::Quorum;
use crate::stores::quorum::node::Purpose;
use crate::stores::quorum::tally::{Tally, Vote};

/// After a majority has released the hold, the call waits for further replies for half the elapsed time plus this time.
const SOON: Duration = Duration::from_micros(300);

impl Quorum {
    pub(super) fn release_by_majority(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        let mut tally = Tally::new(self.nodes.len());
        let mut in_doubt = claim.in_doubt(0);
        // A late reply to an acquire request does not prove that the node executed this request before the release. So
        // `forget` notes the expiries of unanswered acquire requests before the release is sent.
        let placement = self.forget(&mut in_doubt);
        let lease = self.settings.max_lease;
        let mut fan_out = self.send_to(placement, Purpose::Request, lease, deadline, |node, by| {
            node.node.send_release(claim, 0, by)
        });
        // The nodes that got no request for the hold, and so lack the hold.
        let absent = self.nodes.len() - placement.count_ones() as usize;
        let (mut done, mut lacking, mut others) = (0, 0, 0);
        // The nodes without a vote that lost the hold. No other client counts their grants.
        let mut forgot = 0;
        let mut patience = None;
        while let Some((index, answer)) = fan_out.next_within(patience) {
            if let Ok(Outcome::Done(released)) = &answer {
                others = released.others.max(others);
                done += 1;
            }
            let mut vote = self.record_reply(index, answer);
            if let Vote::Lacks(cause) = &vote {
                if let Some(not_after) = in_doubt.not_after(index).filter(|it| *it > 0) {
                    let reason = "the acquire request may still arrive";
                    vote = Vote::Unknown(not_after, self.unavailable(index, reason));
                } else {
                    lacking += 1;
                    let is_gone = *cause == LossCause::Gone;
                    forgot += usize::from(is_gone && self.without_vote(index).is_some());
                }
            }
            match &vote {
                Vote::Unknown(not_after, _) => in_doubt.raise(index, *not_after),
                Vote::Failed(_) => {}
                _ => in_doubt.set(index, None),
            }
            tally.note(index, vote);
            if done == self.needed {
                // Most other replies arrive soon. A background thread releases the lock at silent nodes later.
                patience.get_or_insert(time::now() + fan_out.age() / 2 + SOON);
            }
            fan_out.is_needed = done + lacking + absent < self.needed;
        }
        let took = fan_out.age();
        fan_out.note_rest(&mut tally.votes);
        let left = in_doubt.not_after.iter().flatten().count();
        // The nodes that may still execute an acquire request. They may never have granted the hold.
        let unconfirmed = in_doubt.not_after.iter().flatten().filter(|at| **at > 0);
        let unconfirmed = unconfirmed.count();
        if done >= self.needed {
            self.note_round_trip(took);
        }
        // `kept`: the nodes that may have excluded other clients until this call. `is_free`: `kept - unconfirmed` is a
        // majority, and a majority of all nodes lacks the hold now.
        let kept = done + left + if done > 0 { forgot } else { 0 };
        let is_free = kept - unconfirmed >= self.needed && done + lacking + absent >= self.needed;
        if done >= self.needed || (done > 0 && is_free) {
            return Ok(Outcome::Done(Released {
                others,
                leftover: (left > 0).then_some(in_doubt),
                successor: None,
            }));
        }
        match tally.lacking(0) {
            Some(cause) if kept < self.needed => Ok(Outcome::Gone(cause)),
            _ => Ok(Outcome::unknown(
                in_doubt,
                self.no_quorum(&claim.name, &tally),
            )),
        }
    }

    pub(super) fn release_level_by_majority(
        &self,
        claim: &Claim,
        keep: u32,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        let mut tally = Tally::new(self.nodes.len());
        let placement = self.placement(&claim.visitor);
        let (purpose, lease) = (Purpose::Request, claim.lease);
        let mut fan_out = self.send_to(placement, purpose, lease, deadline, |node, by| {
            node.node.send_release(claim, keep, by)
        });
        // The call waits for all replies. Otherwise a node could execute the hold's next request before this request.
        while let Some((index, answer)) = fan_out.next() {
            tally.note(index, self.record_reply(index, answer));
            fan_out.is_needed = tally.answered() < self.needed;
        }
        fan_out.note_rest(&mut tally.votes);
        if tally.granted() >= self.needed {
            return Ok(Outcome::Done(Released {
                leftover: tally.is_in_doubt().then(|| claim.in_doubt(0)),
                ..Released::default()
            }));
        }
        match tally.lacking(self.nodes.len() - self.needed) {
            Some(cause) => Ok(Outcome::Gone(cause)),
            None => Ok(Outcome::unknown(
                claim.in_doubt(0),
                self.no_quorum(&claim.name, &tally),
            )),
        }
    }

    pub(super) fn force_release_by_majority(
        &self,
        lock: &LockId,
        deadline: Instant,
    ) -> Result<bool> {
        let lease = self.settings.max_lease;
        let mut tally = Tally::new(self.nodes.len());
        let mut fan_out =
            self.send_to(self.all(), Purpose::Request, lease, deadline, |node, by| {
                node.node.send_force_release(lock, by)
            });
        let (mut answered, mut freed, mut forgot) = (0, 0, 0);
        while let Some((index, answer)) = fan_out.next() {
            let what = match answer {
                Ok(was_held) => {
                    answered += 1;
                    freed += usize::from(was_held);
                    forgot += usize::from(!was_held && self.without_vote(index).is_some());
                    Vote::Granted
                }
                Err(error) => Vote::Failed(error),
            };
            fan_out.is_needed = answered < self.needed;
            tally.note(index, what);
        }
        fan_out.note_rest(&mut tally.votes);
        if answered >= self.needed {
            // Silent nodes and nodes without a vote may have had the lock.
            let may_have = self.nodes.len() - answered + forgot;
            Ok(freed > 0 && freed + may_have >= self.needed)
        } else {
            Err(self.no_quorum(&lock.name, &tally))
        }
    }
}
