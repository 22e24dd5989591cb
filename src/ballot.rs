//! Who may vote in a quorum: a node that may have forgotten what it granted keeps silent until that has run out.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::sync::Mutex;

/// Which server it is that a connection leads to.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Changes with each start of the server.
    pub(crate) run: Arc<str>,
    /// When it started, at the latest; `None` if it has always been there.
    pub(crate) started: Option<Moment>,
    /// Whether what it has granted survives its end.
    pub(crate) remembers: bool,
}

/// The nodes of one quorum as they are known.
#[derive(Debug)]
pub(crate) struct Ballot {
    /// What any client has granted is over after this time.
    max_lease: Duration,
    trusts_new_nodes: bool,
    nodes: Mutex<Vec<Option<Known>>>,
}

#[derive(Clone, Debug)]
struct Known {
    run: Arc<str>,
    /// Whether what it has granted survives its end.
    remembers: bool,
    abstains_until: Option<Moment>,
}

/// Why a node has no vote.
#[derive(Debug)]
pub(crate) enum Abstention {
    /// It may have forgotten what it granted.
    For(Duration),
    /// It is the same server as this other node.
    SameAs(usize),
}

impl Ballot {
    pub(crate) fn new(nodes: usize, max_lease: Duration, trusts_new_nodes: bool) -> Ballot {
        Ballot {
            max_lease,
            trusts_new_nodes,
            nodes: Mutex::new(vec![None; nodes]),
        }
    }

    /// Notes which server node `index` is, and says whether it may vote.
    fn admit(&self, index: usize, identity: &Identity) -> Result<(), Abstention> {
        let now = Moment::now();
        let mut nodes = self.nodes.lock();
        let Some(before) = nodes.get(index) else {
            return Ok(());
        };
        let known = match before {
            Some(known) if *known.run == *identity.run => known.clone(),
            before => {
                let twin = nodes.iter().enumerate().find(|(other, known)| {
                    *other != index
                        && known
                            .as_ref()
                            .is_some_and(|known| known.run == identity.run)
                });
                if let Some((twin, _)) = twin {
                    return Err(Abstention::SameAs(twin));
                }
                let abstains_until = match (before, identity.started) {
                    // It still has what it granted before, unless it only began to keep that when it was started.
                    (Some(before), _) if identity.remembers && before.remembers => {
                        before.abstains_until
                    }
                    (None, _) if identity.remembers => None,
                    // It is another server than before, and whatever that one granted is unknown to it.
                    (Some(_), _) => Some(now + self.max_lease),
                    (None, Some(started)) if !self.trusts_new_nodes => {
                        Some(started + self.max_lease)
                    }
                    (None, _) => None,
                };
                let known = Known {
                    run: Arc::clone(&identity.run),
                    remembers: identity.remembers,
                    abstains_until,
                };
                if let Some(place) = nodes.get_mut(index) {
                    *place = Some(known.clone());
                }
                known
            }
        };
        match known.abstains_until.map(|until| now.until(until)) {
            Some(left) if !left.is_zero() => Err(Abstention::For(left)),
            _ => Ok(()),
        }
    }
}

/// The right of one node to vote.
#[derive(Clone, Debug)]
pub(crate) struct Voter {
    ballot: Arc<Ballot>,
    index: usize,
}

impl Voter {
    pub(crate) fn new(ballot: &Arc<Ballot>, index: usize) -> Voter {
        Voter {
            ballot: Arc::clone(ballot),
            index,
        }
    }

    /// Says whether the server of this identity may vote for this node.
    pub(crate) fn admit(&self, identity: &Identity) -> Result<(), Abstention> {
        self.ballot.admit(self.index, identity)
    }
}

impl std::fmt::Display for Abstention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Abstention::For(left) => write!(
                f,
                "it has restarted and may have forgotten what it granted, so it has no vote for another {left:.1?}"
            ),
            Abstention::SameAs(other) => {
                write!(f, "it is the same server as node {}", other + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(30);

    fn server(run: &str, up: Option<u64>) -> Identity {
        Identity {
            run: run.into(),
            started: up.map(|_| Moment::now()),
            remembers: false,
        }
    }

    #[test]
    fn a_server_that_just_started_has_no_vote() {
        let ballot = Ballot::new(3, MAX, false);
        assert!(matches!(
            ballot.admit(0, &server("a", Some(0))),
            Err(Abstention::For(_))
        ));
        assert!(ballot.admit(1, &server("b", None)).is_ok());
        let trusting = Ballot::new(3, MAX, true);
        assert!(trusting.admit(0, &server("a", Some(0))).is_ok());
    }

    #[test]
    fn another_server_in_its_place_has_no_vote_even_if_new_ones_are_trusted() {
        let ballot = Ballot::new(3, MAX, true);
        assert!(ballot.admit(0, &server("a", None)).is_ok());
        assert!(matches!(
            ballot.admit(0, &server("b", None)),
            Err(Abstention::For(_))
        ));
        assert!(matches!(
            ballot.admit(0, &server("b", None)),
            Err(Abstention::For(_))
        ));
        let remembering = |run| Identity {
            remembers: true,
            ..server(run, Some(0))
        };
        // What was granted before it began to remember is forgotten, and stays so.
        for run in ["c", "d"] {
            assert!(matches!(
                ballot.admit(0, &remembering(run)),
                Err(Abstention::For(_))
            ));
        }
        for run in ["e", "f"] {
            assert!(ballot.admit(1, &remembering(run)).is_ok());
        }
    }

    #[test]
    fn one_server_has_one_vote() {
        let ballot = Ballot::new(3, MAX, true);
        assert!(ballot.admit(0, &server("a", None)).is_ok());
        assert!(matches!(
            ballot.admit(2, &server("a", None)),
            Err(Abstention::SameAs(0))
        ));
        assert!(ballot.admit(0, &server("a", None)).is_ok());
    }
}
