use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};

use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Result};
use crate::ground::{sync, time};
use crate::store::condition::{CONDITION_ENTRY_LIFE, EntryInDoubt};

/// The longest time assumed between the sending and the arrival of a request. In the store, a lease begins at the arrival.
const LONGEST_WAY: Duration = Duration::from_secs(30);

/// How many requests [`resolve_each`] resolves at the same time.
const RESOLVED_AT_ONCE: usize = 8;

/// A request whose outcome is unknown. It may already have written the id `visitor` to the store, or can still write it.
#[derive(Debug, Clone)]
pub(crate) struct InDoubt {
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// `Some` if the request concerns an entry in the queue of a condition, not a hold. In this case, `visitor` identifies
    /// the wait.
    pub(crate) place: Option<EntryInDoubt>,
    /// For each node, the time in ms on the node's clock after which the node refuses the request. A release after that time
    /// is final at that node. `None` means that nothing is left to release at the node. A node beyond the end of the list
    /// has the value of the last listed node.
    pub(crate) not_after: SmallVec<[Option<i64>; 1]>,
    /// The latest time at which a lease set by the request can end.
    pub(crate) ends: BootInstant,
}

impl Claim {
    /// A request for this claim. The request can still arrive until the server's time `not_after`.
    pub(crate) fn in_doubt(&self, not_after: i64) -> InDoubt {
        InDoubt {
            not_after: smallvec![Some(not_after)],
            ..InDoubt::of(self.kind, &self.name, &self.visitor, self.lease)
        }
    }
}

impl InDoubt {
    /// A hold that the store may have, with the id `visitor` and at most this lease.
    pub(crate) fn of(kind: Kind, name: &Arc<str>, visitor: &VisitorId, lease: Duration) -> InDoubt {
        InDoubt {
            kind,
            name: Arc::clone(name),
            visitor: visitor.clone(),
            place: None,
            not_after: SmallVec::new(),
            ends: BootInstant::now() + lease + LONGEST_WAY,
        }
    }

    /// An entry in the queue of a condition. The entry may exist, or a request can still write it until the server's time
    /// `not_after`.
    pub(crate) fn of_condition_entry(
        lock: &LockId,
        ticket: &VisitorId,
        place: EntryInDoubt,
        not_after: i64,
    ) -> InDoubt {
        InDoubt {
            place: Some(place),
            not_after: smallvec![Some(not_after)],
            ..InDoubt::of(lock.kind, &lock.name, ticket, CONDITION_ENTRY_LIFE)
        }
    }

    /// A request for this claim. So far, `not_after` is `None` for each of `nodes` nodes; [`InDoubt::set`] sets a time.
    pub(crate) fn at_none(claim: &Claim, nodes: usize) -> InDoubt {
        InDoubt {
            not_after: smallvec![None; nodes],
            ..claim.in_doubt(0)
        }
    }

    /// Makes `not_after` list exactly `nodes` nodes.
    pub(crate) fn list(&mut self, nodes: usize) {
        self.not_after = (0..nodes).map(|node| self.not_after(node)).collect();
    }

    pub(crate) fn part(&self, node: usize) -> InDoubt {
        InDoubt {
            not_after: smallvec![self.not_after(node)],
            ..self.clone()
        }
    }

    pub(crate) fn set(&mut self, node: usize, not_after: Option<i64>) {
        if let Some(place) = self.not_after.get_mut(node) {
            *place = not_after;
        }
    }

    /// Notes that the request can arrive at the listed node `node` until the node's time `not_after`.
    pub(crate) fn raise(&mut self, node: usize, not_after: i64) {
        let latest = self.not_after.get(node).copied().flatten();
        self.set(node, latest.max(Some(not_after)));
    }

    pub(crate) fn is_resolved(&self) -> bool {
        self.not_after.iter().all(Option::is_none)
    }

    pub(crate) fn not_after(&self, node: usize) -> Option<i64> {
        let listed = self.not_after.get(node).or(self.not_after.last());
        listed.copied().unwrap_or(Some(0))
    }
}

/// Calls `resolve` for a few requests at the same time, until a request gets no reply or `deadline` passes. One call at a
/// time could not keep pace with a client that unlocks in the background.
pub(crate) fn resolve_each(
    in_doubts: &mut [&mut InDoubt],
    deadline: Instant,
    resolve: &(impl Fn(&mut InDoubt) -> Result<bool> + Sync),
) -> Vec<Result<bool>> {
    let (mut outcomes, mut is_silent) = (Vec::with_capacity(in_doubts.len()), false);
    for part in in_doubts.chunks_mut(RESOLVED_AT_ONCE) {
        let jobs = part.iter_mut().map(|it| move || resolve(it));
        let told = sync::run_at_once("redlatch-release", jobs);
        for (it, outcome) in part.iter_mut().zip(told) {
            // The thread could not be started, or panicked.
            let outcome = outcome.unwrap_or_else(|| resolve(it));
            // In MySQL, `Unavailable` can mean that a transaction has locked the lock's row. Other releases can still succeed.
            let is_locked = matches!(&outcome, Err(Error::Unavailable { .. }));
            is_silent |= matches!(&outcome, Err(error) if error.may_pass() && !is_locked);
            outcomes.push(outcome);
        }
        if is_silent || time::now() >= deadline {
            break;
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Returns how many of 20 requests are sent if the first one fails.
    fn asked(error: &Error) -> usize {
        let in_doubt = InDoubt::of(
            Kind::Reentrant,
            &"a".into(),
            &VisitorId::of_field("me"),
            LONGEST_WAY,
        );
        let mut in_doubts = vec![in_doubt; 20];
        let asked = AtomicUsize::new(0);
        let resolve = |_: &mut InDoubt| match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Err(error.clone()),
            _ => Ok(true),
        };
        let deadline = time::now() + LONGEST_WAY;
        resolve_each(
            &mut in_doubts.iter_mut().collect::<Vec<_>>(),
            deadline,
            &resolve,
        );
        asked.into_inner()
    }

    #[test]
    fn a_locked_row_delays_no_other_release_but_a_silent_server_does() {
        let (lock, node, reason) = (Arc::from("a"), Arc::from("db"), String::from("text"));
        let silent = Error::Unreachable {
            lock: Arc::clone(&lock),
            node: Arc::clone(&node),
            reason: reason.clone(),
            source: None,
        };
        assert_eq!(asked(&silent), RESOLVED_AT_ONCE);
        assert_eq!(asked(&Error::Unavailable { lock, node, reason }), 20);
    }
}
