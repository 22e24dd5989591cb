//! The votes of the nodes on one request, and their result. `acquire.rs` decides by the votes whether the lock is granted.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::Claim;
use crate::ground::error::{Error, NodeAnswer, Result};
use crate::ground::loss::LossCause;
use crate::store::{Granted, InDoubt, Outcome, Refusal};
use crate::stores::quorum::Quorum;

pub(super) enum Vote {
    Granted,
    Refused(Refusal),
    Lacks(LossCause),
    /// The node can still execute the request until this time of its clock in ms.
    Unknown(i64, Error),
    Failed(Error),
    /// The request was sent, and no reply came in time.
    Silent,
}

pub(super) struct Tally {
    pub(super) votes: Vec<Option<Vote>>,
}

impl Tally {
    pub(super) fn new(nodes: usize) -> Tally {
        Tally {
            votes: (0..nodes).map(|_| None).collect(),
        }
    }

    pub(super) fn note(&mut self, index: usize, vote: Vote) {
        if let Some(place) = self.votes.get_mut(index) {
            *place = Some(vote);
        }
    }

    pub(super) fn count(&self, is: impl Fn(&Vote) -> bool) -> usize {
        self.votes.iter().flatten().filter(|vote| is(vote)).count()
    }

    pub(super) fn granted(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Granted))
    }

    pub(super) fn answered(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Granted | Vote::Refused(_) | Vote::Lacks(_)))
    }

    pub(super) fn is_decided(&self, needed: usize, outstanding: usize) -> bool {
        let granted = self.granted();
        granted >= needed || granted + outstanding < needed
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.count(|vote| matches!(vote, Vote::Unknown(..))) > 0
    }

    /// Returns each node that granted the request, with 0, and each node that can still execute it, with the expiry.
    pub(super) fn open(&self) -> Vec<(usize, i64)> {
        let votes = self.votes.iter().enumerate();
        votes
            .filter_map(|(index, vote)| match vote {
                Some(Vote::Granted) => Some((index, 0)),
                Some(Vote::Unknown(not_after, _)) => Some((index, *not_after)),
                _ => None,
            })
            .collect()
    }

    /// The cause of a loss, if more than `spare` nodes lack the hold.
    pub(super) fn lacking(&self, spare: usize) -> Option<LossCause> {
        let votes = self.votes.iter().flatten();
        let causes: Vec<&LossCause> = votes
            .filter_map(|vote| match vote {
                Vote::Lacks(cause) => Some(cause),
                _ => None,
            })
            .collect();
        let held = causes.iter().find(|cause| ***cause != LossCause::Gone);
        let cause = held.or(causes.first())?;
        (causes.len() > spare).then(|| (*cause).clone())
    }
}

impl Quorum {
    pub(super) fn record_reply<D, R>(&self, index: usize, answer: Result<Outcome<D, R>>) -> Vote
    where
        Refusal: From<R>,
    {
        let vote = match answer {
            Ok(Outcome::Done(_)) => Vote::Granted,
            Ok(Outcome::Refused(refusal)) => Vote::Refused(refusal.into()),
            Ok(Outcome::Gone(cause)) => Vote::Lacks(cause),
            Ok(Outcome::Unknown {
                in_doubt, error, ..
            }) => Vote::Unknown(in_doubt.not_after(0).unwrap_or_default(), error),
            Err(error) => Vote::Failed(error),
        };
        if let Some(node) = self.nodes.get(index) {
            match &vote {
                Vote::Unknown(_, error) | Vote::Failed(error) => node.trip(error),
                _ => node.reset(),
            }
        }
        vote
    }

