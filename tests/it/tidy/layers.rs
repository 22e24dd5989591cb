//! The layers of the modules.

use std::collections::BTreeSet;
use std::fs;

use super::{below, code, root, sources};

/// The layers of the source, from the bottom up: code may use its own layer and those below. Files at the root that
/// are not listed are the front, the public API.
const FLOORS: &[&str] = &["ground", "store", "stores", "engine"];

fn floor_of(module: &str) -> usize {
    let floor = FLOORS.iter().position(|floor| *floor == module);
    floor.unwrap_or(FLOORS.len())
}

/// The modules of the crate's root that a line names.
fn root_modules(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("crate::").map(|(at, prefix)| {
        let rest = &line[at + prefix.len()..];
        let end = rest.find(|sign: char| !sign.is_alphanumeric() && sign != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[test]
fn the_source_uses_what_is_below_it() {
    let mut upward = BTreeSet::new();
    for path in sources() {
        let file = below(&root().join("src"), &path);
        let own = file.split(['/', '.']).next().unwrap_or_default();
        if own == "lib" {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        for (number, line) in code(&text) {
            assert!(
                !line.contains("crate::{"),
                "src/{file}:{number}: one `use` for each module of the crate, so that its floor shows"
            );
            for module in root_modules(line) {
                // The engine and the stores do not use each other.
                if floor_of(module) > floor_of(own) || (own, module) == ("engine", "stores") {
                    upward.insert((file.clone(), module.to_owned()));
                }
            }
        }
    }
    assert!(upward.is_empty(), "{upward:?}");
}

/// The transport does not depend on quorums.
#[test]
fn the_transport_knows_no_quorum() {
    for path in sources() {
        let file = below(&root().join("src"), &path);
        if file.starts_with("stores/redis/transport") || file == "stores/connection_pool.rs" {
            let text = fs::read_to_string(&path).expect("a source file");
            let knows = |line: &str| line.contains("stores::quorum");
            assert!(!code(&text).any(|(_, line)| knows(line)), "src/{file}");
        }
    }
}
