//! Renewals, on a connection of their own.

use std::time::Instant;

use ::mysql::{Row, params};

use super::MySql;
use super::call_error::CallError;
use super::connection::Connection;
use super::lock_table::{Change, SentStatements, row_locked_reason};
use super::pool::Request;
use crate::ground::claim::Claim;
use crate::ground::loss::LossCause;
use crate::store::{Granted, Renewal};

impl MySql {
    /// Renews holds, without a wait for locked rows: a transaction may last long, and the other holds must be renewed
    /// meanwhile. The watchdog tries again.
    pub(super) fn renew_all(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        let mut outcomes = Vec::with_capacity(claims.len());
        let outcome = self.pools.run(Request::Renewal, deadline, |connection| {
            for claim in claims.iter().skip(outcomes.len()) {
                outcomes.push(match self.renew_one(connection, claim, deadline) {
                    Ok(Ok(_)) => Renewal::Renewed,
                    Ok(Err(cause)) => Renewal::Lost(cause),
                    Err(error) if error.is_busy() => Renewal::Unknown(row_locked_reason(error)),
                    Err(error) if error.keeps_connection() => Renewal::Unknown(error.reason()),
                    Err(error) => return Err(error),
                });
            }
            Ok(())
        });
        let reason = outcome.err().map(CallError::reason).unwrap_or_default();
        outcomes.resize(claims.len(), Renewal::Unknown(reason));
        outcomes
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
