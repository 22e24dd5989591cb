//! Reports missing rights. `kinds/rights.lua` has the commands that each kind of lock needs.

use std::sync::Arc;
use std::time::Instant;

use crate::ground::claim::Kind;
use crate::stores::redis::calls::{Call, Limit};
use crate::stores::redis::errors::missing_in;
use crate::stores::redis::findings::Findings;
use crate::stores::redis::keys::CHANNEL;
use crate::stores::redis::kinds::{RIGHTS, RIGHTS_WITHOUT_KEY};
use crate::stores::redis::server::Node;
use crate::stores::redis::transport::{
    CallError, Connection, encode, lacks, lacks_eval, lacks_evalsha,
};

/// Returns `None` if locks cannot be acquired, renewed or released without this right.
pub(super) fn effect_of_lacking(right: &str) -> Option<&'static str> {
    Some(match right {
        "+subscribe" | "+ssubscribe" => "no message wakes its waiters, so they poll once a second",
        "+publish" | "+spublish" => {
            "its unlock wakes no other process, so waiters there poll once a second"
        }
        "+unsubscribe" | "+sunsubscribe" => "its subscriptions accumulate",
        "+hkeys" => "an attempt to acquire a held lock returns an error",
        "+hlen" => "an attempt on a large hash that is not a lock is slow",
        _ => return None,
    })
}

const CODE: &str = "rights";

pub(super) fn find(
    found: &mut Findings,
    lock: &Arc<str>,
    node: &Node,
    connection: &mut Connection,
    deadline: Instant,
) -> Result<(), CallError> {
    // EVALSHA was refused earlier, but the user may have got the right since.
    let by_hash = ["EVALSHA", NO_SCRIPT, "0"];
    if node.pool.uses_text() && refused(connection, &by_hash, deadline)?.is_none() {
        node.pool.note_evalsha(true);
    }
    // In a Cluster, any node can run this test, because a server checks rights before slots.
    let rights = Call::new(Kind::default(), |_| &RIGHTS_WITHOUT_KEY, lock, None);
    let mut try_by =
        |call: &Call<'_>| match node.pool.eval(connection, call, Limit::default(), deadline) {
            Err(fault) if !matches!(fault, CallError::Server(_)) => Err(fault),
            tried => Ok(tried.map(|(reply, _)| reply)),
        };
    let mut tried = try_by(&rights)?;
    // Some proxies and services run only scripts that declare a key, so the test is repeated with a key.
    if matches!(&tried, Err(CallError::Server(text)) if !text.contains("permission") && !lacks_eval(text))
    {
        tried = try_by(&Call::new(Kind::default(), |_| &RIGHTS, lock, None))?;
    }
    let fault = tried.as_ref().err().cloned();
    if fault.is_none() {
        // The server runs scripts now, so the commands that replaced scripts are no longer used.
        node.pool.note_dialect(None);
    }
    let mut missing = missing_in(tried, lock, CHANNEL);
    let eval = match &fault {
        Some(CallError::Server(text)) if lacks_eval(text) => Some(text.clone()),
        Some(_) if missing.is_empty() => None,
        // EVALSHA of a cached script needs no right to EVAL, so this right is tested separately.
        _ => refused(connection, &["EVAL", "return 1", "0"], deadline)?,
    };
    let untried = fault.filter(|_| missing.is_empty() && eval.is_none());
    // The rights to keys and channels depend on the names of the locks, which are unknown here.
    missing.retain(|right| right.starts_with('+') && right != "+eval");
    let is_right = |text: &String| text.starts_with("NOPERM");
    if eval.as_ref().is_some_and(is_right) {
        missing.push("+eval".to_owned());
    }
    let scripting_is_off = eval.is_some_and(|it| !is_right(&it));
    let has_commands = scripting_is_off && node.pool.find_dialect(connection, lock, deadline)?;
    let outside = add_missing_outside_scripts(lock, node, &mut missing, deadline);
    let is_fine = missing.is_empty() && !scripting_is_off && untried.is_none() && outside.is_ok();
    let needed = missing.iter().filter(|it| effect_of_lacking(it).is_none());
    let needed: Vec<&str> = needed.map(String::as_str).collect();
    if !needed.is_empty() {
        found.danger(
            CODE,
            format!("the user lacks rights that locks need: {}", needed.join(" ")),
            "grant them with ACL SETUSER, and rename none of these commands; docs/rights.md lists what each lock \
                needs",
        );
    }
    for right in &missing {
        if let Some(effect) = effect_of_lacking(right) {
            let message = format!("the user lacks {right}: {effect}");
            let advice = "grant it with ACL SETUSER, and do not rename the command; locks can be acquired without it";
            found.note(CODE, message, advice);
        }
    }
    if scripting_is_off {
        let what = match has_commands {
            true => "only token locks",
            false => "no lock",
        };
        let message =
            format!("scripting is off: the server has no EVAL, so {what} can be acquired");
        let advice =
            "remove the rename-command for EVAL, or keep locks on a server that runs scripts";
        found.danger("state", message, advice);
    }
    if is_fine {
        found.ok(CODE, "all commands of Client::lock are allowed");
    }
    if node.pool.uses_text() {
        let message = "EVALSHA is refused, so each request carries the text of its script";
        let advice = "allow it (+evalsha), or do not rename EVALSHA; locks work without it";
        found.note(CODE, message, advice);
    }
    match &untried {
        None => {}
        Some(fault) if fault.is_passing() => found.danger(
            "state",
            format!("it refuses lock requests now: {}", fault.reason()),
            "wait until it accepts them; INFO persistence, INFO replication and CLUSTER INFO show the cause",
        ),
        Some(fault) => found.note(
            CODE,
            format!("the user's rights could not be tested: {}", fault.reason()),
            "acquire a lock to see whether the user may",
        ),
    }
    match outside {
        Ok(()) => {}
        Err((None, fault)) => found.unreachable(&fault, Some("connection")),
        Err((Some(command), fault)) => found.note(
            "connection",
            format!("{command} got no reply: {}", fault.reason()),
            "check again, with a longer command_timeout if the server is far away; a proxy in between may not \
                support the command, and then waiters poll about once a second",
        ),
    }
    Ok(())
}

