//! Renewals, on a connection of their own.

use std::time::Instant;

use ::mysql::{Row, params};

use super::MySql;
use super::call_error::CallError;
use super::connection::Connection;
use super::lock_table::{Change, SentStatements, row_locked_reason};
use crate::ground::claim::Claim;
use crate::ground::loss::LossCause;
use crate::store::{Granted, Renewal};

impl MySql {
    /// Renews holds, without a wait for locked rows.
    pub(super) fn renew_all(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        if claims.is_empty() {
            return Vec::new();
        }
        let mut outcomes: Vec<Option<Renewal>> = vec![None; claims.len()];
        let outcome = self.pools.renewing(deadline, |connection| {
            // A row that a transaction has locked is tried twice, the second time after all others, without a wait:
            // the transaction may last long, and the other holds must be renewed meanwhile. The watchdog tries again.
            for is_last in [false, true] {
                for (claim, outcome) in claims.iter().zip(&mut outcomes) {
                    if outcome.is_some() {
                        continue;
                    }
                    *outcome = match self.renew_one(connection, claim, deadline) {
                        Ok(Ok(_)) => Some(Renewal::Renewed),
                        Ok(Err(cause)) => Some(Renewal::Lost(cause)),
                        Err(error) if error.is_busy() => {
                            is_last.then(|| Renewal::Unknown(row_locked_reason(error)))
                        }
                        Err(error) if error.keeps_connection() => {
                            Some(Renewal::Unknown(error.reason()))
                        }
                        Err(error) => return Err(error),
                    };
                }
            }
            Ok(())
        });
        let reason = match outcome {
            Ok(()) => String::new(),
            Err(error) => error.reason(),
        };
        let or_reason =
            |outcome: Option<Renewal>| outcome.unwrap_or(Renewal::Unknown(reason.clone()));
        outcomes.into_iter().map(or_reason).collect()
    }

    /// Renews one hold, without a wait for its row.
    fn renew_one(
        &self,
        connection: &mut Connection,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Result<Granted, LossCause>, CallError> {
        // The renewal itself could wait a second for the row, so NOWAIT asks first.
        let params = params! { "r" => &*claim.name };
        connection.query::<Row>(&self.statements.probe, params, deadline)?;
        let mut copies = SentStatements::default();
        self.change_row(connection, claim, Change::Lease, deadline, &mut copies)
    }
}
