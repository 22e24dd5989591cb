//! Acquisition and the release of levels: both set the count of a hold from one number to another.

use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::ground::error::{Reason, Result};
use crate::ground::loss::{LossCause, printable};
use crate::ground::time;
use crate::store::{Granted, InDoubt, Outcome, Refusal, Released};
use crate::stores::quorum::quarantine::NodeHandle;
use crate::stores::redis::calls::Release;
use crate::stores::redis::layout::Layout;
use crate::stores::redis::replies::{cause_of, integer_at, is_another_history, item_at, text_of};
use crate::stores::redis::requests::SentCopies;
use crate::stores::redis::scripts::Script;
use crate::stores::redis::transport::{CallError, brief};
use crate::stores::redis::wait_replicas::ReplicaAck;
use crate::stores::redis::{CORRECTIONS, RUNAWAY_CLOCK, Redis};

/// How often a request is sent anew because its connection was cut. A server that goes away cuts all of them, and not in
/// one instant.
pub(super) const REPEATS: u32 = 2;

impl Redis {
    /// Asks `script` to set the count of a hold from `known` to `wanted`, where `handle` has a vote, if it is given.
    pub(super) fn set_count(
        &self,
        claim: &Claim,
        script: &Script,
        [known, wanted]: [u32; 2],
        handle: Option<&NodeHandle>,
        deadline: Instant,
    ) -> Result<CountReply, CallError> {
        let mut copies = SentCopies {
            handle,
            ..SentCopies::replicated(self.replication)
        };
        let step = self.set_count_by(claim, script, known, wanted, deadline, &mut copies);
        step.map(|step| self.replicated(step, &copies))
    }

    /// Turns a request that is done and not replicated into one that is not done.
    pub(super) fn replicated(&self, step: CountReply, copies: &SentCopies<'_>) -> CountReply {
        match step {
            CountReply::Done { .. }
                if self.replication.is_some() && copies.replica_ack != ReplicaAck::Enough =>
            {
                CountReply::Unreplicated {
                    replica_ack: copies.replica_ack.clone(),
                    not_after: copies.not_after,
                }
            }
            step => step,
        }
    }

    pub(super) fn set_count_by(
        &self,
        claim: &Claim,
        script: &Script,
        known: u32,
        wanted: u32,
        deadline: Instant,
        copies: &mut SentCopies<'_>,
    ) -> Result<CountReply, CallError> {
        let lease = claim.lease.as_millis().to_string();
        // A hash that stands there already may be of a copy or of anybody else of this client, a token cannot.
        let may_repeat = known > 0 || Layout::of(claim.kind).repeats_acquisition;
        let mut repeats = 0;
        let wanted = wanted.to_string();
        let mut known = known.to_string();
        let mut corrections = 0;
        loop {
            let args = [claim.visitor.as_str(), &lease, &known, &wanted].map(str::as_bytes);
            let reply = match self.call_timed(script, &claim.name, &args, deadline, copies) {
                // The request may have run, but to set the same count twice is to set it once. If it runs later than that,
                // the hold reckons with it.
                Err(CallError::NoReply {
                    timed_out: false, ..
                }) if may_repeat && repeats < REPEATS => {
                    repeats += 1;
                    continue;
                }
                Err(CallError::NoReply { reason, .. }) => {
                    let not_after = copies.not_after;
                    return Ok(CountReply::Unknown { reason, not_after });
                }
                // A copy that did not run says nothing of the one before.
                Err(fault) if copies.first_sent.is_some() => {
                    let (reason, not_after) = (fault.into_reason(), copies.not_after);
                    return Ok(CountReply::Unknown { reason, not_after });
                }
                reply => reply?,
            };
            let refused = match parse_count_reply(&reply, copies.first_sent) {
                Ok(Heard::CountReply(CountReply::Refused { ttl, holder, .. })) => {
                    copies.last_did_not_run();
                    let not_after = copies.is_in_doubt().then_some(copies.not_after);
                    return Ok(CountReply::Refused {
                        ttl,
                        holder,
                        not_after,
                    });
                }
                Ok(Heard::CountReply(step)) => {
                    if Layout::of(claim.kind).repeats_acquisition && copies.unanswered.is_some() {
                        let late = claim.in_doubt(copies.not_after);
                        self.late_copies.lock().push((claim.visitor.clone(), late));
                    }
                    // It finds its own count until that has changed and come back, and sets its own lease then.
                    return Ok(match (step, copies.unanswered) {
                        (CountReply::Done { sent, .. }, Some(_)) => CountReply::Done {
                            sent,
                            late: Some(copies.not_after),
                        },
                        (step, _) => step,
                    });
                }
                // Our idea of the server's clock was off, or of which server it is; the reply has put it right.
                Ok(Heard::TooLate | Heard::AnotherHistory) => RUNAWAY_CLOCK.to_owned(),
                // An earlier request that got no answer has changed the count.
                Ok(Heard::Counts(count)) => {
                    known = count;
                    RUNAWAY_CLOCK.to_owned()
                }
                Err(fault) => {
                    corrections = CORRECTIONS;
                    fault.into_reason().into_words()
                }
            };
            copies.last_did_not_run();
            corrections += 1;
            if corrections > CORRECTIONS || time::now() >= deadline {
                if copies.is_in_doubt() {
                    let (reason, not_after) = (refused.into(), copies.not_after);
                    return Ok(CountReply::Unknown { reason, not_after });
                }
                return Err(CallError::Server(refused));
            }
        }
    }

