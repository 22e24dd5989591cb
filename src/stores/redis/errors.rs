//! Maps error replies and connection faults to errors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::claim::VisitorId;
use crate::ground::error::{Error, Reason, Result};
use crate::ground::time;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Attempts, Call};
use crate::stores::redis::keys::Key;
use crate::stores::redis::kinds::{Layout, RIGHTS};
use crate::stores::redis::replies::text_of;
use crate::stores::redis::transport::{
    CLUSTER_NODE, CallError, REFUSED_CREDENTIALS, WRONG_KIND, lacks_eval, plain,
};
use crate::stores::redis::wait_replicas::ReplicaAck;

/// The maximum time that the query for missing rights delays an error.
const LONGEST_QUESTION: Duration = Duration::from_millis(500);

impl Redis {
    /// If the user lacks rights, queries the missing rights. If the request may have changed something, use `unknown`.
    pub(super) fn error_of(&self, call: &Call<'_>, fault: CallError, deadline: Instant) -> Error {
        let Call { layout, lock, .. } = *call;
        self.worded(self.topology.name(lock), lock, fault, |text| {
            let missing = self.missing_rights(layout, lock, deadline);
            match missing.is_empty() {
                true => named_in(text, layout.keys_beside(lock)),
                false => missing,
            }
        })
    }

    /// Like [`Redis::error_of`], but sends no query for missing rights. `keys` are the keys of the request.
    pub(super) fn error_about(
        &self,
        node: Arc<str>,
        lock: &Arc<str>,
        keys: &[&str],
        fault: CallError,
    ) -> Error {
        let fault = match fault {
            CallError::Server(text)
                if matches!(class_of(&text), ReplyClass::Permission)
                    && text.contains("key")
                    && !keys.is_empty() =>
            {
                CallError::Server(format!("{} (of {})", plain(&text), keys.join(", ")))
            }
            fault => fault,
        };
        // If the request has several keys, the server does not report which key it refused.
        let alone = keys.iter().filter(|_| keys.len() == 1);
        self.worded(node, lock, fault, |text| {
            named_in(text, alone.map(|key| (*key).to_owned()).collect())
        })
    }

    fn worded(
        &self,
        node: Arc<str>,
        lock: &Arc<str>,
        fault: CallError,
        missing: impl FnOnce(&str) -> Vec<String>,
    ) -> Error {
        let lock = Arc::clone(lock);
        match fault {
            CallError::Exhausted(connections) => Error::Exhausted {
                lock,
                node,
                connections,
            },
            CallError::NotSent(reason) | CallError::NoReply { reason, .. } => {
                Error::unreachable(lock, node, reason)
            }
            CallError::Untrusted(reason) => Error::untrusted(lock, node, reason),
            CallError::Unfit(reason) => Error::Unavailable { lock, node, reason },
            // The server has no EVAL command, so no additional right would help.
            CallError::Server(text) if lacks_eval(&text) && !text.starts_with("NOPERM") => {
                let reason = format!(
                    "{node} runs no scripts ({}), and locks need EVAL; without EVAL, Client::token_lock works on \
                        Valkey 9.0 or later (DELIFEQ) and Redis 8.4 or later (SET and DELEX with IFEQ)",
                    plain(&text)
                );
                Error::Unsupported { lock, reason }
            }
            CallError::Server(text) => {
                let mut reason = plain(&text);
                if text.starts_with("READONLY") && !self.topology.can_fail_over() {
                    reason += "; it is a replica: open its master, or use Builder::master_replicas (--replicas) or \
                        Builder::sentinel (--sentinel)";
                }
                match class_of(&text) {
                    ReplyClass::Permission => Error::Permission {
                        lock,
                        node,
                        reason,
                        missing: missing(&text),
                    },
                    ReplyClass::WrongType => Error::WrongType { lock, node, reason },
                    ReplyClass::Misplaced => {
                        let why = text.split_once(WRONG_KIND);
                        let why = why.map_or(CLUSTER_NODE, |(_, why)| why);
                        Error::config("the address of the server", format!("{node}: {why}"))
                    }
                    ReplyClass::Passing => Error::Unavailable { lock, node, reason },
                    ReplyClass::Unknown => Error::Unexpected { lock, node, reason },
                }
            }
        }
    }

    /// Returns ACL rules. Empty if the query gets no usable reply.
    fn missing_rights(
        &self,
        layout: &'static Layout,
        lock: &Arc<str>,
        deadline: Instant,
    ) -> Vec<String> {
        let deadline = deadline.min(time::now() + LONGEST_QUESTION);
        let mut call = Call::in_layout(layout, &RIGHTS, lock, None);
        let reply = self.ask(&mut call, deadline, &mut Attempts::new(deadline));
        missing_in(reply, lock, layout.channel)
    }

    pub(super) fn unknown(
        &self,
        lock: &Arc<str>,
        visitor: Option<&VisitorId>,
        operation: &'static str,
        reason: Reason,
    ) -> Error {
        Error::unknown(lock, self.topology.name(lock), operation, visitor, reason)
    }

