//! The statements on one row of the lock table, and the meaning of their answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::{Params, params};

use super::call_error::{CallError, Class};
use super::connection::Connection;
use super::sql::{BUSY, Statements};
use super::{LATEST_EFFECT, MySql, ROW_WAIT};
use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::ground::time;
use crate::store::{Granted, Outcome, Refusal};

/// The number of repeats of a request whose clock was wrong, or whose row was locked for a moment.
const CORRECTIONS: u32 = 3;

/// The row of a lock that has an owner.
pub(super) struct LockRow {
    pub(super) owner: String,
    pub(super) holds: u32,
    /// The remaining lease; `None` if it is over.
    pub(super) left: Option<Duration>,
}

/// A change to the row of a hold.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// One level more; the new count.
    Enter(u32),
    /// One level less; the new count.
    Leave(u32),
    /// A longer lease.
    Lease,
    /// A hand-off to this claim.
    Owner(&'a Claim),
}

impl Change<'_> {
    /// Returns whether a row with this owner is the one to change, or was changed already.
    fn is_of(&self, owner: &str, claim: &Claim) -> bool {
        owner == claim.visitor.as_str()
            || matches!(self, Change::Owner(successor) if owner == successor.visitor.as_str())
    }
}

/// The copies of one request that were sent.
#[derive(Default)]
pub(super) struct SentStatements {
    /// The server time in ms after which the server refuses all of them.
    pub(super) not_after: i64,
    /// The time at which the first one without an answer was sent; that copy may run after the later ones.
    pub(super) first_unanswered: Option<BootInstant>,
}

/// The outcome of a change.
pub(super) enum RowChange {
    Done { sent: BootInstant, fence: u64 },
    Gone(LossCause),
}