    pub(super) fn attempt_of(
        &self,
        claim: &Claim,
        step: Result<CountReply, CallError>,
    ) -> Result<Outcome<Granted, Refusal>> {
        match step {
            Ok(CountReply::Done { sent, late }) => Ok(Outcome::Done(Granted {
                sent,
                fence: None,
                leftover: late.map(|not_after| claim.in_doubt(not_after)),
                others_wait: false,
            })),
            Ok(CountReply::Unreplicated {
                replica_ack,
                not_after,
            }) => Ok(Outcome::unknown(
                claim.in_doubt(not_after),
                self.unreplicated(&claim.name, replica_ack),
            )),
            Ok(CountReply::Refused {
                ttl,
                holder,
                not_after,
            }) => Ok(Outcome::Refused(Refusal {
                retry_after: u64::try_from(ttl).ok().map(Duration::from_millis),
                holder: Some(holder.into()),
                leftover: not_after.map(|not_after| claim.in_doubt(not_after)),
                ..Refusal::default()
            })),
            Ok(CountReply::Gone(cause)) => Ok(Outcome::Gone(cause)),
            Ok(CountReply::Corrupt) => Err(self.corrupt(claim)),
            Ok(CountReply::Unknown { reason, not_after }) => Ok(Outcome::unknown(
                claim.in_doubt(not_after),
                self.unknown(&claim.name, Some(&claim.visitor), "acquire", reason),
            )),
            Err(fault) => Err(self.error(&claim.name, fault)),
        }
    }

    pub(super) fn acquire_from(
        &self,
        claim: &Claim,
        script: &Script,
        known: u32,
        wanted: u32,
        deadline: Instant,
    ) -> Result<Outcome<Granted, Refusal>> {
        let step = self.set_count(claim, script, [known, wanted], None, deadline);
        self.acquired(claim, [known, wanted], step, deadline)
    }

    /// Understands what came of an acquisition, and puts it back if too few replicas have it.
    pub(super) fn acquired(
        &self,
        claim: &Claim,
        [known, wanted]: [u32; 2],
        step: Result<CountReply, CallError>,
        deadline: Instant,
    ) -> Result<Outcome<Granted, Refusal>> {
        if let Ok(CountReply::Unreplicated { replica_ack, .. }) = &step
            && self.put_back(claim, known, wanted, deadline)
            && known == 0
        {
            return Err(self.unreplicated(&claim.name, replica_ack.clone()));
        }
        // A re-entry that was put back may have left a longer lease.
        self.attempt_of(claim, step)
    }

    /// Puts a hold back to the count `known` that it had before it was `wanted`. Returns whether that was done.
    pub(super) fn put_back(
        &self,
        claim: &Claim,
        known: u32,
        wanted: u32,
        deadline: Instant,
    ) -> bool {
        if known == 0 {
            return Release::new(claim).once(self, deadline).is_ok();
        }
        let script = &self.scripts.release_level;
        let mut copies = SentCopies::default();
        let step = self.set_count_by(claim, script, wanted, known, deadline, &mut copies);
        matches!(step, Ok(CountReply::Done { .. }))
    }

