//! The answers of stores, in a form that all have.

use std::time::{Duration, Instant};

use super::Op;
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::store::{CountOp, Granted, InDoubt, Outcome, Renewal, Store};
use crate::support::ms;

/// The answer of a store, as far as all stores tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    /// Done, for so long: before the end of the lease.
    For(u64),
    Refused {
        holder: Option<String>,
        left: u64,
        /// The word that the next attempt is to bring.
        memo: Option<String>,
        /// After which time one that has a place is to look again.
        pause: Option<u64>,
    },
    /// The hold is gone; the visitor that has the lock now, if one has.
    Gone(Option<String>),
    Several(Vec<Answer>),
    Freed(bool),
    Holding {
        is_locked: bool,
        count: u32,
        left: u64,
    },
    /// `None` if it would be out of range.
    Count(Option<i64>),
    /// The lock is of another kind.
    WrongType,
    Fault(String),
}

/// How a hold is said to be gone where the lock is of another kind now: the words differ.
pub(super) const ANOTHER_KIND: &str = "another kind";

/// Asks a store.
pub(super) fn ask(store: &dyn Store, op: &Op) -> Answer {
    let deadline = Instant::now() + ms(5000);
    match op {
        Op::Acquire(claim) => {
            let outcome = store.acquire(claim, deadline);
            if let Ok(Outcome::Done(Granted {
                life: life @ Some(_),
                ..
            })) = &outcome
            {
                return Answer::For(millis(*life));
            }
            answer_of(outcome, |refusal| Answer::Refused {
                holder: refusal.holder.map(String::from),
                left: millis(refusal.retry_after),
                memo: refusal.memo.map(String::from),
                pause: refusal.recheck_after.map(|it| millis(Some(it))),
            })
        }
        Op::Release(claim, keep) => {
            answer_of(store.release(claim, *keep, deadline), |it| match it {})
        }
        Op::HandOff(from, to) => answer_of(store.hand_off(from, to, deadline), |it| match it {}),
        Op::Renew(claims) => {
            let renewals = store.renew(claims, deadline).into_iter();
            Answer::Several(renewals.map(renewed).collect())
        }
        Op::Resolve(claim) => {
            let lease = claim.lease;
            let mut in_doubt = InDoubt::of(claim.kind, &claim.name, &claim.visitor, lease);
            let mut outcomes = store.resolve(&mut [&mut in_doubt], deadline);
            told(outcomes.remove(0), Answer::Freed)
        }
        Op::ForceRelease(lock) => told(store.force_release(lock, deadline), Answer::Freed),
        Op::Inspect(lock, visitor) => {
            told(store.inspect(lock, visitor.as_ref(), deadline), |holding| {
                Answer::Holding {
                    is_locked: holding.is_locked,
                    count: holding.count,
                    left: millis(holding.remaining),
                }
            })
        }
        Op::Count(counter, request, step, permit) => {
            let op = CountOp {
                counter,
                request: request.clone(),
                permit: permit.as_ref(),
                step: *step,
            };
            match store.count(&op, deadline) {
                Err(Error::InvalidPermits { .. }) => Answer::Count(None),
                answer => told(answer, |count| Answer::Count(Some(count))),
            }
        }
        Op::Pass(_) => Answer::Done,
    }
}

fn answer_of<D, R>(outcome: Result<Outcome<D, R>>, refused: impl FnOnce(R) -> Answer) -> Answer {
    told(outcome, |outcome| match outcome {
        Outcome::Done(_) => Answer::Done,
        Outcome::Refused(refusal) => refused(refusal),
        Outcome::Gone(cause) => gone(cause),
        Outcome::Unknown { error, .. } => Answer::Fault(error.to_string()),
    })
}

fn renewed(renewal: Renewal) -> Answer {
    match renewal {
        Renewal::Renewed => Answer::Done,
        Renewal::RenewedFor(life) => Answer::For(millis(Some(life))),
        Renewal::Lost(cause) => gone(cause),
        Renewal::Unknown(reason) => Answer::Fault(reason),
    }
}

fn gone(cause: LossCause) -> Answer {
    match cause {
        LossCause::Gone => Answer::Gone(None),
        LossCause::HeldBy(holder) if holder.contains("another") => {
            Answer::Gone(Some(ANOTHER_KIND.to_owned()))
        }
        LossCause::HeldBy(holder) => Answer::Gone(Some(holder)),
        cause => Answer::Fault(cause.to_string()),
    }
}

fn told<T>(answer: Result<T>, read: impl FnOnce(T) -> Answer) -> Answer {
    match answer {
        Ok(answer) => read(answer),
        Err(Error::WrongType { .. }) => Answer::WrongType,
        Err(error) => Answer::Fault(error.to_string()),
    }
}

fn millis(span: Option<Duration>) -> u64 {
    span.map_or(0, |span| u64::try_from(span.as_millis()).unwrap())
}

/// Whether two answers are the same, but for times that differ by no more than `took`.
pub(super) fn is_alike(store: &Answer, spec: &Answer, took: u64) -> bool {
    match (store, spec) {
        (
            Answer::Refused {
                holder,
                left,
                memo,
                pause,
            },
            Answer::Refused {
                holder: spec_holder,
                left: spec_left,
                memo: spec_memo,
                pause: spec_pause,
            },
        ) => {
            // A database does not name the holder, and only one that waits is to look again.
            (holder.is_none() || holder == spec_holder)
                && left.abs_diff(*spec_left) <= took
                && memo == spec_memo
                && spec_pause.is_none_or(|it| pause.is_some_and(|pause| pause.abs_diff(it) <= took))
        }
        (
            Answer::Holding {
                is_locked,
                count,
                left,
            },
            Answer::Holding {
                is_locked: spec_locked,
                count: spec_count,
                left: spec_left,
            },
        ) => (is_locked, count) == (spec_locked, spec_count) && left.abs_diff(*spec_left) <= took,
        (Answer::For(store), Answer::For(spec)) => store.abs_diff(*spec) <= took,
        (Answer::Several(store), Answer::Several(spec)) => {
            let mut pairs = store.iter().zip(spec);
            store.len() == spec.len() && pairs.all(|(store, spec)| is_alike(store, spec, took))
        }
        // The rest of a lease; without an end it is counted from the time that a clock counts from.
        (Answer::Count(Some(store)), Answer::Count(Some(spec))) if *spec > 5_000 => {
            let far = 1 << 48;
            store.abs_diff(*spec) <= took || store.min(spec) > &far
        }
        (store, spec) => store == spec,
    }
}
