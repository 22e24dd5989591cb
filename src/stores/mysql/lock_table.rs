//! Statements on one row of the lock table, and the meaning of their replies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::{Params, Row, params};

use super::call_error::{CallError, Class};
use super::connection::Connection;
use super::lock_statements::BUSY;
use super::pool::Request;
use super::{LATEST_EFFECT, MySql, ROW_WAIT};
use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::ground::time;
use crate::store::{Granted, LockInfo, Outcome, Refusal, Released, Store};

/// The maximum repeats of a request that the server refuses as late because the known clock offset is stale.
const CORRECTIONS: u32 = 3;

#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// A re-entry. The number is the new count.
    Enter(u32),
    /// An inner unlock. The number is the new count.
    Leave(u32),
    Lease,
    /// A hand-off of the lock to the waiter that has this claim.
    Owner(&'a Claim),
}

#[derive(Default)]
pub(super) struct SentStatements {
    /// The server time in ms after which the server refuses all copies of the statement.
    not_after: i64,
    /// The send time of the first copy without a reply. The lease counts from this time, because this copy may have set
    /// the lease. A second copy of a hand-off does not set the lease again.
    first_unanswered: Option<BootInstant>,
}

impl SentStatements {
    /// Sends a statement with an expiry, after which the server refuses it. Returns the reply and the lease's start.
    fn send(
        &mut self,
        connection: &mut Connection,
        statement: &str,
        params: impl Fn(i64) -> Params,
        deadline: Instant,
    ) -> Result<(u64, BootInstant), CallError> {
        let sent = BootInstant::now();
        let expiry = connection.expiry(deadline);
        self.not_after = self.not_after.max(expiry / 1000 + 1);
        let outcome = connection.execute(statement, params(expiry), deadline);
        if let Err(CallError::NoReply { .. }) = outcome {
            self.first_unanswered.get_or_insert(sent);
        }
        Ok((outcome?.0, self.first_unanswered.unwrap_or(sent)))
    }

    /// Returns the server time in ms after which no copy of the statement can take effect.
    fn latest_effect(&self) -> i64 {
        let latest = i64::try_from(LATEST_EFFECT.as_millis()).unwrap_or(i64::MAX);
        self.not_after.saturating_add(latest)
    }
}

