//! The locks of the source itself: all but a few are those of `ground/sync.rs`.

use std::fs;

use super::layout::paths;
use super::{below, root, sources};

/// The files that use locks of the standard library, each with its reason.
const ALLOWED: &[(&str, &str)] = &[
    ("ground/sync.rs", "it makes ours of them"),
    (
        "engine/owner/registry.rs",
        "a forked child must not wait for one that a thread of its parent holds",
    ),
];

const LOCKS: [&str; 4] = ["Mutex", "MutexGuard", "Condvar", "RwLock"];

/// Whether a path in the code names a lock of the standard library or of parking_lot.
fn is_foreign(path: &[String]) -> bool {
    let path: Vec<_> = path.iter().map(String::as_str).collect();
    match path[..] {
        ["std", "sync", lock, ..] => LOCKS.contains(&lock),
        ["parking_lot", ..] => true,
        _ => false,
    }
}

#[test]
fn the_source_has_one_kind_of_lock() {
    let mut found: Vec<_> = sources()
        .into_iter()
        .filter(|path| {
            let text = fs::read_to_string(path).expect("a source file");
            paths(&text).iter().any(|path| is_foreign(path))
        })
        .map(|path| below(&root().join("src"), &path))
        .collect();
    found.sort();
    let mut allowed: Vec<_> = ALLOWED.iter().map(|(file, _)| *file).collect();
    allowed.sort_unstable();
    assert_eq!(found, allowed, "found, and those with a reason");
}

#[test]
fn locks_of_others_are_seen() {
    let is_seen = |text: &str| paths(text).iter().any(|path| is_foreign(path));
    assert!(is_seen("use std::sync::{Arc,\n    Mutex};"));
    assert!(is_seen("struct A(std::sync::Condvar);"));
    assert!(is_seen("use parking_lot::Mutex;"));
    assert!(!is_seen(
        "use std::sync::{Arc, Barrier};\nuse crate::ground::sync::Mutex;"
    ));
}