const NO_SCRIPT: &str = "ffffffffffffffffffffffffffffffffffffffff";

fn refused(
    connection: &mut Connection,
    words: &[&str; 3],
    deadline: Instant,
) -> Result<Option<String>, CallError> {
    match connection.call(&encode(words), deadline) {
        Err(CallError::Server(text)) => {
            Ok(Some(text).filter(|text| lacks_evalsha(text) || lacks_eval(text)))
        }
        Err(fault) => Err(fault),
        Ok(_) => Ok(None),
    }
}

/// Subscribes on a new connection. An error contains the command that got no reply, or `None` if connecting failed.
fn add_missing_outside_scripts(
    lock: &Arc<str>,
    node: &Node,
    missing: &mut Vec<String>,
    deadline: Instant,
) -> Result<(), (Option<&'static str>, CallError)> {
    let channel = CHANNEL.of(lock);
    let connected = node.pool.connector.connect(deadline);
    let mut connection = connected.map_err(|fault| (None, fault))?;
    let commands = match node.pool.is_sharded {
        true => ["SSUBSCRIBE", "SUNSUBSCRIBE"],
        false => ["SUBSCRIBE", "UNSUBSCRIBE"],
    };
    for command in commands {
        let word = command.to_ascii_lowercase();
        match connection.call(&encode(&[command, &channel]), deadline) {
            Err(CallError::Server(text)) if lacks(&text, &word) => {
                missing.push(format!("+{word}"));
            }
            Err(CallError::Server(_)) | Ok(_) => {}
            Err(fault) => return Err((Some(command), fault)),
        }
    }
    Ok(())
}
