use std::process;
use std::sync::LazyLock;

use forkguard::atfork::Guard;

/// The process id at the first call, and a detector of forks. The stored id saves a system call at each later call.
static FIRST: LazyLock<Option<(Guard, u32)>> =
    LazyLock::new(|| Some((Guard::try_new().ok()?, process::id())));

/// Whether this process was forked after its parent had tried to create a client.
///
/// In such a child, `parking_lot` still lists threads of the parent as parked. A thread of the child can get the memory
/// of one of these threads, and then wait forever.
pub(crate) fn is_forked() -> bool {
    FIRST
        .as_ref()
        .is_some_and(|(guard, _)| guard.clone().detected_fork())
}

pub(crate) fn id() -> u32 {
    match &*FIRST {
        Some((_, id)) if !is_forked() => *id,
        _ => process::id(),
    }
}