impl MySql {
    /// Runs a statement that the server refuses after its expiry; returns its answer and the start of the lease.
    pub(super) fn execute_expiring(
        &self,
        connection: &mut Connection,
        statement: &str,
        params: impl Fn(i64) -> Params,
        deadline: Instant,
        copies: &mut SentStatements,
    ) -> Result<(u64, BootInstant), CallError> {
        let mut corrections = 0;
        loop {
            let sent = BootInstant::now();
            let expiry = connection.expiry(deadline);
            copies.not_after = copies.not_after.max(expiry / 1000 + 1);
            match connection.execute(statement, params(expiry), deadline) {
                Ok((answer, _)) => return Ok((answer, copies.first_unanswered.unwrap_or(sent))),
                Err(error @ CallError::NoReply { .. }) => {
                    copies.first_unanswered.get_or_insert(sent);
                    return Err(error);
                }
                Err(error) if error.class() == Some(Class::Late) => {
                    corrections += 1;
                    if corrections > CORRECTIONS {
                        return Err(CallError::NotSent(
                            "the server's clock runs away from ours".into(),
                        ));
                    }
                    connection.read_time()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the row of a lock; `None` if nobody owns it.
    pub(super) fn read_lock_row(
        connection: &mut Connection,
        statements: &Statements,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<LockRow>, CallError> {
        type Found = (Vec<u8>, u32, i64);
        let params = params! { "r" => name };
        let rows: Vec<Found> = connection.query(&statements.inspect, params, deadline)?;
        let found = rows.into_iter().next();
        Ok(found.map(|(owner, holds, left)| LockRow {
            owner: String::from_utf8_lossy(&owner).into_owned(),
            holds,
            left: u64::try_from(left)
                .ok()
                .map(Duration::from_micros)
                .filter(|left| !left.is_zero()),
        }))
    }

    /// Reads the row of a lock on any connection.
    pub(super) fn lock_row(&self, name: &Arc<str>, deadline: Instant) -> Result<Option<LockRow>> {
        let found = self.pools.with_retry(deadline, |connection| {
            MySql::read_lock_row(connection, &self.statements, name, deadline)
        });
        found.map_err(|error| self.lock_error(name, error))
    }

    /// Changes the row of a hold if it still belongs to the hold.
    pub(super) fn change_row(
        &self,
        connection: &mut Connection,
        claim: &Claim,
        change: Change<'_>,
        deadline: Instant,
        copies: &mut SentStatements,
    ) -> Result<RowChange, CallError> {
        let statements = &self.statements;
        let lease = lease_of(claim);
        let (statement, count, successor, lease) = match change {
            Change::Enter(count) => (&statements.enter, count, "", lease),
            Change::Leave(count) => (&statements.leave, count, "", lease),
            Change::Lease => (&statements.renew, 0, "", lease),
            Change::Owner(to) => (&statements.transfer, 0, to.visitor.as_str(), lease_of(to)),
        };
        let mut corrections = 0;
        loop {
            // A statement takes the parameters that it names.
            let params = |t: i64| {
                params! {
                    "r" => &*claim.name, "o" => claim.visitor.as_str(), "n" => count,
                    "h" => successor, "us" => lease, "t" => t
                }
            };
            let (answer, sent) =
                match self.execute_expiring(connection, statement, params, deadline, copies) {
                    // The row is locked for a moment, and the statement was undone. A renewal is not repeated here: other
                    // holds wait behind it.
                    Err(error)
                        if error.is_busy()
                            && !matches!(change, Change::Lease)
                            && corrections < CORRECTIONS
                            && time::now() < deadline =>
                    {
                        corrections += 1;
                        continue;
                    }
                    outcome => outcome?,
                };
            if answer > 0 {
                return Ok(RowChange::Done {
                    sent,
                    fence: answer,
                });
            }
            match MySql::read_lock_row(connection, &self.statements, &claim.name, deadline)? {
                Some(found) if change.is_of(&found.owner, claim) && found.left.is_some() => {
                    // The row is still ours, so the request came too late: our offset of the server's clock was wrong.
                    corrections += 1;
                    if corrections > CORRECTIONS || time::now() >= deadline {
                        return Err(CallError::NotSent("it reached the server too late".into()));
                    }
                    connection.read_time()?;
                }
                found => return Ok(RowChange::Gone(cause_of_loss(found))),
            }
        }
    }

    /// Changes a row on a pooled connection. Also returns the server time in ms after which no copy can take effect.
    pub(super) fn change_row_pooled(
        &self,
        claim: &Claim,
        change: Change<'_>,
        deadline: Instant,
    ) -> (Result<RowChange, CallError>, i64) {
        let mut copies = SentStatements::default();
        let call = |connection: &mut Connection| {
            self.change_row(connection, claim, change, deadline, &mut copies)
        };
        let outcome = match change {
            // A late copy would shorten the lease below what later requests have set.
            Change::Leave(_) => self.pools.once(deadline, call),
            Change::Enter(_) | Change::Lease | Change::Owner(_) => {
                self.pools.with_retry(deadline, call)
            }
        };
        let outcome = match outcome {
            // The outcome of the copy without an answer is unknown, whatever the error of the last one was.
            Err(error) if copies.first_unanswered.is_some() => Err(CallError::NoReply {
                reason: error.into_reason(),
                timed_out: true,
            }),
            outcome => outcome,
        };
        (outcome, copies.not_after)
    }

    /// Acquires the lock for a visitor that holds nothing yet.
    pub(super) fn acquire_new(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Outcome<Granted, Refusal>> {
        self.check_not_pinned_here(&claim.name)?;
        self.check_own(&self.tables.locks, &claim.name, deadline)?;
        let lease = lease_of(claim);
        let mut copies = SentStatements::default();
        let is_short = deadline.saturating_duration_since(time::now()) < ROW_WAIT * 6 / 5;
        // One copy: a late second one could acquire the lock again for a visitor that has released it.
        let outcome = self.pools.once(deadline, |connection| {
            if is_short {
                // The upsert would wait past the deadline for a row that a transaction has pinned; a plain read does not.
                if let Some(found) = MySql::read_lock_row(connection, &self.statements, &claim.name, deadline)? {
                    if let Some(left) = found.left {
                        let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
                        return Ok((BUSY.saturating_add(left), BootInstant::now()));
                    }
                    // Its lease is over, but a transaction may still have the row pinned.
                    let params = params! { "r" => &*claim.name };
                    connection.probe(&self.statements.probe, params, deadline)?;
                }
            }
            self.execute_expiring(
                connection,
                &self.statements.acquire,
                |t| params! { "r" => &*claim.name, "o" => claim.visitor.as_str(), "us" => lease, "t" => t },
                deadline,
                &mut copies,
            )
        });
        let refused = |left| {
            Ok(Outcome::Refused(Refusal {
                retry_after: Some(left),
                ..Refusal::default()
            }))
        };
        match outcome {
            Ok((0, _)) => {
                // The answer was dropped on the way, so the lock may have been granted: release it.
                self.resolve_one(&mut claim.in_doubt(0), deadline)?;
                Err(Error::Unsupported {
                    lock: Arc::clone(&claim.name),
                    reason: format!(
                        "{} does not hand on LAST_INSERT_ID: connect without a proxy, or with one that leaves answers as they are",
                        self.node()
                    ),
                })
            }
            Ok((answer, _)) if answer >= BUSY => refused(Duration::from_micros(answer - BUSY)),
            Ok((fence, sent)) => Ok(Outcome::Done(granted(sent, fence))),
            // Somebody has the row locked at this moment.
            Err(error) if error.is_busy() => refused(Duration::from_secs(1)),
            // Only the read before the upsert got no answer.
            Err(CallError::NoReply { reason, .. }) if copies.first_unanswered.is_none() => {
                Err(self.error(&claim.name, CallError::NotSent(reason)))
            }
            Err(CallError::NoReply { reason, .. }) => Ok(Outcome::unknown(
                claim.in_doubt(copies.not_after.saturating_add(millis(LATEST_EFFECT))),
                self.unknown(&claim.name, Some(&claim.visitor), "acquire", reason),
            )),
            Err(error) => Err(self.error(&claim.name, error)),
        }
    }

    /// Releases a hold, and repeats the request once if its answer is lost. Returns the cause if the hold was lost.
    pub(super) fn release_twice(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Option<LossCause>, CallError> {
        // The first try gets half the time, so that a lost reply leaves time for the second.
        let now = time::now();
        let half = now + deadline.saturating_duration_since(now) / 2;
        match self.release_once(claim, half) {
            Err(CallError::NoReply { .. }) => match self.release_once(claim, deadline) {
                // The first request has released it, or the lease ended in between: nothing proves a loss.
                Ok(_) => Ok(None),
                // The outcome of the first request stays unknown.
                Err(error) => Err(CallError::NoReply {
                    reason: error.into_reason(),
                    timed_out: true,
                }),
            },
            Err(CallError::NotSent(_)) if time::now() < half => self.release_once(claim, deadline),
            // A waiter's request had the row locked for a moment.
            Err(error) if error.is_busy() => self.release_once(claim, deadline),
            outcome => outcome,
        }
    }

    fn release_once(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Option<LossCause>, CallError> {
        self.pools.with_retry(deadline, |connection| {
            let params = params! { "r" => &*claim.name, "o" => claim.visitor.as_str() };
            let (answer, _) = connection.execute(&self.statements.release, params, deadline)?;
            if answer > 0 {
                return Ok(None);
            }
            let found = MySql::read_lock_row(connection, &self.statements, &claim.name, deadline)?;
            Ok(Some(cause_of_loss(found)))
        })
    }
}

/// Returns a grant; no copy of its request shortens its lease.
pub(super) fn granted(sent: BootInstant, fence: u64) -> Granted {
    Granted {
        fence: Some(fence),
        ..Granted::at(sent)
    }
}

/// Returns why a hold is lost whose row is this one now.
pub(super) fn cause_of_loss(found: Option<LockRow>) -> LossCause {
    match found {
        Some(found) if found.left.is_some() => LossCause::held_by(&found.owner),
        _ => LossCause::Gone,
    }
}

/// Returns the reason for an error whose cause is a row locked by a transaction.
pub(super) fn row_locked_reason(error: CallError) -> String {
    format!(
        "the row of the lock is locked by a transaction ({})",
        error.reason()
    )
}

/// Returns the lease of a claim in microseconds.
pub(super) fn lease_of(claim: &Claim) -> u64 {
    u64::try_from(claim.lease.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