    /// Returns the result of a first acquisition that no majority granted.
    pub(super) fn refuse(
        &self,
        claim: &Claim,
        tally: &Tally,
        leftover: Option<InDoubt>,
    ) -> Result<Outcome<Granted, Refusal>> {
        let granted = tally.granted();
        let votes = tally.votes.iter().flatten();
        let refusals: Vec<&Refusal> = votes
            .filter_map(|vote| match vote {
                Vote::Refused(refusal) => Some(refusal),
                _ => None,
            })
            .collect();
        if granted + refusals.len() < self.needed {
            let error = self.no_quorum(&claim.name, tally);
            return match leftover {
                Some(in_doubt) => Ok(Outcome::unknown(in_doubt, error)),
                None => Err(self.exhausted(claim, tally).unwrap_or(error)),
            };
        }
        // After `retry_after`, enough of the refusing holds have ended for a majority to grant the lock.
        let ends = refusals.iter().map(|refusal| refusal.retry_after);
        let mut ends: Vec<Duration> = ends.map(|it| it.unwrap_or(Duration::MAX)).collect();
        ends.sort_unstable();
        let last = self.needed.checked_sub(granted + 1);
        let end = last.and_then(|last| ends.get(last)).copied();
        let retry_after = end.filter(|end| *end != Duration::MAX);
        let alike = |one: &&Refusal| refusals.iter().filter(|it| it.holder == one.holder).count();
        let most = refusals.iter().map(alike).max().unwrap_or_default();
        let silent = self.nodes.len() - granted - refusals.len();
        Ok(Outcome::Refused(Refusal {
            retry_after,
            holder: None,
            split: (most + silent < self.needed).then(|| self.round_trip()),
            leftover,
            recheck_after: None,
        }))
    }

    /// Returns `Exhausted` if only the lack of free connections prevented a majority of replies.
    fn exhausted(&self, claim: &Claim, tally: &Tally) -> Option<Error> {
        let exhausted = |vote: &Vote| match vote {
            Vote::Failed(Error::Exhausted {
                node, connections, ..
            }) => Some(Error::Exhausted {
                lock: Arc::clone(&claim.name),
                node: Arc::clone(node),
                connections: *connections,
            }),
            _ => None,
        };
        let busy = tally.count(|vote| exhausted(vote).is_some());
        let first = tally.votes.iter().flatten().find_map(exhausted);
        first.filter(|_| tally.answered() + busy >= self.needed)
    }

    pub(super) fn no_quorum(&self, lock: &Arc<str>, tally: &Tally) -> Error {
        let permanent = |vote: &Vote| match vote {
            Vote::Failed(error) if !error.may_pass() => Some(error.clone()),
            _ => None,
        };
        let votes = tally.votes.iter().flatten();
        let mut permanent: Vec<Error> = votes.filter_map(permanent).collect();
        if self.nodes.len() - permanent.len() < self.needed
            && let Some(error) = permanent.pop()
        {
            return error;
        }
        let (granted, answered) = (tally.granted(), tally.answered());
        Error::NoQuorum {
            lock: Arc::clone(lock),
            granted,
            refused: answered - granted,
            unreachable: self.nodes.len() - answered,
            needed: self.needed,
            nodes: self.answers(&tally.votes),
        }
    }

    fn answers(&self, votes: &[Option<Vote>]) -> Vec<NodeAnswer> {
        let answers = self.nodes.iter().zip(votes);
        answers
            .map(|(node, vote)| NodeAnswer {
                node: node.name(),
                answer: match vote {
                    Some(Vote::Granted) => "granted".to_owned(),
                    Some(Vote::Refused(_)) => "refused".to_owned(),
                    Some(Vote::Lacks(_)) => "has no such hold".to_owned(),
                    Some(Vote::Unknown(_, error) | Vote::Failed(error)) => reason_of(error),
                    Some(Vote::Silent) => "no reply in time".to_owned(),
                    None => match &*node.breaker.lock().reason {
                        "" => "not asked".to_owned(),
                        reason => format!("skipped, because it failed a moment ago: {reason}"),
                    },
                },
            })
            .collect()
    }
}

pub(super) fn reason_of(error: &Error) -> String {
    match error {
        Error::Unreachable { reason, .. }
        | Error::Unknown { reason, .. }
        | Error::Unavailable { reason, .. } => reason.clone(),
        Error::Exhausted { connections, .. } => {
            format!("all {connections} connections were in use until the deadline")
        }
        error => format!("{error:?}"),
    }
}