    pub(super) fn level_of(
        &self,
        claim: &Claim,
        step: Result<CountReply, CallError>,
    ) -> Result<Outcome<Released>> {
        match step {
            Ok(CountReply::Done { late, .. }) => Ok(Outcome::Done(Released {
                others_wait: false,
                leftover: late.map(|not_after| claim.in_doubt(not_after)),
            })),
            Ok(CountReply::Unreplicated {
                replica_ack,
                not_after,
            }) => Ok(Outcome::Unknown {
                in_doubt: claim.in_doubt(not_after),
                // The level is given back, so this must not read as if nothing was done.
                error: self.unknown(
                    &claim.name,
                    Some(&claim.visitor),
                    "release",
                    self.half_done(&replica_ack),
                ),
                successor: None,
            }),
            Ok(CountReply::Gone(cause)) => Ok(Outcome::Gone(cause)),
            Ok(CountReply::Refused { .. } | CountReply::Corrupt) => Err(self.corrupt(claim)),
            Ok(CountReply::Unknown { reason, not_after }) => Ok(Outcome::unknown(
                claim.in_doubt(not_after),
                self.unknown(&claim.name, Some(&claim.visitor), "release", reason),
            )),
            Err(fault) => Err(self.error(&claim.name, fault)),
        }
    }

    /// Gives levels back, so that `keep` stay.
    pub(super) fn release_level(
        &self,
        claim: &Claim,
        keep: u32,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        let script = &self.scripts.release_level;
        let step = self.set_count(claim, script, [claim.count, keep], None, deadline);
        self.level_of(claim, step)
    }

    /// Takes out the copies that may still come of a hold that was given back.
    pub(super) fn late_copy_of(&self, claim: &Claim) -> Option<InDoubt> {
        if !Layout::of(claim.kind).repeats_acquisition {
            return None;
        }
        let mut late = self.late_copies.lock();
        late.retain(|(_, in_doubt)| !in_doubt.ends.has_passed());
        let at = late
            .iter()
            .position(|(holder, _)| *holder == claim.visitor)?;
        let (_, in_doubt) = late.swap_remove(at);
        Some(InDoubt {
            ends: claim.in_doubt(0).ends,
            ..in_doubt
        })
    }

    /// Notes that a hold goes on as another one.
    pub(super) fn pass_late_copies_on(&self, from: &Claim, to: &Claim) {
        if Layout::of(from.kind).repeats_acquisition {
            for (holder, _) in &mut *self.late_copies.lock() {
                if *holder == from.visitor {
                    *holder = to.visitor.clone();
                }
            }
        }
    }
}

/// The outcome of a request for a count.
pub(super) enum CountReply {
    Done {
        sent: BootInstant,
        /// Until when an earlier copy may still run that got no answer.
        late: Option<i64>,
    },
    /// It was done, and too few replicas have it.
    Unreplicated {
        replica_ack: ReplicaAck,
        not_after: i64,
    },
    Refused {
        ttl: i64,
        holder: String,
        /// Until when an earlier copy may still be granted that got no answer.
        not_after: Option<i64>,
    },
    Gone(LossCause),
    Corrupt,
    Unknown {
        reason: Reason,
        not_after: i64,
    },
}

/// The answer to a request for a count.
pub(super) enum Heard {
    CountReply(CountReply),
    TooLate,
    /// The keys may have become those of another server since it was asked who it is.
    AnotherHistory,
    /// This count stands there.
    Counts(String),
}

/// Understands the reply to a request for a count, whose first copy that may have run was sent at `sent`.
pub(super) fn parse_count_reply(
    reply: &Value,
    sent: Option<BootInstant>,
) -> Result<Heard, CallError> {
    if let (Value::Int(_), Some(sent)) = (reply, sent) {
        return Ok(Heard::CountReply(CountReply::Done { sent, late: None }));
    }
    Ok(match (integer_at(reply, 0), item_at(reply, 2)) {
        (Some(0), Some(Value::Int(ttl))) => {
            let holder = item_at(reply, 3).map(text_of).unwrap_or_default();
            let holder = printable(&holder);
            Heard::CountReply(CountReply::Refused {
                ttl: *ttl,
                holder,
                not_after: None,
            })
        }
        (Some(2), Some(holder)) => Heard::CountReply(CountReply::Gone(cause_of(holder))),
        (Some(3), _) => Heard::TooLate,
        _ if is_another_history(reply) => Heard::AnotherHistory,
        (Some(4), Some(count)) => match text_of(count) {
            count if count.parse::<u32>().is_ok() => Heard::Counts(count),
            _ => Heard::CountReply(CountReply::Corrupt),
        },
        _ => {
            let reason = format!("unexpected reply {}", brief(reply));
            return Err(CallError::Server(reason));
        }
    })
}
