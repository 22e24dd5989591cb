//! Inspection of a lock at a majority of the nodes, and health checks of all nodes.

use std::time::{Duration, Instant};

use crate::ground::claim::{LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::store::{HealthWarning, Holding, Severity, Store};
use crate::stores::quorum::node::Purpose;
use crate::stores::quorum::quarantine::Quarantined;
use crate::stores::quorum::tally::{Tally, Vote};
use crate::stores::quorum::{Quorum, QuorumNode};
use crate::stores::share;

const CODE: &str = "redlock-nodes";

impl Quorum {
    pub(super) fn inspect_by_majority(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding> {
        let lease = self.settings.max_lease;
        let mut tally = Tally::new(self.nodes.len());
        let mut fan_out =
            self.send_to(self.all(), Purpose::Request, lease, deadline, |node, by| {
                node.node.send_inspect(lock, visitor, by)
            });
        let mut holdings = Vec::with_capacity(self.nodes.len());
        while let Some((index, answer)) = fan_out.next() {
            // A node without a vote may have lost the hold, so its reply "free" counts as no reply.
            let answer = answer.and_then(|holding| match self.without_vote(index) {
                Some(error) if !holding.is_locked => Err(error),
                _ => {
                    holdings.push(holding);
                    Ok(())
                }
            });
            tally.note(index, answer.map_or_else(Vote::Failed, |()| Vote::Granted));
            fan_out.is_needed = holdings.len() < self.needed;
            let locked = holdings.iter().filter(|holding| holding.is_locked).count();
            let free = holdings.len() - locked;
            if visitor.is_none() && free > self.nodes.len() - self.needed {
                return Ok(Holding::default());
            }
        }
        fan_out.note_rest(&mut tally.votes);
        if holdings.len() < self.needed {
            return Err(self.no_quorum(&lock.name, &tally));
        }
        // After a sort in descending order, a majority of the nodes has at least the value at this index.
        let last = self.needed - 1;
        let mut counts: Vec<u32> = holdings.iter().map(|holding| holding.count).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let locked = holdings.iter().filter(|holding| holding.is_locked);
        let mut locked: Vec<_> = locked.map(|holding| holding.remaining).collect();
        // A hold without an end counts as the longest.
        locked.sort_unstable_by_key(|remaining| {
            std::cmp::Reverse(remaining.unwrap_or(Duration::MAX))
        });
        let silent = self.nodes.len() - holdings.len();
        Ok(Holding {
            // A node without a reply may have the hold, so it counts as locked.
            is_locked: locked.len() + silent >= self.needed,
            count: counts.get(last).copied().unwrap_or_default(),
            remaining: locked.get(last).or(locked.last()).copied().flatten(),
        })
    }

    pub(super) fn without_vote(&self, index: usize) -> Option<Error> {
        let node = self.nodes.get(index)?;
        let reason = node.handle.quarantined()?.to_string();
        Some(self.unavailable(index, &reason))
    }

    pub(super) fn unavailable(&self, index: usize, reason: &str) -> Error {
        let node = self.nodes.get(index);
        Error::Unavailable {
            lock: "".into(),
            node: node.map(|node| node.name()).unwrap_or_default(),
            reason: reason.to_owned(),
        }
    }

    pub(super) fn check_all(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        let mut warnings: Vec<HealthWarning> = self.flaws().into_iter().collect();
        let mut voters = 0;
        for (looked_at, node) in self.nodes.iter().enumerate() {
            let deadline = share(deadline, self.nodes.len() - looked_at);
            match node.check(deadline) {
                Ok((found, votes)) => {
                    warnings.extend(found);
                    voters += usize::from(votes);
                }
                Err(error) => warnings.push(HealthWarning::note(
                    &node.name(),
                    "reachable",
                    format!("it could not be checked: {error:?}"),
                    "check that it runs, answers PING and can be reached from here; the other nodes decide without \
                        it",
                )),
            }
        }
        warnings.push(self.voting(voters));
        Ok(warnings)
    }

    pub(crate) fn flaws(&self) -> Option<HealthWarning> {
        let nodes = self.nodes.len();
        let message = match nodes {
            0..=2 => format!("a quorum of {nodes} nodes does not survive the loss of one"),
            even if even % 2 == 0 => format!(
                "{even} nodes need {} votes, so they survive no more failures than {} nodes would",
                self.needed,
                even - 1
            ),
            _ => return None,
        };
        let advice = "use 3 or 5 nodes, each on its own machine";
        Some(HealthWarning::note(&self.node(None), CODE, message, advice))
    }

    fn voting(&self, voters: usize) -> HealthWarning {
        let (node, nodes, needed) = (self.node(None), self.nodes.len(), self.needed);
        let message =
            format!("{voters} of {nodes} nodes answer and have a vote; {needed} are needed");
        match voters {
            _ if voters < needed => HealthWarning::danger(
                &node,
                CODE,
                format!("{message}: no lock can be acquired"),
                "bring the other nodes back; a node that has just started gets its vote after one max_lease",
            ),
            _ if voters < nodes => {
                HealthWarning::note(&node, CODE, message, "bring the other nodes back")
            }
            _ => HealthWarning::ok(&node, CODE, message),
        }
    }
}

impl QuorumNode {
    fn check(&self, deadline: Instant) -> Result<(Vec<HealthWarning>, bool)> {
        let mut warnings = self.node.check(deadline)?;
        for warning in &mut warnings {
            // A quorum needs no persistence: a restarted node has no vote until every lease that it may have lost has ended.
            if warning.code == "persistence" && warning.severity == Severity::Note {
                warning.severity = Severity::Ok;
                warning.message += "; after that it has no vote for one max_lease";
                warning.advice.clear();
            }
        }
        let purpose = Purpose::Request;
        let vote = self.node.connect(&self.handle, purpose, deadline)?;
        if let Err(abstention) = &vote {
            let message = abstention.to_string();
            warnings.push(match abstention {
                Quarantined::For(..) | Quarantined::Outdated => HealthWarning::note(
                    &self.name(),
                    CODE,
                    message,
                    "wait; restart nodes one at a time, a max_lease apart",
                ),
                _ => HealthWarning::danger(
                    &self.name(),
                    CODE,
                    message,
                    "name independent masters, each of them once",
                ),
            });
        }
        if self.node.can_fail_over() {
            warnings.push(HealthWarning::danger(
                &self.name(),
                CODE,
                "a failover here may lose locks that were not replicated, so this node then has no vote for one \
                    max_lease; in a network split two masters of this node may grant the same lock",
                "use standalone masters without failover",
            ));
        }
        Ok((warnings, vote.is_ok()))
    }
}
