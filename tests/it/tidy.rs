//! House rules which no compiler checks.
#![allow(
    clippy::expect_used,
    reason = "a check that cannot run is a failed check"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What only some files may say, in code outside of test modules.
struct Rule {
    words: &'static [&'static str],
    /// Files and folders below `src`.
    only_in: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        words: &[".unwrap(", ".expect("],
        only_in: &[],
        why: "nothing panics in a user's process",
    },
    Rule {
        words: &["print!", "println!", "eprint!", "eprintln!", "dbg!"],
        only_in: &[],
        why: "output is the user's",
    },
    Rule {
        words: &["todo!", "unimplemented!"],
        only_in: &[],
        why: "no stubs",
    },
    Rule {
        words: &["unsafe"],
        only_in: &[],
        why: "the crate forbids it",
    },
    Rule {
        words: &["redis::"],
        only_in: &["stores/redis"],
        why: "only this store knows the client",
    },
    Rule {
        words: &["rustls::"],
        only_in: &["stores/redis/transport/tls"],
        why: "only this folder knows the crate",
    },
    Rule {
        words: &["mysql::"],
        only_in: &["stores/mysql"],
        why: "only this store knows the crate",
    },
    Rule {
        words: &["r2d2::"],
        only_in: &["stores"],
        why: "only stores have pools",
    },
    Rule {
        words: &["thread::Builder", "spawn"],
        only_in: &[
            "engine/watchdog/mod.rs",
            "engine/in_doubt.rs",
            "engine/client_inner.rs",
            "stores/redis/subscriber/listener_thread.rs",
            "stores/quorum",
        ],
        why: "the threads of a client have names and an end, and a quorum connects to several nodes at a time",
    },
];

/// Exceptions: the file below `src`, the word, and the reason why it is right there.
const ALLOWED: &[(&str, &str, &str)] = &[];

#[test]
fn the_source_keeps_the_house_rules() {
    let mut broken = Vec::new();
    let mut unused: BTreeSet<_> = ALLOWED
        .iter()
        .map(|(file, word, _)| (*file, *word))
        .collect();
    for path in sources() {
        let file = below(&root().join("src"), &path);
        let text = fs::read_to_string(&path).expect("a source file");
        for (number, line) in code(&text) {
            for rule in RULES.iter().filter(|rule| {
                !rule
                    .only_in
                    .iter()
                    .any(|place| Path::new(&file).starts_with(place))
            }) {
                for word in rule.words.iter().filter(|word| says(line, word)) {
                    if ALLOWED
                        .iter()
                        .any(|(place, allowed, _)| file == *place && word == allowed)
                    {
                        unused.retain(|(place, allowed)| file != *place || word != allowed);
                    } else {
                        broken.push(format!("src/{file}:{number}: `{word}`: {}", rule.why));
                    }
                }
            }
        }
    }
    broken.extend(
        unused
            .iter()
            .map(|(file, word)| format!("the exception for `{word}` in src/{file} is of no use")),
    );
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn the_rules_see_code_and_nothing_else() {
    assert!(says("let x = y.unwrap();", ".unwrap(") && !says("y.unwrap_or(1)", ".unwrap("));
    assert!(
        says("use redis::Cmd;", "redis::") && !says("use crate::stores::redis::Pool;", "redis::")
    );
    assert!(says("std::thread::spawn(f)", "spawn") && !says("respawned", "spawn"));
    assert!(says("unsafe { f() }", "unsafe") && !says("#![forbid(unsafe_code)]", "unsafe"));
    let text =
        "a // b\n/// c\n\"redis://d\"\n#[cfg(test)]\nmod tests {\n    e\n}\nf\n#[cfg(test)]\ng\n";
    let seen: Vec<_> = code(text)
        .map(|(number, line)| (number, line.trim()))
        .filter(|(_, line)| !line.is_empty())
        .collect();
    assert_eq!(
        seen,
        [
            (1, "a"),
            (3, "\"redis://d\""),
            (8, "f"),
            (9, "#[cfg(test)]"),
            (10, "g")
        ]
    );
}

#[test]
fn the_tests_know_every_script() {
    let folder = root().join("src/stores/redis/scripts");
    let found: BTreeSet<_> = files_of(&folder, "lua")
        .into_iter()
        .map(|path| below(&folder, &path))
        .collect();
    let known = crate::invariants::SCRIPTS.iter();
    assert_eq!(found, known.map(|(path, _)| (*path).to_owned()).collect());
}

/// The floors of the source, from the ground up: code may use its own floor and those below. Files at the root that are
/// not listed are the front, which users touch.
const FLOORS: &[&str] = &["ground", "store", "stores", "engine"];

/// Uses of a higher floor, each with the reason why it is there.
const UPWARD: &[(&str, &str, &str)] = &[];

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
    let known = UPWARD
        .iter()
        .map(|(file, module, _)| ((*file).to_owned(), (*module).to_owned()));
    assert_eq!(upward, known.collect(), "found, and those with a reason");
}

