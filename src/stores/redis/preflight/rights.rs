//! The rights that the user lacks.

use std::sync::Arc;
use std::time::Instant;

use crate::ground::claim::Kind;
use crate::stores::redis::calls::{Call, Limit};
use crate::stores::redis::errors::missing_in;
use crate::stores::redis::keys::CHANNEL;
use crate::stores::redis::layout::RIGHTS_WITHOUT_KEY;
use crate::stores::redis::server::Node;
use crate::stores::redis::transport::{CallError, Connection};

/// Returns the rights to commands that `Client::lock` needs and the user lacks. The inner error is that of another
/// connection, and so says nothing of this one.
pub(super) fn missing(
    lock: &Arc<str>,
    node: &Node,
    connection: &mut Connection,
    deadline: Instant,
) -> Result<Result<Vec<String>, CallError>, CallError> {
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
    match missing_outside_scripts(node, &CHANNEL.of(lock), deadline) {
        Ok(more) => missing.extend(more),
        Err(fault) => return Ok(Err(fault)),
    }
    // Which keys and channels the user may use, only the names of its locks can tell.
    missing.retain(|right| right.starts_with('+'));
    Ok(Ok(missing))
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
