//! A look at the server's settings for what endangers locks.

use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::ground::claim::Kind;
use crate::ground::error::Result;
use crate::store::HealthWarning;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Call, Limit};
use crate::stores::redis::errors::missing_in;
use crate::stores::redis::keys::CHANNEL;
use crate::stores::redis::layout::RIGHTS_WITHOUT_KEY;
use crate::stores::redis::replies::text_of;
use crate::stores::redis::server::Node;
use crate::stores::redis::transport::{CallError, Connection};

/// Of the servers before this, some have no TIME in scripts that write.
const OLDEST_MAJOR: u32 = 5;

/// The answers of one node.
struct Look {
    /// Its settings, or why they were not told.
    info: Result<Value, CallError>,
    /// The rights to commands that the user lacks.
    missing: Vec<String>,
}

pub(super) fn check(store: &Redis, deadline: Instant) -> Result<Vec<HealthWarning>> {
    let lock: Arc<str> = "redlatch:preflight".into();
    let looks = store.topology.each(deadline, |node, connection, deadline| {
        look(&lock, node, connection, deadline)
    });
    let mut warnings = Vec::new();
    let is_one = looks.len() == 1;
    for (node, look) in looks {
        let Look { info, missing } = match look {
            Err(fault) if is_one => return Err(store.error(&lock, fault, deadline)),
            Err(fault) => Look {
                info: Err(fault),
                missing: Vec::new(),
            },
            Ok(look) => look,
        };
        let mut messages = match info {
            Ok(info) => findings(&text_of(&info)),
            // It may not look; that alone is no danger.
            Err(CallError::Server(text))
                if text.starts_with("NOPERM") && text.contains("'info'") =>
            {
                vec![
                    "the user may not run INFO (+info), so the server's settings were not looked at"
                        .to_owned(),
                ]
            }
            Err(fault) if is_one => return Err(store.error(&lock, fault, deadline)),
            Err(fault) => vec![format!("it could not be asked: {}", fault.into_reason())],
        };
        if !missing.is_empty() {
            let missing = missing.join(" ");
            messages.push(format!("the user lacks rights that locks need: {missing}"));
        }
        warnings.extend(messages.into_iter().map(|message| HealthWarning {
            node: Arc::clone(&node),
            message,
        }));
    }
    Ok(warnings)
}

fn look(
    lock: &Arc<str>,
    node: &Node,
    connection: &mut Connection,
    deadline: Instant,
) -> Result<Look, CallError> {
    let info = match connection.call(&redis::cmd("INFO").get_packed_command(), deadline) {
        Err(fault) if !matches!(fault, CallError::Server(_)) => return Err(fault),
        info => info,
    };
    // Which node has the slot of its key does not matter: rights are looked at first.
    let rights = Call::new(Kind::default(), |_| &RIGHTS_WITHOUT_KEY, lock, None);
    let tried = match node
        .pool
        .eval(connection, &rights, Limit::default(), deadline)
    {
        Err(fault) if !matches!(fault, CallError::Server(_)) => return Err(fault),
        tried => tried,
    };
    let mut missing = missing_in(tried, lock, CHANNEL);
    missing.extend(missing_outside_scripts(node, &CHANNEL.of(lock), deadline)?);
    // Which keys and channels the user may use, only the names of its locks can tell.
    missing.retain(|right| right.starts_with('+'));
    Ok(Look { info, missing })
}

/// Whether the user may throw all keys away. Nothing is tried: the server is asked what it has and whom it lets.
pub(super) fn flushes(store: &Redis, deadline: Instant) -> Option<HealthWarning> {
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
                    // Some have no rehearsal, and some users may not ask for one.
                    Err(CallError::Server(text)) => !text.starts_with("NOPERM"),
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
    Some(HealthWarning {
        node: store.topology.name(""),
        message: format!(
            "this user may run {command}, after which the server grants again at once what is held; deny it, or rename \
             the command, for all users"
        ),
    })
}

