//! Locks within the source: almost all are from `ground/sync.rs`.

use std::fs;

use super::{below, code, root, says, sources};

/// The files that use locks of the standard library, each with its reason.
const ALLOWED: &[(&str, &str)] = &[
    ("ground/sync.rs", "it makes ours of them"),
    (
        "engine/owner/mod.rs",
        "a forked child must not wait for one that a thread of its parent holds",
    ),
];

const LOCKS: [&str; 4] = ["Mutex", "MutexGuard", "Condvar", "RwLock"];

/// Returns whether a line of code names a lock of the standard library or of parking_lot.
fn is_foreign(line: &str) -> bool {
    let is_std = line.contains("std::sync::") && LOCKS.iter().any(|lock| says(line, lock));
    is_std || line.contains("parking_lot::")
}

#[test]
fn the_source_has_one_kind_of_lock() {
    let mut found = sources();
    found.retain(|path| {
        let text = fs::read_to_string(path).expect("a source file");
        code(&text).any(|(_, line)| is_foreign(line))
    });
    let found: Vec<_> = found
        .iter()
        .map(|path| below(&root().join("src"), path))
        .collect();
    let mut allowed: Vec<_> = ALLOWED.iter().map(|(file, _)| *file).collect();
    allowed.sort_unstable();
    assert_eq!(found, allowed, "found, and those with a reason");
}
