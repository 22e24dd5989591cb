//! Renewals, on a connection of their own.

use std::time::Instant;

use ::mysql::params;

use super::MySql;
use super::call_error::CallError;
use super::connection::Connection;
use super::lock_table::{Change, Copies, Touch, locked_words};
use super::pool::on_link;
use crate::ground::claim::Claim;
use crate::store::Renewal;

impl MySql {
    /// Renews holds, none of which waits for a row.
    pub(super) fn renew_all(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        if claims.is_empty() {
            return Vec::new();
        }
        // Taken out, not locked, while it is in use.
        let mut place = self.renewals.lock().take();
        let mut outcomes: Vec<Option<Renewal>> = vec![None; claims.len()];
        let talked = on_link(
            &mut place,
            self.pool.address(),
            deadline,
            &mut |connection| {
                // A row that another transaction has is asked for twice, the second time behind all others, and waited for
                // never: that transaction may last for long, and the others have to be renewed meanwhile. The watchdog
                // comes back.
                for is_last in [false, true] {
                    for (claim, outcome) in claims.iter().zip(&mut outcomes) {
                        if outcome.is_some() {
                            continue;
                        }
                        *outcome = match self.renew_one(connection, claim, deadline) {
                            Ok(Touch::Done { .. }) => Some(Renewal::Renewed),
                            Ok(Touch::Gone(cause)) => Some(Renewal::Lost(cause)),
                            Err(fault) if fault.is_busy() => {
                                is_last.then(|| Renewal::Unknown(locked_words(fault)))
                            }
                            Err(fault) if fault.leaves_sound() => {
                                Some(Renewal::Unknown(fault.reason()))
                            }
                            Err(fault) => return Err(fault),
                        };
                    }
                }
                Ok(())
            },
        );
        *self.renewals.lock() = place;
        let rest = match talked {
            Ok(()) => String::new(),
            Err(fault) => fault.reason(),
        };
        let or_rest = |outcome: Option<Renewal>| outcome.unwrap_or(Renewal::Unknown(rest.clone()));
        outcomes.into_iter().map(or_rest).collect()
    }

    /// Renews one hold, without a wait for its row.
    fn renew_one(
        &self,
        connection: &mut Connection,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Touch, CallError> {
        if !connection.refuse_at_once(deadline)? {
            // The renewal itself could wait for a second, so the row is asked for before.
            let params = params! { "r" => &*claim.name };
            match connection.rows(&self.statements.probe, params, deadline) {
                // A server without NOWAIT.
                Ok(_) | Err(CallError::Server { code: 1064, .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        let mut copies = Copies::default();
        self.touch(connection, claim, Change::Lease, deadline, &mut copies)
    }
}
