//! The vote of a node: whether its grants count. [`Quarantined`] lists why a node may have no vote.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::clock::BootInstant;
use crate::ground::sync::Mutex;
use crate::stores::redis::Identity;

/// The servers of one quorum as they were last identified.
#[derive(Debug)]
pub(crate) struct Membership {
    /// The longest lease of any client of these nodes.
    max_lease: Duration,
    trusts_new_nodes: bool,
    nodes: Mutex<Vec<Option<SeenRun>>>,
}

#[derive(Debug)]
struct SeenRun {
    run: Arc<str>,
    history: Arc<str>,
    /// Whether granted locks survive a restart.
    remembers: bool,
    /// `asked` and `told` are the times at which the identity of the server was last requested and received.
    asked: BootInstant,
    told: BootInstant,
    abstains: Option<(BootInstant, QuarantineReason)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Quarantined {
    /// The node may have lost granted locks. The values are the remaining time without a vote and the reason.
    For(Duration, QuarantineReason),
    /// The node is the same server as the node with this index.
    SameAs(usize),
    /// The server is a replica.
    Follows,
    InCluster,
    /// Two identifications of the node overlapped and found different servers. The node must be identified again.
    Outdated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuarantineReason {
    /// The server started recently. It is unknown which locks were granted before the start.
    IsNew,
    /// The server restarted or was replaced since it was last identified.
    Restarted,
    /// The server may have been a replica, and its master may have granted locks that were not replicated.
    Followed,
    /// The replication id of the server changed: the server was a replica, or it discarded its replication backlog.
    ChangedId,
    /// Another server may have been the master before this server.
    MayMove,
}

impl Membership {
    pub(crate) fn new(nodes: usize, max_lease: Duration, trusts_new_nodes: bool) -> Membership {
        Membership {
            max_lease,
            trusts_new_nodes,
            nodes: Mutex::new((0..nodes).map(|_| None).collect()),
        }
    }

    /// Records which server is at node `index` now. Fails if this server has no vote.
    fn admit(
        &self,
        index: usize,
        can_fail_over: bool,
        identity: &Identity,
    ) -> Result<(), Quarantined> {
        if identity.is_in_cluster {
            return Err(Quarantined::InCluster);
        }
        if identity.follows {
            return Err(Quarantined::Follows);
        }
        let now = BootInstant::now();
        let mut nodes = self.nodes.lock();
        let Some(place) = nodes.get_mut(index) else {
            return Ok(());
        };
        if let Some(known) = place {
            if known.run == identity.run && known.history == identity.history {
                known.asked = known.asked.max(identity.asked);
                known.told = known.told.max(identity.told);
                known.remembers &= identity.remembers;
                return known.vote(now);
            }
            if identity.asked <= known.told {
                return Err(Quarantined::Outdated);
            }
        }
        let twin = nodes.iter().enumerate().find(|(other, known)| {
            let known = known.as_ref().filter(|_| *other != index);
            known.is_some_and(|known| known.run == identity.run)
        });
        if let Some((twin, _)) = twin {
            return Err(Quarantined::SameAs(twin));
        }
        let Some(place) = nodes.get_mut(index) else {
            return Ok(());
        };
        let known = SeenRun {
            run: Arc::clone(&identity.run),
            history: Arc::clone(&identity.history),
            remembers: identity.remembers,
            asked: identity.asked,
            told: identity.told,
            abstains: self.quarantine(place.as_ref(), can_fail_over, identity, now),
        };
        place.insert(known).vote(now)
    }

    /// Returns until when a server has no vote, and why. The caller found a new server at this node, or a new replication id.
    ///
    /// | server | locks that this node granted earlier | no vote for one `max_lease` from |
    /// |---|---|---|
    /// | may have been a replica | may be missing on the server | now |
    /// | first at this node, with `trust_new_nodes` | none | – |
    /// | first at this node, which can fail over | may be missing on the server | now |
    /// | first at this node, otherwise | may be missing if granted before the start | its start |
    /// | same run, new replication id | may be missing on the server | now |
    /// | restarted, with persistence before and after, cannot fail over | are on the server | unchanged |
    /// | any other | may be missing on the server | now |
    fn quarantine(
        &self,
        before: Option<&SeenRun>,
        can_fail_over: bool,
        identity: &Identity,
        now: BootInstant,
    ) -> Option<(BootInstant, QuarantineReason)> {
        let all_of_it = |why| Some((now + self.max_lease, why));
        match before {
            _ if identity.has_followed => all_of_it(QuarantineReason::Followed),
            None if self.trusts_new_nodes => None,
            None if can_fail_over => all_of_it(QuarantineReason::MayMove),
            // The server may have had other persistence settings before its start, so `remembers` is ignored here.
            None => {
                let left = self.max_lease.saturating_sub(identity.age);
                Some((identity.told + left, QuarantineReason::IsNew))
            }
            Some(before) if before.run == identity.run => all_of_it(QuarantineReason::ChangedId),
            Some(before)
                if identity.remembers
                    && before.remembers
                    && !can_fail_over
                    && !identity.ran_at(before.asked) =>
            {
                before.abstains
            }
            Some(_) => all_of_it(QuarantineReason::Restarted),
        }
    }
}

impl SeenRun {
    fn vote(&self, now: BootInstant) -> Result<(), Quarantined> {
        let left = |(deadline, why)| (now.until(deadline), why);
        match self.abstains.map(left) {
            Some((left, why)) if !left.is_zero() => Err(Quarantined::For(left, why)),
            _ => Ok(()),
        }
    }
}

impl Identity {
    /// Whether this run of the server had begun before `moment`.
    fn ran_at(&self, moment: BootInstant) -> bool {
        moment + self.age > self.told
    }
}

#[derive(Clone, Debug)]
pub(crate) struct NodeHandle {
    membership: Arc<Membership>,
    index: usize,
    can_fail_over: bool,
}

impl NodeHandle {
    pub(crate) fn new(
        membership: &Arc<Membership>,
        index: usize,
        can_fail_over: bool,
    ) -> NodeHandle {
        NodeHandle {
            membership: Arc::clone(membership),
            index,
            can_fail_over,
        }
    }

    pub(crate) fn quarantined(&self) -> Option<Quarantined> {
        let nodes = self.membership.nodes.lock();
        let seen = nodes.get(self.index)?.as_ref()?;
        seen.vote(BootInstant::now()).err()
    }

    pub(crate) fn admit(&self, identity: &Identity) -> Result<(), Quarantined> {
        let (index, can_fail_over) = (self.index, self.can_fail_over);
        self.membership.admit(index, can_fail_over, identity)
    }
}

impl std::fmt::Display for Quarantined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Quarantined::For(left, why) => {
                let because = match why {
                    QuarantineReason::IsNew => "was started less than one max_lease ago",
                    QuarantineReason::Restarted => "has restarted, or another server has taken its place,",
                    QuarantineReason::Followed => "may have been a replica of another server",
                    QuarantineReason::ChangedId => {
                        "has a new replication id, because it was a replica of another server or its replicas were \
                            away for longer than repl-backlog-ttl,"
                    }
                    QuarantineReason::MayMove => "may have taken over from another server",
                };
                let hint = match why {
                    QuarantineReason::IsNew | QuarantineReason::MayMove => {
                        "; if it was never used for locks before, trust_new_nodes() lets it vote at once"
                    }
                    _ => "",
                };
                write!(
                    f,
                    "it {because} and may have forgotten granted locks, so it has no vote for another \
                        {left:.1?}{hint}"
                )
            }
            Quarantined::SameAs(other) => {
                let number = other + 1;
                write!(f, "it is the same server as node {number}, which would get two votes")
            }
            Quarantined::Follows => f.write_str(
                "it is a replica and so has no vote; use the address of a master",
            ),
            Quarantined::InCluster => f.write_str(
                "it is a cluster node, and a cluster failover may lose locks that were not replicated, so it has no \
                    vote; use standalone servers, or the cluster without Redlock",
            ),
            Quarantined::Outdated => f.write_str("the server behind the address changed while it was identified"),
        }
    }
}

#[cfg(test)]
mod tests;
