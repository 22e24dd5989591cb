//! The versions of this crate and of those it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::root;

#[test]
fn no_dependency_comes_in_two_versions() {
    let tree = cargo(&[
        "tree",
        "--duplicates",
        "--edges",
        "normal",
        "--all-features",
        "--depth",
        "0",
    ]);
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in tree.lines() {
        if let Some((name, version)) = line.split_once(" v") {
            // The same version twice is one package with different features, for a build script and for the library.
            versions
                .entry(name)
                .or_default()
                .insert(version.split(' ').next().unwrap_or(version));
        }
    }
    // r2d2 uses our parking_lot, and its scheduler thread uses the next version.
    let of_r2d2 = ["lock_api", "parking_lot", "parking_lot_core"];
    versions.retain(|name, versions| versions.len() > 1 && !of_r2d2.contains(name));
    assert!(versions.is_empty(), "{versions:#?}");
}

fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo speaks UTF-8")
}
