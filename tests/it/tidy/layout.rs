//! The order of the modules: floors, no circles, and files of a size that one reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{below, code, root, sources};

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

/// The longest that a file of the source may be.
const LINES: usize = 400;

/// Files that are longer, and how long. The numbers may only fall, and an entry goes when its file is short enough.
const LONG: &[(&str, usize)] = &[];

#[test]
fn no_file_of_the_source_is_long() {
    let known: BTreeMap<_, _> = LONG.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in super::files(&root().join("src")) {
        let file = below(&root().join("src"), &path);
        let lines = fs::read_to_string(&path)
            .expect("a source file")
            .lines()
            .count();
        let Some(ceiling) = known.get(&*file) else {
            if lines > LINES {
                wrong.push(format!(
                    "src/{file}: {lines} lines, where {LINES} are the limit"
                ));
            }
            continue;
        };
        seen += 1;
        if lines <= LINES {
            wrong.push(format!(
                "src/{file}: its {lines} lines are no exception any more"
            ));
        } else if lines != *ceiling {
            wrong.push(format!(
                "src/{file}: {lines} lines, not {ceiling}; it may only get shorter"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(seen, LONG.len(), "files that are no more");
}

/// Folders whose files are named elsewhere than in a module: by a build script, or by cargo.
const ROOTS: [&str; 3] = ["benches/", "examples/", "tests/spec/tests/"];

#[test]
fn every_file_belongs_to_a_program() {
    let folders = ["src", "tests", "benches", "examples"];
    let files: Vec<_> = folders
        .iter()
        .flat_map(|folder| super::files(&root().join(folder)))
        .collect();
    let mut named = BTreeSet::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("a source file");
        let folder = file.parent().expect("a folder");
        let is_root = ["mod.rs", "main.rs", "lib.rs"]
            .iter()
            .any(|it| file.ends_with(it));
        let below = if is_root {
            folder.to_owned()
        } else {
            file.with_extension("")
        };
        let mut path = None;
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("#[path = \"") {
                path = rest.split('"').next().map(|path| folder.join(path));
            }
            let Some(name) = line
                .strip_suffix(';')
                .and_then(|line| line.rsplit_once("mod "))
            else {
                continue;
            };
            match path.take() {
                Some(path) => named.extend(fs::canonicalize(path)),
                // What a program is opened by has any name.
                None => {
                    for folder in [folder, &below] {
                        named.insert(folder.join(name.1).with_extension("rs"));
                        named.insert(folder.join(name.1).join("mod.rs"));
                    }
                }
            }
        }
    }
    let stray: Vec<_> = files
        .iter()
        .filter(|file| !named.contains(*file))
        .map(|file| super::below(root(), file))
        .filter(|file| !ROOTS.iter().any(|root| file.starts_with(root)))
        .filter(|file| {
            !["main.rs", "lib.rs", "build.rs"]
                .iter()
                .any(|it| file.ends_with(it))
        })
        .collect();
    // The tests of the simulation are named in its manifest.
    assert_eq!(stray, ["tests/sim/tests.rs"]);
}

/// All paths of at least two segments that the code of a text names, those of `use` trees in full.
pub(super) fn paths(text: &str) -> Vec<Vec<String>> {
    let code: Vec<_> = code(text).map(|(_, line)| line).collect();
    let code: Vec<char> = code.join("\n").chars().collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < code.len() {
        let begins =
            is_part(code[at]) && (at == 0 || !is_part(code[at - 1]) && code[at - 1] != ':');
        if begins {
            at = branch(&code, at, &[], &mut found);
        } else {
            at += 1;
        }
    }
    found.retain(|path| path.len() > 1);
    found
}

fn is_part(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '_'
}

/// Reads one path, or one branch of a tree behind `stem`, and returns where it ends.
fn branch(code: &[char], mut at: usize, stem: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = stem.to_vec();
    loop {
        let segment: String = code[at..]
            .iter()
            .take_while(|sign| is_part(**sign))
            .collect();
        at += segment.chars().count();
        if !segment.is_empty() {
            path.push(segment);
        }
        if code[at..].starts_with(&[':', ':']) {
            at += 2;
            if code.get(at) != Some(&'{') {
                continue;
            }
            at += 1;
            loop {
                while code
                    .get(at)
                    .is_some_and(|sign| sign.is_whitespace() || *sign == ',')
                {
                    at += 1;
                }
                match code.get(at) {
                    Some(sign) if is_part(*sign) => at = branch(code, at, &path, found),
                    Some('}') => return at + 1,
                    Some(_) => at += 1,
                    None => return at,
                }
            }
        }
        found.push(path);
        return at;
    }
}

/// The module of a file below `src`.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').map(str::to_owned).collect()
}

/// Where a path leads that the code of `module` names: the longest part of it that is a module, `None` outside of the
/// crate.
fn target(module: &[String], path: &[String], all: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
    let mut from = match &*path[0] {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        _ => return None,
    };
    for segment in path {
        match &**segment {
            "crate" | "self" => {}
            "super" => drop(from.pop()),
            segment => {
                from.push(segment.to_owned());
                if !all.contains(&from) {
                    from.pop();
                    break;
                }
            }
        }
    }
    Some(from).filter(|module| !module.is_empty())
}

/// The modules that are in circles with their neighbours, each circle as the names of its modules.
///
/// A module and those within it are one thing to its neighbours, and what it shares with those within it is its own
/// affair.
fn circles(uses: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>) -> BTreeSet<String> {
    let mut edges: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> = BTreeMap::new();
    for (from, all) in uses {
        for to in all {
            let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            if common < from.len() && common < to.len() {
                let (from, to) = (from[..=common].to_vec(), to[..=common].to_vec());
                edges.entry(from).or_default().insert(to);
            }
        }
    }
    let reached = |from: &Vec<String>| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            for to in edges.get(module).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    next.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = edges
        .keys()
        .map(|module| (module, reached(module)))
        .collect();
    let mut found = BTreeSet::new();
    for (module, all) in &reached {
        let circle: Vec<_> = all
            .iter()
            .filter(|other| {
                reached
                    .get(other)
                    .is_some_and(|back| back.contains(*module))
            })
            .map(|other| other.join("/"))
            .collect();
        if !circle.is_empty() {
            found.insert(circle.join(" "));
        }
    }
    found
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let folder = root().join("src");
    let files: Vec<_> = sources()
        .into_iter()
        .map(|path| (below(&folder, &path), path))
        .collect();
    let all: BTreeSet<_> = files.iter().map(|(file, _)| module_of(file)).collect();
    let mut uses: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (file, path) in &files {
        // It only lists the modules.
        if file == "lib.rs" {
            continue;
        }
        let text = fs::read_to_string(path).expect("a source file");
        let module = module_of(file);
        let found = paths(&text);
        let targets = found.iter().filter_map(|path| target(&module, path, &all));
        uses.entry(module.clone()).or_default().extend(targets);
    }
    let found = circles(&uses);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn circles_are_seen() {
    let path = |text: &str| text.split("::").map(str::to_owned).collect::<Vec<_>>();
    let text = "use crate::a::{b::C, d};\nfn f() { super::g::h(); x.crate_y(); }\nlet z = crate::e::F::new();";
    let found: Vec<_> = paths(text).iter().map(|path| path.join("::")).collect();
    assert_eq!(
        found,
        [
            "crate::a::b::C",
            "crate::a::d",
            "super::g::h",
            "crate::e::F::new"
        ]
    );
    let all: BTreeSet<_> = ["a", "a::b", "a::c", "e"].map(path).into();
    let leads = |from: &str, to: &str| target(&path(from), &path(to), &all).map(|to| to.join("::"));
    assert_eq!(leads("a::b", "super::c::D").as_deref(), Some("a::c"));
    assert_eq!(leads("e", "crate::a::b::C").as_deref(), Some("a::b"));
    assert_eq!(leads("a", "std::sync"), None);
    let uses = |edges: &[(&str, &str)]| {
        let mut uses: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (from, to) in edges {
            uses.entry(path(from)).or_default().insert(path(to));
        }
        circles(&uses)
    };
    assert!(uses(&[("a", "a::b"), ("a::b", "a"), ("a::b", "e")]).is_empty());
    assert_eq!(
        uses(&[("a::b", "e"), ("e", "a::c")]),
        ["a e".to_owned()].into()
    );
    assert_eq!(
        uses(&[("a::b", "a::c"), ("a::c", "a::b")]),
        ["a/b a/c".to_owned()].into()
    );
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
