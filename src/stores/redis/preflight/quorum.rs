//! Looks that matter on the nodes of a quorum alone.

use std::time::Instant;

use redis::Value;

use crate::store::HealthWarning;
use crate::stores::redis::Redis;
use crate::stores::redis::replies::text_of;
use crate::stores::redis::transport::CallError;

/// Whether the user may throw all keys away. Nothing is tried: the server is asked what it has and whom it lets.
pub(in crate::stores::redis) fn flushes(store: &Redis, deadline: Instant) -> Option<HealthWarning> {
    const FLUSHES: [&str; 2] = ["FLUSHALL", "FLUSHDB"];
    let asked = store.topology.with("", deadline, |_, connection| {
        let mut call =
            |request: &redis::Cmd| connection.call(&request.get_packed_command(), deadline);
        // Those that were renamed are not there; one that may not look is told nothing of them.
        let known = match call(redis::cmd("COMMAND").arg("INFO").arg(&FLUSHES)) {
            Ok(Value::Array(known)) => known,
            Ok(_) | Err(CallError::Server(_)) => Vec::new(),
            Err(fault) => return Err(fault),
        };
        let user = match call(redis::cmd("ACL").arg("WHOAMI")) {
            Ok(user) => Some(text_of(&user)),
            // Before ACLs everybody may do everything.
            Err(CallError::Server(text)) if text.contains("unknown command") => None,
            Err(CallError::Server(_)) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        for (command, known) in FLUSHES.iter().zip(known) {
            if known == Value::Nil {
                continue;
            }
            let is_let = match &user {
                Some(user) => match call(redis::cmd("ACL").arg("DRYRUN").arg(user).arg(command)) {
                    Ok(answer) => answer == Value::Okay || text_of(&answer) == "OK",
                    // Some users may not ask.
                    Err(CallError::Server(text)) if text.starts_with("NOPERM") => false,
                    // Before Redis 7 nothing can be rehearsed, but the rules of the user can be read.
                    Err(CallError::Server(_)) => {
                        match call(redis::cmd("ACL").arg("GETUSER").arg(user)) {
                            Ok(Value::Array(fields)) => allow_flush(&fields, command),
                            Ok(_) | Err(CallError::Server(_)) => true,
                            Err(fault) => return Err(fault),
                        }
                    }
                    Err(fault) => return Err(fault),
                },
                None => true,
            };
            if is_let {
                return Ok(Some(*command));
            }
        }
        Ok(None)
    });
    let command = asked.ok().flatten()?;
    Some(HealthWarning::note(
        &store.topology.name(""),
        "redlock-nodes",
        format!(
            "this user may run {command}, after which the server grants again at once what is held"
        ),
        "deny it, or rename the command, for all users",
    ))
}

/// Whether the rules in a reply of `ACL GETUSER` permit a command that flushes: the last rule about it counts.
fn allow_flush(fields: &[Value], command: &str) -> bool {
    let about = [
        command,
        "@all",
        "@dangerous",
        "@keyspace",
        "@slow",
        "@write",
    ];
    let is_about = |rule: &str| about.iter().any(|it| it.eq_ignore_ascii_case(rule));
    // These rules begin with all commands or with none.
    let rules = fields.iter().map(text_of).find(|it| it.contains("@all"));
    let last = rules.as_deref().and_then(|rules| {
        rules
            .split(' ')
            .rfind(|rule| rule.get(1..).is_some_and(is_about))
    });
    last.is_none_or(|rule| rule.starts_with('+'))
}

/// Whether the server takes a new replication id when its replicas are away for long.
pub(in crate::stores::redis) fn changes_id(
    store: &Redis,
    deadline: Instant,
) -> Option<HealthWarning> {
    let asked = store.topology.with("", deadline, |_, connection| {
        let mut ask = |request: &redis::Cmd| {
            match connection.call(&request.get_packed_command(), deadline) {
                // It may not look.
                Err(CallError::Server(_)) => Ok(Value::Nil),
                answer => answer,
            }
        };
        let info = ask(redis::cmd("INFO").arg("replication"))?;
        let ttl = ask(redis::cmd("CONFIG").arg("GET").arg("repl-backlog-ttl"))?;
        Ok((text_of(&info), ttl))
    });
    let (info, ttl) = asked.ok()?;
    let Value::Array(pair) = ttl else {
        return None;
    };
    let ttl = pair.get(1).map(text_of)?;
    let has_backlog = info
        .lines()
        .any(|line| line.trim() == "repl_backlog_active:1");
    (has_backlog && ttl != "0").then(|| {
        HealthWarning::note(
            &store.topology.name(""),
            "redlock-nodes",
            format!(
                "when its replicas are away for {ttl} s it takes a new replication id, and has no vote for one max_lease \
                 after that"
            ),
            "set repl-backlog-ttl 0",
        )
    })
}