/// Whether the server takes a new replication id when its replicas are away for long.
pub(super) fn changes_id(store: &Redis, deadline: Instant) -> Option<HealthWarning> {
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
    (has_backlog && ttl != "0").then(|| HealthWarning {
        node: store.topology.name(""),
        message: format!(
            "when its replicas are away for {ttl} s it takes a new replication id, and has no vote for one max_lease \
             after that; set repl-backlog-ttl 0"
        ),
    })
}

/// Returns the missing ones of the rights to commands that no script can try.
fn missing_outside_scripts(
    node: &Node,
    channel: &str,
    deadline: Instant,
) -> Result<Vec<String>, CallError> {
    // A connection that has listened may have heard something, so it is one of its own.
    let mut connection = node.pool.connector().connect(deadline)?;
    let mut missing = Vec::new();
    if node.pool.uses_text() {
        missing.push("+evalsha".to_owned());
    }
    let commands = if node.pool.is_sharded() {
        ["SSUBSCRIBE", "SUNSUBSCRIBE"]
    } else {
        ["SUBSCRIBE", "UNSUBSCRIBE"]
    };
    for command in commands {
        let mut packed = redis::cmd(command);
        packed.arg(channel);
        let word = command.to_ascii_lowercase();
        match connection.call(&packed.get_packed_command(), deadline) {
            Err(CallError::Server(text)) if text.contains(&format!("'{word}'")) => {
                missing.push(format!("+{word}"));
            }
            Err(CallError::Server(_)) | Ok(_) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(missing)
}

fn findings(info: &str) -> Vec<String> {
    let field = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let mut messages = Vec::new();
    if let Some(version) = field("redis_version") {
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major < OLDEST_MAJOR) {
            messages.push(format!(
                "its version is {version}; locks need Redis {OLDEST_MAJOR} or later"
            ));
        }
    }
    if field("role").is_some_and(|role| role != "master") {
        messages
            .push("it is a replica, and takes no locks; use the address of the master".to_owned());
    }
    if let Some(policy) = field("maxmemory_policy") {
        let is_bounded = field("maxmemory").is_some_and(|bytes| bytes != "0");
        if is_bounded && policy != "noeviction" {
            messages.push(format!(
                "maxmemory-policy is {policy}: when memory is full it may evict locks that are held; \
                 use noeviction, or keep locks on a server of their own"
            ));
        }
    }
    let has_replicas = field("connected_slaves").is_some_and(|count| count != "0");
    // `min_slaves_good_slaves` stands in INFO only when min-replicas-to-write is above 0.
    if has_replicas && field("min_slaves_good_slaves").is_none() {
        messages.push(
            "it has replicas but min-replicas-to-write is 0: a master that is cut off goes on granting locks \
             which a failover has given to others"
                .to_owned(),
        );
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::redis::drawn::{ERRORS, altered, changed, draws};
    use crate::stores::redis::replies::plain;

    #[test]
    fn finds_what_endangers_locks() {
        let quiet = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n";
        assert_eq!(findings(quiet), Vec::<String>::new());
        let loud = "redis_version:4.0.1\r\nrole:slave\r\nmaxmemory:100\r\nmaxmemory_policy:volatile-lru\r\nconnected_slaves:2\r\n";
        assert_eq!(findings(loud).len(), 4);
    }

    #[test]
    fn drawn_settings_and_refusals_are_read() {
        let info = b"redis_version:4.0.1\r\nrole:slave\r\nmaxmemory:100\r\nmaxmemory_policy:volatile-lru\r\nconnected_slaves:2\r\n";
        draws("preflight", |draw| {
            let text = changed(draw, &[info]);
            assert!(findings(&String::from_utf8_lossy(&text)).len() <= 4);
            let text = changed(draw, &ERRORS);
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(plain(&text).len() <= text.len());
            let missing = missing_in(Err(CallError::Server(text)), "orders", CHANNEL);
            assert!(missing.iter().all(|right| right.starts_with(['+', '~'])));
            let refused = altered(draw, &[b"*3\r\n$4\r\nhget\r\n$1\r\n~\r\n$1\r\n&\r\n"]);
            drop(missing_in(Ok(refused), "orders", CHANNEL));
        });
    }
}
