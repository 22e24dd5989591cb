use std::process;
use std::sync::LazyLock;

use forkguard::atfork::Guard;

/// The process id at the first call, and a detector of forks. The stored id saves a system call at each later call.
static FIRST: LazyLock<Option<(Guard, u32)>> =
    LazyLock::new(|| Some((Guard::try_new().ok()?, process::id())));

pub(crate) fn id() -> u32 {
    match &*FIRST {
        Some((guard, id)) if !guard.clone().detected_fork() => *id,
        _ => process::id(),
    }
}