    pub(super) fn corrupt(&self, lock: &Arc<str>, visitor: &VisitorId) -> Error {
        Error::CorruptCount {
            lock: Arc::clone(lock),
            node: self.topology.name(lock),
            visitor: visitor.clone(),
        }
    }

    /// Why the outcome is unknown: the master executed the request, but a failover may undo it.
    pub(super) fn half_done(&self, replica_ack: &ReplicaAck) -> Reason {
        let flaw = self.replication.and_then(|wanted| replica_ack.flaw(wanted));
        format!("the master executed it, but {}", flaw.unwrap_or_default()).into()
    }

    pub(super) fn unreplicated(&self, lock: &Arc<str>, replica_ack: ReplicaAck) -> Error {
        let (lock, node) = (Arc::clone(lock), self.topology.name(lock));
        let wanted = self.replication.map_or(0, |wanted| wanted.replicas);
        let replica_ack = match replica_ack {
            ReplicaAck::Refused(reason) => {
                return match class_of(&reason) {
                    _ if reason.to_ascii_lowercase().contains("unknown command") => {
                        let reason = format!(
                            "wait_replicas needs the command WAIT, which {node} does not have: {reason}"
                        );
                        Error::Unsupported { lock, reason }
                    }
                    ReplyClass::Permission => Error::Permission {
                        lock,
                        node,
                        reason,
                        missing: vec!["+wait".to_owned()],
                    },
                    _ => Error::Unavailable { lock, node, reason },
                };
            }
            ReplicaAck::TooFew(count) => count,
            ReplicaAck::Enough | ReplicaAck::NoAnswer => 0,
        };
        Error::NotReplicated {
            lock,
            node,
            acknowledged: replica_ack,
            wanted,
        }
    }
}

pub(super) enum ReplyClass {
    Permission,
    WrongType,
    /// The server is of another kind than the settings say, for example a Cluster node.
    Misplaced,
    Passing,
    Unknown,
}

pub(super) fn class_of(text: &str) -> ReplyClass {
    const PERMISSION: [&str; 10] = [
        // Redis 7.2 and later, and Valkey, reply this if a script lacks a right.
        "ACL failure in script",
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "DENIED",
        "can't run this command",
        "can't access at least one of the keys",
        "invalid password",
        "without any password configured",
        "nknown Redis command called from",
    ];
    const PASSING: [&str; 13] = [
        "LOADING",
        "BUSY",
        "READONLY",
        "MASTERDOWN",
        "NOREPLICAS",
        "MISCONF",
        "OOM",
        "TRYAGAIN",
        "CLUSTERDOWN",
        // Redis replies this if a script deletes a key and then reads it while the key's slot moves.
        "non local key",
        "max number of clients",
        "UNBLOCKED",
        // Redis replies this to a `WAIT` after it became a replica.
        "WAIT cannot be used with replica",
    ];
    if text.contains(REFUSED_CREDENTIALS) {
        // The credentials may be changing, so waits continue.
        ReplyClass::Passing
    } else if text.starts_with("MOVED ") || text.contains(WRONG_KIND) {
        ReplyClass::Misplaced
    } else if text.contains("WRONGTYPE") {
        ReplyClass::WrongType
    } else if PERMISSION.iter().any(|sign| text.contains(sign))
        || text.to_ascii_lowercase().contains("unknown command")
    {
        ReplyClass::Permission
    } else if PASSING.iter().any(|sign| text.contains(sign)) {
        ReplyClass::Passing
    } else {
        ReplyClass::Unknown
    }
}

pub(super) fn missing_in(reply: Result<Value, CallError>, lock: &str, channel: Key) -> Vec<String> {
    let refused = match reply {
        Ok(Value::Array(refused)) => refused,
        // The query for missing rights was refused, because it needs the rights to EVAL and to the key.
        Err(CallError::Server(text)) => return named_in(&text, vec![lock.to_owned()]),
        _ => return Vec::new(),
    };
    let mut missing: Vec<String> = refused
        .iter()
        .map(|refused| match text_of(refused).as_str() {
            key if key.starts_with('~') => key.to_owned(),
            "&" => format!("&{}", channel.of(lock)),
            command => format!("+{command}"),
        })
        .collect();
    missing.dedup();
    missing
}

/// Returns ACL rules. A refusal of a key does not say which key, so all `keys` are returned.
fn named_in(text: &str, keys: Vec<String>) -> Vec<String> {
    let command = text.split_once("to run the '");
    if let Some((command, _)) = command.and_then(|(_, rest)| rest.split_once('\'')) {
        return vec![format!("+{command}")];
    }
    match text.starts_with("NOPERM") && text.contains("key") {
        true => keys.iter().map(|key| format!("~{key}")).collect(),
        false => Vec::new(),
    }
}

/// Whether a single key may have caused this refusal of a batch of renewals.
pub(super) fn may_be_for_one_key(text: &str) -> bool {
    match class_of(text) {
        ReplyClass::Passing => false,
        ReplyClass::Permission => text.contains("key"),
        ReplyClass::WrongType | ReplyClass::Misplaced | ReplyClass::Unknown => true,
    }
}
