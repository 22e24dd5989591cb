//! The statements on one row of the lock table, and what their answers mean.

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
use crate::store::{Attempt, Refusal, Store};

/// How often a request is sent anew because its clock turned out to be wrong, or a row was locked for a moment.
const CORRECTIONS: u32 = 3;

pub(super) struct Found {
    pub(super) owner: String,
    pub(super) holds: u32,
    /// `None` if the lease is over.
    pub(super) left: Option<Duration>,
}

/// What is to be changed in the row of a hold.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// One level more, which makes this count.
    Enter(u32),
    /// One level less.
    Leave(u32),
    Lease,
    /// It becomes the hold of this claim.
    Owner(&'a Claim),
}

impl Change<'_> {
    /// Whether a row with this owner is the one to be changed, or was changed already.
    fn is_of(&self, owner: &str, claim: &Claim) -> bool {
        owner == claim.visitor.as_str()
            || matches!(self, Change::Owner(heir) if owner == heir.visitor.as_str())
    }
}

/// The copies of one request that were sent.
#[derive(Default)]
pub(super) struct Copies {
    /// The latest of the server's times from which on one of them is refused, in ms.
    pub(super) not_after: i64,
    /// When the first of those was sent that got no answer: it may run later than those behind it.
    pub(super) lost: Option<BootInstant>,
}

/// What became of a statement on the row of a hold.
pub(super) enum Touch {
    Done { sent: BootInstant, fence: u64 },
    Gone(LossCause),
}

