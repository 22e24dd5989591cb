//! Renewals, of which one call of the script renews many.

mod cluster;
mod cluster_batch;
mod node;
mod one_server;

use std::time::Instant;

use redis::Value;

use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::ground::loss::LossCause;
use crate::store::Renewal;
use crate::stores::redis::replies::{cause_of, integer_at};
use crate::stores::redis::scripts::Script;
use crate::stores::redis::transport::Connection;

/// How many holds one call of the renewal script renews, so that it keeps the server for less than a millisecond.
pub(in crate::stores::redis) const RENEWED_AT_ONCE: usize = 100;

/// Some holds that one call renews.
pub(in crate::stores::redis) struct RenewalBatch<'a> {
    pub(in crate::stores::redis) claims: &'a [Claim],
    pub(in crate::stores::redis) not_after: i64,
    /// The number of the request, which its answer repeats.
    pub(in crate::stores::redis) number: i64,
}

/// The requests that renew `claims` on this connection by `deadline`, sent at `sent`.
pub(in crate::stores::redis) fn chunks_of<'a>(
    claims: &'a [Claim],
    connection: &mut Connection,
    deadline: Instant,
    sent: BootInstant,
) -> Vec<RenewalBatch<'a>> {
    let not_after = connection.expiry(deadline, sent);
    let chunks = claims.chunks(RENEWED_AT_ONCE).map(|claims| RenewalBatch {
        claims,
        not_after,
        number: connection.number(),
    });
    chunks.collect()
}

impl RenewalBatch<'_> {
    /// Makes the server know the script that renews, by the renewal of nothing, of which the connection owes the answer
    /// from then on. Returns whether it could be sent.
    pub(in crate::stores::redis) fn makes_known(
        script: &Script,
        connection: &mut Connection,
        deadline: Instant,
    ) -> bool {
        let nothing = RenewalBatch {
            claims: &[],
            not_after: 0,
            number: connection.number(),
        };
        let mut packed = Vec::new();
        nothing.pack(script, true, &mut packed);
        connection.reply_due = Some(nothing.number);
        connection.ask(&packed, deadline).is_ok()
    }

    pub(in crate::stores::redis) fn pack(
        &self,
        script: &Script,
        by_text: bool,
        into: &mut Vec<u8>,
    ) {
        let count = self.claims.len();
        let mut command = script.command(by_text, count, 2 + 2 * count);
        for claim in self.claims {
            command.arg(&*claim.name);
        }
        command.arg(self.not_after);
        for claim in self.claims {
            let lease = u64::try_from(claim.lease.as_millis()).unwrap_or(u64::MAX);
            command.arg(claim.visitor.as_str()).arg(lease);
        }
        command.arg(self.number);
        command.write_packed_command(into);
    }

    pub(in crate::stores::redis) fn read(&self, reply: &Value, outcomes: &mut Vec<Renewal>) {
        let begin = outcomes.len();
        let (Value::Array(items), Some(1)) = (reply, integer_at(reply, 1)) else {
            let reason = "it reached the server too late".to_owned();
            outcomes.resize(begin + self.claims.len(), Renewal::Unknown(reason));
            return;
        };
        outcomes.resize(begin + self.claims.len(), Renewal::Renewed);
        for lost in items.get(2..).unwrap_or_default().chunks(2) {
            let [Value::Int(index), what] = lost else {
                continue;
            };
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            if let Some(outcome) = outcomes.get_mut(begin.saturating_add(index).saturating_sub(1)) {
                *outcome = Renewal::Lost(match what {
                    Value::Int(_) => LossCause::Gone,
                    holder => cause_of(holder),
                });
            }
        }
    }
}

/// Whether renewals were refused because our idea of the server's clock was off.
pub(in crate::stores::redis) fn came_too_late(reply: &Value) -> bool {
    integer_at(reply, 1) == Some(0)
}

/// Takes renewals back that do not count.
pub(in crate::stores::redis) fn discount(outcomes: &mut [Renewal], flaw: &str) {
    for outcome in outcomes {
        if *outcome == Renewal::Renewed {
            *outcome = Renewal::Unknown(flaw.to_owned());
        }
    }
}
