//! The answers of a stub to the question who it is, so that it has a vote in a quorum.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::{Request, Says, bulk};
use crate::ground::clock::BootInstant;
use crate::stores::quorum::quarantine::{Identity, Membership, NodeHandle};

/// The answer of a master, in this run of it, to the question who it is; `None` to all else.
pub(crate) fn identity(run: &str, request: &Request) -> Option<Says> {
    if request.is("INFO server") {
        return Says::text(&format!("run_id:{run}\r\nuptime_in_seconds:1000\r\n"));
    }
    if request.is("INFO replication") {
        return Says::text(&format!(
            "role:master\r\nmaster_replid:history-of-{run}\r\n"
        ));
    }
    let is_question = request.is("INFO persistence") || request.is("CONFIG GET");
    is_question.then(|| Says::Reply(Value::Array(vec![bulk("appendfsync"), bulk("no")])))
}

/// The right to vote of a node that is trusted when it is new.
pub(crate) fn handle() -> NodeHandle {
    let membership = Membership::new(3, Duration::from_secs(30), true);
    NodeHandle::new(&Arc::new(membership), 0, false)
}

/// Has the node be another server from now on, so that what was known of the one before is outdated.
pub(crate) fn outdate(handle: &NodeHandle, run: &str) {
    let _ = handle.admit(&seen(run, &format!("history-of-{run}")));
}

/// The identity of a master that is seen now.
pub(crate) fn seen(run: &str, history: &str) -> Identity {
    let now = BootInstant::now();
    Identity {
        run: run.into(),
        history: history.into(),
        has_followed: false,
        follows: false,
        is_in_cluster: false,
        age: None,
        remembers: false,
        asked: now,
        told: now,
    }
}
