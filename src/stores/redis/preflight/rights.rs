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

/// Returns the rights to commands that the scripts of `Client::lock` need and the user lacks.
pub(super) fn missing_in_scripts(
    lock: &Arc<str>,
    node: &Node,
    connection: &mut Connection,
    deadline: Instant,
) -> Result<Vec<String>, CallError> {
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
    // Which keys and channels the user may use, only the names of its locks can tell.
    missing.retain(|right| right.starts_with('+'));
    if node.pool.uses_text() {
        missing.push("+evalsha".to_owned());
    }
    Ok(missing)
}

/// Adds those of the rights to commands that no script can try.
///
/// # Errors
///
/// That of a connection of its own: one that has listened may have heard something.
pub(super) fn add_missing_outside_scripts(
    lock: &Arc<str>,
    node: &Node,
    missing: &mut Vec<String>,
    deadline: Instant,
) -> Result<(), CallError> {
    let channel = CHANNEL.of(lock);
    let mut connection = node.pool.connector().connect(deadline)?;
    let commands = if node.pool.is_sharded() {
        ["SSUBSCRIBE", "SUNSUBSCRIBE"]
    } else {
        ["SUBSCRIBE", "UNSUBSCRIBE"]
    };
    for command in commands {
        let mut packed = redis::cmd(command);
        packed.arg(&channel);
        let word = command.to_ascii_lowercase();
        match connection.call(&packed.get_packed_command(), deadline) {
            Err(CallError::Server(text)) if text.contains(&format!("'{word}'")) => {
                missing.push(format!("+{word}"));
            }
            Err(CallError::Server(_)) | Ok(_) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}