impl MySql {
    fn read_holder(
        &self,
        connection: &mut Connection,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<LockInfo>, CallError> {
        let params = params! { "r" => name };
        let rows = connection.query(&self.statements.inspect, params, deadline)?;
        Ok(rows.into_iter().next().map(|row| self.lock_info(row)))
    }

    pub(super) fn holder(&self, name: &Arc<str>, deadline: Instant) -> Result<Option<LockInfo>> {
        let found = self.pools.run(Request::Repeatable, deadline, |connection| {
            self.read_holder(connection, name, deadline)
        });
        found.map_err(|error| self.lock_error(name, error))
    }

    pub(super) fn change_row(
        &self,
        connection: &mut Connection,
        claim: &Claim,
        change: Change<'_>,
        deadline: Instant,
        copies: &mut SentStatements,
    ) -> Result<Result<Granted, LossCause>, CallError> {
        let statements = &self.statements;
        let owner = claim.visitor.as_str();
        let (statement, count, successor, lease) = match change {
            Change::Enter(count) => (&statements.enter, count, owner, micros(claim.lease)),
            Change::Leave(count) => (&statements.leave, count, owner, micros(claim.lease)),
            Change::Lease => (&statements.renew, 0, owner, micros(claim.lease)),
            Change::Owner(to) => (
                &statements.transfer,
                0,
                to.visitor.as_str(),
                micros(to.lease),
            ),
        };
        for _ in 0..=CORRECTIONS {
            // The driver ignores parameters that the statement does not name.
            let params = |t: i64| {
                params! {
                    "r" => &*claim.name, "o" => owner, "n" => count, "h" => successor, "us" => lease, "t" => t
                }
            };
            let (answer, sent) = copies.send(connection, statement, params, deadline)?;
            if answer > 0 {
                return Ok(Ok(granted(sent, answer)));
            }
            let found = self.read_holder(connection, &claim.name, deadline)?;
            let by = found.as_ref().and_then(|found| found.holders.first());
            if !by.is_some_and(|by| by.visitor == owner || by.visitor == successor) {
                return Ok(Err(cause_of_loss(found.as_ref())));
            }
            // The hold still has the row, so the statement was refused because it was late: the known clock offset is stale.
            connection.read_time()?;
        }
        Err(CallError::NotSent(
            "it reached the server after its deadline".into(),
        ))
    }

    pub(super) fn change_hold<D, R>(
        &self,
        claim: &Claim,
        change: Change<'_>,
        operation: &'static str,
        deadline: Instant,
        done: impl FnOnce(Granted) -> D,
    ) -> Result<Outcome<D, R>> {
        let mut copies = SentStatements::default();
        let call = |connection: &mut Connection| {
            self.change_row(connection, claim, change, deadline, &mut copies)
        };
        let request = match change {
            // An inner unlock is sent once. A late copy could shorten a lease that a later request has set.
            Change::Leave(_) => Request::Once,
            _ => Request::Repeatable,
        };
        let outcome = self.pools.run(request, deadline, call);
        match outcome {
            Ok(Ok(granted)) => Ok(Outcome::Done(done(granted))),
            Ok(Err(cause)) => Ok(Outcome::Gone(cause)),
            // One copy got no reply, so the outcome is unknown despite the error of the last copy.
            Err(error) if copies.first_unanswered.is_some() => {
                let error = self.unknown_of(claim, operation, error);
                let not_after = copies.latest_effect();
                Ok(Outcome::unknown(claim.in_doubt(not_after), error))
            }
            Err(error) => Err(self.lock_error(&claim.name, error)),
        }
    }

    fn unknown_of(&self, claim: &Claim, operation: &'static str, error: CallError) -> Error {
        let reason = error.into_reason();
        self.unknown(&claim.name, Some(&claim.visitor), operation, reason)
    }

    pub(super) fn acquire_new(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Outcome<Granted, Refusal>> {
        self.check_own(&self.tables.locks, &claim.name, deadline)?;
        let mut copies = SentStatements::default();
        let is_short = deadline.saturating_duration_since(time::now()) < ROW_WAIT * 6 / 5;
        // Without a reply, the upsert is not repeated: a late copy could acquire a lock that the visitor has released.
        let outcome = self.pools.run(Request::Once, deadline, |connection| {
            if is_short {
                // If a transaction has locked the row, the upsert would wait past the deadline. A plain read does not wait.
                let found = self.read_holder(connection, &claim.name, deadline)?;
                if let Some(left) = found.and_then(|found| found.expires) {
                    return Ok((BUSY.saturating_add(micros(left)), BootInstant::now()));
                }
                // The lease has ended. If a transaction has locked the row, `probe` fails at once instead of waiting.
                let params = params! { "r" => &*claim.name };
                connection.query::<Row>(&self.statements.probe, params, deadline)?;
            }
            let params = |t| {
                params! { "r" => &*claim.name, "o" => claim.visitor.as_str(), "us" => micros(claim.lease), "t" => t }
            };
            for _ in 0..=CORRECTIONS {
                match copies.send(connection, &self.statements.acquire, params, deadline) {
                    Err(error) if error.class() == Some(Class::Late) => connection.read_time()?,
                    outcome => return outcome,
                };
            }
            Err(CallError::NotSent("the server's clock drifts too fast against this machine's".into()))
        });
        let refused = |left| Ok(Outcome::Refused(Refusal::until(Some(left))));
        match outcome {
            Ok((0, _)) => {
                // A proxy removed `LAST_INSERT_ID` from the reply. The lock may have been granted, so it is released.
                let mut in_doubt = claim.in_doubt(0);
                let reason = "the reply has no LAST_INSERT_ID; connect without a proxy, or with one that does not \
                    change replies";
                let error = self.error_of_users(&claim.name, CallError::Usage(reason.to_owned()));
                match self.resolve(&mut in_doubt, deadline) {
                    Ok(_) => Err(error),
                    Err(_) => Ok(Outcome::unknown(in_doubt, error)),
                }
            }
            Ok((answer, _)) if answer >= BUSY => refused(Duration::from_micros(answer - BUSY)),
            Ok((fence, sent)) => Ok(Outcome::Done(granted(sent, fence))),
            Err(error) if error.is_busy() => refused(Duration::from_secs(1)),
            Err(error) if copies.first_unanswered.is_some() => Ok(Outcome::unknown(
                claim.in_doubt(copies.latest_effect()),
                self.unknown_of(claim, "acquire", error),
            )),
            // The server replied to every upsert that was sent, so none of them is in doubt.
            Err(error) => Err(self.error(&claim.name, error)),
        }
    }

    pub(super) fn release_whole(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        let mut is_in_doubt = false;
        let outcome = self.pools.run(Request::Repeatable, deadline, |connection| {
            let params = params! { "r" => &*claim.name, "o" => claim.visitor.as_str() };
            match connection.execute(&self.statements.release, params, deadline) {
                // If `is_in_doubt`, an earlier copy may have released the row, so a reply of 0 does not prove a loss.
                Ok((answer, _)) if answer > 0 || is_in_doubt => Ok(None),
                Ok(_) => {
                    let found = self.read_holder(connection, &claim.name, deadline)?;
                    Ok(Some(cause_of_loss(found.as_ref())))
                }
                Err(error) => {
                    is_in_doubt |= matches!(error, CallError::NoReply { .. });
                    Err(error)
                }
            }
        });
        match outcome {
            Ok(None) => Ok(Outcome::Done(Released::default())),
            Ok(Some(cause)) => Ok(Outcome::Gone(cause)),
            Err(error) if is_in_doubt => Ok(Outcome::unknown(
                // A late copy can only free the row, so the request needs no expiry.
                claim.in_doubt(0),
                self.unknown_of(claim, "release", error),
            )),
            Err(error) => Err(self.lock_error(&claim.name, error)),
        }
    }
}

/// Leaves `Granted::leftover` empty, because a late copy of the request never shortens the lease.
fn granted(sent: BootInstant, fence: u64) -> Granted {
    Granted {
        fence: Some(fence),
        ..Granted::at(sent)
    }
}

pub(super) fn cause_of_loss(found: Option<&LockInfo>) -> LossCause {
    match found.and_then(|found| found.holders.first()) {
        Some(holder) => LossCause::held_by(&holder.visitor),
        None => LossCause::Gone,
    }
}

pub(super) fn row_locked_reason(error: CallError) -> String {
    let reason = error.reason();
    format!("a transaction has locked the row of the lock ({reason})")
}

pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
