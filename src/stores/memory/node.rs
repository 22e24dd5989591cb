//! An in-memory world as a node of a quorum.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use super::{Memory, NODE};
use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Result};
use crate::store::{Granted, Outcome, Refusal, Renewal, Store};
use crate::stores::quorum::node::{Node, Pending, Purpose};
use crate::stores::quorum::quarantine::{Identity, NodeHandle, Quarantined};

impl Memory {
    /// Whether `handle` has a vote, in an error of the lock if it has none.
    fn admit(&self, lock: &Arc<str>, handle: &NodeHandle) -> Result<()> {
        handle
            .admit(&self.identity())
            .map_err(|abstention| Error::Unavailable {
                lock: Arc::clone(lock),
                node: NODE.into(),
                reason: abstention.to_string(),
            })
    }

    fn identity(&self) -> Identity {
        let now = BootInstant::now();
        Identity {
            run: self.facts.area.as_str().into(),
            history: "".into(),
            has_followed: false,
            follows: false,
            is_in_cluster: false,
            age: None,
            remembers: true,
            asked: now,
            told: now,
        }
    }
}

impl Node for Memory {
    fn store(&self) -> &dyn Store {
        self
    }

    fn connect(
        &self,
        handle: &NodeHandle,
        _purpose: Purpose<'_>,
        _deadline: Instant,
    ) -> Result<Result<(), Quarantined>> {
        Ok(handle.admit(&self.identity()))
    }

    fn send_acquire<'a>(
        &'a self,
        claim: &'a Claim,
        restored: bool,
        handle: &'a NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Outcome<Granted, Refusal>> {
        Pending::Ready(self.admit(&claim.name, handle).and_then(|()| {
            if restored {
                self.put(claim, claim.count)
            } else {
                self.acquire(claim, deadline)
            }
        }))
    }

    fn send_renew<'a>(
        &'a self,
        claims: &'a [Claim],
        handle: &NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Vec<Renewal>> {
        let admitted = self.admit(&"".into(), handle);
        Pending::Ready(admitted.map(|()| self.renew(claims, deadline)))
    }
}
