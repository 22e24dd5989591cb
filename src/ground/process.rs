//! The number of this process.

use std::process;
use std::sync::LazyLock;

use forkguard::atfork::Guard;

/// The number that the process had when it was asked for first, and what tells whether this is a fork of it. To ask the
/// kernel costs a system call.
static FIRST: LazyLock<Option<(Guard, u32)>> =
    LazyLock::new(|| Some((Guard::try_new().ok()?, process::id())));

/// Returns the number of this process, another one in a forked child.
pub(crate) fn id() -> u32 {
    match &*FIRST {
        Some((guard, id)) if !guard.clone().detected_fork() => *id,
        _ => process::id(),
    }
}
