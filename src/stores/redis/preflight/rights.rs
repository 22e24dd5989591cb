//! The rights that the user lacks.

use std::sync::Arc;
use std::time::Instant;

use crate::ground::claim::Kind;
use crate::stores::redis::calls::{Call, Limit};
use crate::stores::redis::errors::missing_in;
use crate::stores::redis::keys::CHANNEL;
use crate::stores::redis::layout::RIGHTS_WITHOUT_KEY;
use crate::stores::redis::server::Node;
use crate::stores::redis::transport::{CallError, Connection, lacks, lacks_eval, lacks_evalsha};

/// The rights that a user lacks, as far as they could be tried.
pub(super) struct Rights {
    /// The rights to commands that `Client::lock` needs and the user lacks.
    pub(super) missing: Vec<String>,
    /// Whether scripts cannot be called by their hash, which is a matter of speed.
    pub(super) sends_texts: bool,
    /// Why the rights inside scripts could not be tried.
    pub(super) untried: Option<CallError>,
    /// Why those outside could not.
    pub(super) untried_outside: Option<Untried>,
}

/// Why the rights outside of scripts could not be tried, on a connection of their own.
pub(super) enum Untried {
    NotConnected(CallError),
    /// It was made, and then it did not answer to this command.
    NotAnswered(&'static str, CallError),
}

/// Tries the rights that `Client::lock` needs.
pub(super) fn tried(
    lock: &Arc<str>,
    node: &Node,
    connection: &mut Connection,
    deadline: Instant,
) -> Result<Rights, CallError> {
    // It may have been allowed since.
    if node.pool.uses_text() && is_known(connection, &["EVALSHA", NO_SCRIPT, "0"], deadline)? {
        node.pool.note_evalsha(true);
    }
    // Which node has the slot of its key does not matter: rights are looked at first.
    let rights = Call::new(Kind::default(), |_| &RIGHTS_WITHOUT_KEY, lock, None);
    let tried = match node
        .pool
        .eval(connection, &rights, Limit::default(), deadline)
    {
        Err(fault) if !matches!(fault, CallError::Server(_)) => return Err(fault),
        tried => tried,
    };
    let fault = tried.as_ref().err().cloned();
    let mut missing = missing_in(tried, lock, CHANNEL);
    if matches!(&fault, Some(CallError::Server(text)) if lacks_eval(text)) {
        // One that was renamed says so in words of its own.
        missing = vec!["+eval".to_owned()];
    }
    let untried = fault.filter(|_| missing.is_empty());
    // Which keys and channels the user may use, only the names of its locks can tell.
    missing.retain(|right| right.starts_with('+'));
    // A script that the server knows already may be allowed where a new one is not.
    if untried.is_none()
        && !missing.iter().any(|right| right == "+eval")
        && !is_known(connection, &["EVAL", "return 1", "0"], deadline)?
    {
        missing.push("+eval".to_owned());
    }
    let outside = add_missing_outside_scripts(lock, node, &mut missing, deadline);
    Ok(Rights {
        missing,
        sends_texts: node.pool.uses_text(),
        untried,
        untried_outside: outside.err(),
    })
}

/// The hash of no script.
const NO_SCRIPT: &str = "ffffffffffffffffffffffffffffffffffffffff";

/// Whether the user may call scripts this way.
fn is_known(
    connection: &mut Connection,
    words: &[&str; 3],
    deadline: Instant,
) -> Result<bool, CallError> {
    let packed = redis::cmd(words[0]).arg(&words[1..]).get_packed_command();
    match connection.call(&packed, deadline) {
        Err(CallError::Server(text)) => Ok(!lacks_evalsha(&text) && !lacks_eval(&text)),
        Err(fault) => Err(fault),
        Ok(_) => Ok(true),
    }
}

/// Adds those of the rights to commands that no script can try.
///
/// # Errors
///
/// That of a connection of its own: one that has listened may have heard something.
fn add_missing_outside_scripts(
    lock: &Arc<str>,
    node: &Node,
    missing: &mut Vec<String>,
    deadline: Instant,
) -> Result<(), Untried> {
    let channel = CHANNEL.of(lock);
    let connected = node.pool.connector().connect(deadline);
    let mut connection = connected.map_err(Untried::NotConnected)?;
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
            Err(CallError::Server(text)) if lacks(&text, &word) => {
                missing.push(format!("+{word}"));
            }
            Err(CallError::Server(_)) | Ok(_) => {}
            Err(fault) => return Err(Untried::NotAnswered(command, fault)),
        }
    }
    Ok(())
}