impl MySql {
    /// Runs a statement on the row of one hold that carries the server's time after which it is refused, and tells
    /// what it answered and since when the lease counts.
    pub(super) fn run_timed(
        &self,
        connection: &mut Connection,
        statement: &str,
        params: impl Fn(i64) -> Params,
        deadline: Instant,
        copies: &mut Copies,
    ) -> Result<(u64, BootInstant), CallError> {
        let mut corrections = 0;
        loop {
            let sent = BootInstant::now();
            let expiry = connection.expiry(deadline);
            copies.not_after = copies.not_after.max(expiry / 1000 + 1);
            match connection.run(statement, params(expiry), deadline) {
                Ok((answer, _)) => return Ok((answer, copies.lost.unwrap_or(sent))),
                Err(fault @ CallError::NoReply { .. }) => {
                    copies.lost.get_or_insert(sent);
                    return Err(fault);
                }
                Err(fault) if fault.class() == Some(Class::Late) => {
                    corrections += 1;
                    if corrections > CORRECTIONS {
                        return Err(CallError::NotSent(
                            "the server's clock runs away from ours".into(),
                        ));
                    }
                    connection.learn_time()?;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Whose row it is, how often held and how long still.
    pub(super) fn look(
        connection: &mut Connection,
        statements: &Statements,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<Found>, CallError> {
        let rows = connection.rows(&statements.inspect, params! { "r" => name }, deadline)?;
        let Some(row) = rows.into_iter().next() else {
            return Ok(None);
        };
        let unreadable = |_| CallError::Usage("the lock table has rows of another kind".to_owned());
        let (owner, holds, left): (Vec<u8>, u32, i64) =
            ::mysql::from_row_opt(row).map_err(unreadable)?;
        Ok(Some(Found {
            owner: String::from_utf8_lossy(&owner).into_owned(),
            holds,
            left: u64::try_from(left)
                .ok()
                .map(Duration::from_micros)
                .filter(|left| !left.is_zero()),
        }))
    }

    /// Changes a row, which may be done only while it is ours.
    pub(super) fn touch(
        &self,
        connection: &mut Connection,
        claim: &Claim,
        change: Change<'_>,
        deadline: Instant,
        copies: &mut Copies,
    ) -> Result<Touch, CallError> {
        let lease = lease_of(claim);
        let mut corrections = 0;
        loop {
            let (name, owner) = (&*claim.name, claim.visitor.as_str());
            let (statement, params): (_, Box<dyn Fn(i64) -> Params>) = match change {
                Change::Enter(count) | Change::Leave(count) => (
                    match change {
                        Change::Leave(_) => &self.statements.leave,
                        _ => &self.statements.enter,
                    },
                    Box::new(
                        move |t| params! { "r" => name, "o" => owner, "n" => count, "us" => lease, "t" => t },
                    ),
                ),
                Change::Lease => (
                    &self.statements.renew,
                    Box::new(
                        move |t| params! { "r" => name, "o" => owner, "us" => lease, "t" => t },
                    ),
                ),
                Change::Owner(heir) => (
                    &self.statements.transfer,
                    Box::new(move |t| {
                        let (h, us) = (heir.visitor.as_str(), lease_of(heir));
                        params! { "r" => name, "o" => owner, "h" => h, "us" => us, "t" => t }
                    }),
                ),
            };
            let (answer, sent) =
                match self.run_timed(connection, statement, params, deadline, copies) {
                    // The row is locked for a moment; the statement was undone. A renewal has others behind it.
                    Err(fault)
                        if fault.is_busy()
                            && !matches!(change, Change::Lease)
                            && corrections < CORRECTIONS
                            && Instant::now() < deadline =>
                    {
                        corrections += 1;
                        continue;
                    }
                    outcome => outcome?,
                };
            if answer > 0 {
                return Ok(Touch::Done {
                    sent,
                    fence: answer,
                });
            }
            match MySql::look(connection, &self.statements, &claim.name, deadline)? {
                Some(found) if change.is_of(&found.owner, claim) && found.left.is_some() => {
                    // Ours, so it came too late: our idea of the server's clock was off.
                    corrections += 1;
                    if corrections > CORRECTIONS || Instant::now() >= deadline {
                        return Err(CallError::NotSent("it reached the server too late".into()));
                    }
                    connection.learn_time()?;
                }
                Some(found) if found.left.is_some() => {
                    return Ok(Touch::Gone(LossCause::held_by(&found.owner)));
                }
                _ => return Ok(Touch::Gone(LossCause::Gone)),
            }
        }
    }

    pub(super) fn touch_pooled(
        &self,
        claim: &Claim,
        change: Change<'_>,
        deadline: Instant,
    ) -> (Result<Touch, CallError>, i64) {
        let mut copies = Copies::default();
        let talk = |connection: &mut Connection| {
            self.touch(connection, claim, change, deadline, &mut copies)
        };
        let outcome = match change {
            // A late copy would shorten the lease under those that were sent meanwhile.
            Change::Leave(_) => self.pool.once(deadline, talk),
            Change::Enter(_) | Change::Lease | Change::Owner(_) => self.pool.with(deadline, talk),
        };
        let outcome = match outcome {
            // What became of the copy without an answer is not known, whatever the last one met with.
            Err(fault) if copies.lost.is_some() => Err(CallError::NoReply {
                reason: fault.into_reason(),
                timed_out: true,
            }),
            outcome => outcome,
        };
        (outcome, copies.not_after)
    }

    /// Takes the lock for a visitor that holds nothing yet.
    pub(super) fn take(&self, claim: &Claim, deadline: Instant) -> Result<Attempt> {
        self.check_not_pinned_here(&claim.name)?;
        self.check_lock_table(&claim.name, deadline)?;
        let lease = lease_of(claim);
        let mut copies = Copies::default();
        let is_short = deadline.saturating_duration_since(Instant::now()) < ROW_WAIT * 6 / 5;
        // One copy, because another one that is late could take the lock again for a visitor that has released it.
        let outcome = self.pool.once(deadline, |connection| {
            if is_short {
                // A row that a transaction has pinned is waited for longer than there is time; a plain read is not.
                if let Some(found) = MySql::look(connection, &self.statements, &claim.name, deadline)? {
                    if let Some(left) = found.left {
                        let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
                        return Ok((BUSY.saturating_add(left), BootInstant::now()));
                    }
                    // Its lease is over, but a transaction may have pinned it, which only asking without a wait tells.
                    let params = params! { "r" => &*claim.name };
                    match connection.rows(&self.statements.probe, params, deadline) {
                        // A server without NOWAIT.
                        Ok(_) | Err(CallError::Server { code: 1064, .. }) => {}
                        Err(fault) => return Err(fault),
                    }
                }
            }
            self.run_timed(
                connection,
                &self.statements.acquire,
                |t| params! { "r" => &*claim.name, "o" => claim.visitor.as_str(), "us" => lease, "t" => t },
                deadline,
                &mut copies,
            )
        });
        let refused = |left| {
            Ok(Attempt::Refused(Refusal {
                retry_after: Some(left),
                ..Refusal::default()
            }))
        };
        match outcome {
            Ok((0, _)) => {
                // Whether it was granted is not known; the answer that would say so is not to be had here.
                self.resolve(&mut claim.in_doubt(0), deadline)?;
                Err(Error::Unsupported {
                    lock: Arc::clone(&claim.name),
                    reason: format!(
                        "{} does not hand on LAST_INSERT_ID: connect without a proxy, or with one that leaves answers as they are",
                        self.node()
                    ),
                })
            }
            Ok((answer, _)) if answer >= BUSY => refused(Duration::from_micros(answer - BUSY)),
            Ok((fence, sent)) => Ok(Attempt::Granted {
                sent,
                fence: Some(fence),
                // No copy shortens a lease.
                leftover: None,
            }),
            // Somebody has the row locked at this moment.
            Err(fault) if fault.is_busy() => refused(Duration::from_secs(1)),
            // Only the look before it got no answer.
            Err(CallError::NoReply { reason, .. }) if copies.lost.is_none() => {
                Err(self.error(&claim.name, CallError::NotSent(reason)))
            }
            Err(CallError::NoReply { reason, .. }) => Ok(Attempt::Unknown {
                in_doubt: claim.in_doubt(copies.not_after.saturating_add(millis(LATEST_EFFECT))),
                error: self.unknown(&claim.name, Some(&claim.visitor), "acquire", reason),
            }),
            Err(fault) => Err(self.error(&claim.name, fault)),
        }
    }

    /// Releases a hold, and asks again if the answer is lost.
    pub(super) fn release_twice(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Option<LossCause>, CallError> {
        // Half the time for the first try, so that a lost reply leaves time for the second.
        let now = Instant::now();
        let half = now + deadline.saturating_duration_since(now) / 2;
        match self.release_once(claim, half) {
            Err(CallError::NoReply { .. }) => match self.release_once(claim, deadline) {
                // The first one did it: nobody else can have freed this visitor's hold and nothing proves a loss.
                Ok(_) => Ok(None),
                // Whether the first one did it is not known, whatever became of the second.
                Err(fault) => Err(CallError::NoReply {
                    reason: fault.into_reason(),
                    timed_out: true,
                }),
            },
            Err(CallError::NotSent(_)) if Instant::now() < half => {
                self.release_once(claim, deadline)
            }
            // The row was locked for a moment, by a visitor that waits for it.
            Err(fault) if fault.is_busy() => self.release_once(claim, deadline),
            outcome => outcome,
        }
    }

    fn release_once(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Option<LossCause>, CallError> {
        self.pool.with(deadline, |connection| {
            let params = params! { "r" => &*claim.name, "o" => claim.visitor.as_str() };
            let (answer, _) = connection.run(&self.statements.release, params, deadline)?;
            if answer > 0 {
                return Ok(None);
            }
            Ok(Some(
                match MySql::look(connection, &self.statements, &claim.name, deadline)? {
                    Some(found) if found.left.is_some() => LossCause::held_by(&found.owner),
                    _ => LossCause::Gone,
                },
            ))
        })
    }
}

pub(super) fn locked_words(fault: CallError) -> String {
    format!(
        "the row of the lock is locked by a transaction ({})",
        fault.reason()
    )
}

pub(super) fn lease_of(claim: &Claim) -> u64 {
    u64::try_from(claim.lease.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