#[test]
fn the_modules_that_a_line_names_are_seen() {
    let named: Vec<_> = root_modules("use crate::engine::hold::{A}; crate::store::B").collect();
    assert_eq!(named, ["engine", "store"]);
    assert!(floor_of("ground") < floor_of("stores") && floor_of("engine") < floor_of("lock"));
}

#[test]
fn the_changelog_starts_with_this_version() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).expect("CHANGELOG.md");
    let version = |line: &str| {
        let title = line.strip_prefix("## ")?.trim_start_matches(['[', 'v']);
        title
            .starts_with(|first: char| first.is_ascii_digit())
            .then(|| {
                title
                    .split([']', ' '])
                    .next()
                    .unwrap_or_default()
                    .to_string()
            })
    };
    assert_eq!(
        text.lines().find_map(version).as_deref(),
        Some(env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn no_dependency_needs_a_newer_rust() {
    let metadata: Value = serde_json::from_str(&cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--all-features",
    ]))
    .expect("the metadata of cargo");
    let packages: BTreeMap<_, _> = array(&metadata["packages"])
        .iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<_, _> = array(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let ours = rust_version(env!("CARGO_PKG_RUST_VERSION"));
    let mut next = vec![text(&metadata["resolve"]["root"])];
    let mut seen = BTreeSet::new();
    let mut newer = Vec::new();
    while let Some(id) = next.pop().filter(|id| !id.is_empty()) {
        if !seen.insert(id) {
            continue;
        }
        let package = packages[id];
        if package["rust_version"]
            .as_str()
            .is_some_and(|theirs| rust_version(theirs) > ours)
        {
            newer.push(format!(
                "{} {} needs {}",
                package["name"], package["version"], package["rust_version"]
            ));
        }
        let normal = |dep: &&Value| {
            array(&dep["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null())
        };
        next.extend(
            array(&nodes[id]["deps"])
                .iter()
                .filter(normal)
                .map(|dep| text(&dep["pkg"])),
        );
    }
    assert!(seen.len() > 1, "a crate with dependencies");
    assert!(newer.is_empty(), "{newer:#?}");
}

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
            // The same version twice is one package with different features, for a build script and for us.
            versions
                .entry(name)
                .or_default()
                .insert(version.split(' ').next().unwrap_or(version));
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "{versions:#?}");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below `src`, without those of unit tests.
fn sources() -> Vec<PathBuf> {
    let mut found = files(&root().join("src"));
    found.retain(|path| !path.ends_with("tests.rs"));
    found
}

/// The path of a file below a folder, with slashes.
fn below(folder: &Path, path: &Path) -> String {
    let path = path.strip_prefix(folder).expect("a file below the folder");
    path.to_string_lossy().replace('\\', "/")
}

pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    files_of(dir, "rs")
}

/// All files with this extension below a folder, sorted.
fn files_of(dir: &Path, wanted: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .expect("a folder of sources")
        .map(|entry| entry.expect("an entry").path());
    let (dirs, mut found): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    found.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == wanted)
    });
    found.extend(dirs.iter().flat_map(|dir| files_of(dir, wanted)));
    found.sort();
    found
}

/// The numbered lines of code, without comments and test modules; it relies on the layout of rustfmt.
pub(crate) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<_> = text.lines().collect();
    let mut test_module_until = None;
    let mut kept = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if let Some(end) = &test_module_until {
            if line == end {
                test_module_until = None;
            }
            continue;
        }
        let attributes = lines[index..]
            .iter()
            .take_while(|line| line.trim().starts_with("#["))
            .count();
        let module = lines
            .get(index + attributes)
            .is_some_and(|line| says(line, "mod") && line.ends_with('{'));
        if attributes > 0
            && module
            && line.trim().starts_with("#[cfg(")
            && says(line, "test")
            && !line.contains("not(test")
        {
            test_module_until = Some(format!("{indent}}}"));
            continue;
        }
        // An address is not a comment.
        let comment = line
            .match_indices("//")
            .find(|(at, _)| !line[..*at].ends_with(':'));
        kept.push((index + 1, comment.map_or(*line, |(at, _)| &line[..at])));
    }
    kept.into_iter()
}

/// Whether `line` contains `word` and not only as a part of a longer one.
fn says(line: &str, word: &str) -> bool {
    let part =
        |other: Option<char>| other.is_some_and(|other| other.is_alphanumeric() || other == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (
            line[..at].chars().next_back(),
            line[at + word.len()..].chars().next(),
        );
        // A module of ours may be called like the crate it hides.
        let path_of_ours = word.ends_with("::") && before == Some(':');
        let longer = word.starts_with(char::is_alphanumeric) && part(before)
            || word.ends_with(char::is_alphanumeric) && part(after);
        !path_of_ours && !longer
    })
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

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn rust_version(text: &str) -> (u32, u32, u32) {
    let mut parts = text
        .split('.')
        .map(|part| part.parse().expect("a version of Rust"));
    (
        parts.next().unwrap_or(0),
        parts.next().unwrap_or(0),
        parts.next().unwrap_or(0),
    )
}
