//! The `WAIT` command after a request.

use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::time;
use crate::stores::redis::transport::{CallError, brief};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Replication {
    pub(crate) replicas: u32,
    pub(crate) timeout: Duration,
}

/// With the default `hz`, a server checks for expired `WAIT`s every 100 ms, so the reply may be late by 100 ms.
const LATE_ANSWER: Duration = Duration::from_millis(120);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum ReplicaAck {
    Enough,
    TooFew(u32),
    #[default]
    NoAnswer,
    Refused(String),
}

impl Replication {
    /// Encodes a `WAIT` whose timeout leaves time to undo the writes before `deadline`.
    pub(super) fn question(self, deadline: Instant) -> Vec<u8> {
        let left = deadline.saturating_duration_since(time::now());
        let left = left.saturating_sub(LATE_ANSWER).max(left / 3);
        // A timeout of 0 would never expire.
        let timeout = self.timeout.min(left).as_millis().max(1);
        let timeout = u64::try_from(timeout).unwrap_or(u64::MAX);
        let mut question = redis::cmd("WAIT");
        question.arg(self.replicas).arg(timeout);
        question.get_packed_command()
    }
}

impl ReplicaAck {
    pub(super) fn of(answer: Result<Value, CallError>, wanted: Replication) -> ReplicaAck {
        match answer {
            Ok(Value::Int(count)) => match u32::try_from(count).unwrap_or_default() {
                count if count >= wanted.replicas => ReplicaAck::Enough,
                count => ReplicaAck::TooFew(count),
            },
            Ok(other) => ReplicaAck::Refused(brief(&other)),
            Err(CallError::Server(text)) => ReplicaAck::Refused(text),
            Err(_) => ReplicaAck::NoAnswer,
        }
    }

    /// Returns why a request does not count as replicated; `None` if enough replicas acknowledged it.
    pub(super) fn flaw(&self, wanted: Replication) -> Option<String> {
        let wanted = wanted.replicas;
        match self {
            ReplicaAck::Enough => None,
            ReplicaAck::TooFew(count) => {
                Some(format!("{count} of {wanted} replicas acknowledged it"))
            }
            ReplicaAck::NoAnswer => {
                Some(format!("WAIT for {wanted} replicas got no reply in time"))
            }
            ReplicaAck::Refused(text) => Some(format!("WAIT was refused: {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledging_replicas_are_counted() {
        let wanted = Replication {
            replicas: 2,
            timeout: Duration::from_millis(50),
        };
        let of = |answer| ReplicaAck::of(answer, wanted);
        assert_eq!(of(Ok(Value::Int(3))), ReplicaAck::Enough);
        assert_eq!(of(Ok(Value::Int(2))).flaw(wanted), None);
        assert_eq!(of(Ok(Value::Int(1))), ReplicaAck::TooFew(1));
        assert_eq!(of(Ok(Value::Int(-1))), ReplicaAck::TooFew(0));
        assert!(matches!(
            of(Err(CallError::Server("ERR".to_owned()))),
            ReplicaAck::Refused(_)
        ));
        let late = CallError::NoReply {
            reason: "".into(),
            timed_out: true,
        };
        assert_eq!(of(Err(late)), ReplicaAck::NoAnswer);
    }

    #[test]
    fn wait_always_has_a_timeout() {
        let wanted = Replication {
            replicas: 1,
            timeout: Duration::from_millis(50),
        };
        let past = wanted.question(Instant::now());
        assert!(past.ends_with(b"\r\n1\r\n"), "{past:?}");
    }

    /// Returns the timeout, in ms, that `WAIT` gets if the client has `left` ms until its deadline.
    fn waited_in(left: u64) -> u64 {
        let patient = Replication {
            replicas: 2,
            timeout: Duration::from_secs(3600),
        };
        let question = patient.question(Instant::now() + Duration::from_millis(left));
        let text = String::from_utf8(question).unwrap_or_default();
        let words: Vec<_> = text.split("\r\n").collect();
        assert_eq!(words[..5], ["*3", "$4", "WAIT", "$1", "2"]);
        words[6].parse().unwrap_or_default()
    }

    #[test]
    fn wait_leaves_time_to_undo() {
        let most = waited_in(100_000);
        assert!(most <= 100_000 - 120 && most > 80_000, "{most}");
        // With little time left, `WAIT` gets a third of it.
        assert!(waited_in(120) <= 40);
        assert!(waited_in(120_000_000) <= 3_600_000);
    }

    #[test]
    fn a_flaw_contains_the_reply_to_wait() {
        let wanted = Replication {
            replicas: 2,
            timeout: Duration::from_millis(50),
        };
        let flaw = |replica_ack: ReplicaAck| replica_ack.flaw(wanted).unwrap_or_default();
        assert_eq!(
            flaw(ReplicaAck::TooFew(1)),
            "1 of 2 replicas acknowledged it"
        );
        assert_eq!(
            flaw(ReplicaAck::NoAnswer),
            "WAIT for 2 replicas got no reply in time"
        );
        assert_eq!(
            flaw(ReplicaAck::Refused("ERR no".to_owned())),
            "WAIT was refused: ERR no"
        );
    }
}
