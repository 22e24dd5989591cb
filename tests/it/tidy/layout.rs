//! The order of the modules.

use std::collections::BTreeSet;
use std::fs;

use super::{below, code, root, sources};

/// The floors of the source, from the ground up: code may use its own floor and those below. Files at the root that are
/// not listed are the front, which users touch.
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
                // Neither the engine nor a store knows the other.
                if floor_of(module) > floor_of(own) || (own, module) == ("engine", "stores") {
                    upward.insert((file.clone(), module.to_owned()));
                }
            }
        }
    }
    assert!(upward.is_empty(), "{upward:?}");
}

/// What carries requests to a server knows nothing of the votes of several.
#[test]
fn the_transport_knows_no_quorum() {
    for path in sources() {
        let file = below(&root().join("src"), &path);
        if file.starts_with("stores/redis/transport") || file == "stores/slots.rs" {
            let text = fs::read_to_string(&path).expect("a source file");
            let knows = |line: &str| line.contains("stores::quorum");
            assert!(!code(&text).any(|(_, line)| knows(line)), "src/{file}");
        }
    }
}

/// The trait has defaults, which a store that wraps another must not fall back to.
#[test]
fn a_counted_store_passes_every_operation_on() {
    let store = fs::read_to_string(root().join("src/store.rs")).expect("the seam");
    let (_, store) = store
        .split_once("pub(crate) trait Store")
        .expect("the trait");
    let (store, _) = store.split_once("\n}\n").expect("its end");
    let operations = store.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("    fn ")?.split_once('(')?;
        Some(name)
    });
    let operations: Vec<_> = operations.collect();
    assert!(operations.len() > 15, "{operations:?}");
    let counted = fs::read_to_string(root().join("src/store/counted.rs")).expect("the wrapper");
    let missing = operations
        .into_iter()
        .filter(|name| !counted.contains(&format!("self.store.{name}(")));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "src/store/counted.rs lacks {missing:?}");
}
