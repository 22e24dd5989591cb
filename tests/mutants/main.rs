//! Changes the source in each way that cargo-mutants knows, and says which changes no test sees.
//!
//! All changes of a folder are compiled in at once, and a variable chooses one when a test program starts. Each test is run
//! once without a change, to learn which changes it reaches; then each change is tried with the tests that reach it, the
//! quickest first, until one of them fails.
//!
//! ```text
//! make mutants                                  all folders
//! make mutants FOLDERS='engine stores/quorum'   these
//! make mutants FOLDERS=engine FILES='src/engine/hold/*.rs'
//! make mutants SHARD=3/20                       every twentieth change, from the fourth on
//! make mutants BUDGET=10                        tries each change for 10 s, not for 120
//! make mutants UNITS=1                          tries each change with the unit tests alone
//! make mutants LIST=1                           says which changes there are, and builds nothing
//! ```
//!
//! Changes that make no difference are listed, with the reason, in `tests/mutants.equivalent`; the last line for each
//! folder is JSON. The program fails if a change is missed that is not listed there. Results are kept in `target/mutants`:
//! a run that was interrupted goes on, and the next one tries only what may have got another result.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a report is printed"
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        reason = "what cannot go on fails the test"
    )
)]

mod compile;
mod find;
mod rewrite;
mod run;
mod sources;
#[cfg(test)]
#[allow(dead_code, reason = "it is for the changed source")]
mod switch;
#[cfg(test)]
mod tests;
mod trial;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::json;

use compile::{Built, Source, Workshop};
use find::Change;
use run::Runner;
use trial::{Results, Tests, Verdict};

/// The folders, each with the parts of names of the tests that are about it.
const FOLDERS: &[(&str, &[&str])] = &[
    (
        "ground",
        &["ground::", "laws::memory", "laws::redis", "errors::"],
    ),
    (
        "engine",
        &[
            "engine::",
            "acl::",
            "laws::memory",
            "laws::redis",
            "laws::simulated",
            "wait_queue::",
            "holds::",
            "faults::process",
            "faults::waiting",
            "condition::",
            "guarded::",
            "latch::",
            "multi_lock::",
            "owned::",
            "read_write::",
            "semaphore::",
            "spin::",
            "stats::",
            "no_rule_is_broken",
        ],
    ),
    (
        "stores/memory",
        &["stores::", "::memory::", "_in_memory::", "testing::"],
    ),
    (
        "stores/multi",
        &["stores::", "multi_lock::", "locks_made_of_parts"],
    ),
    (
        "stores/quorum",
        &[
            "stores::",
            "laws::redlock",
            "redlock::",
            "locks_made_of_parts",
            "no_rule_is_broken",
        ],
    ),
    (
        "stores/redis",
        &[
            "stores::",
            "::redis::",
            "::tls::",
            "late_copies::",
            "acl::",
            "faults::network",
            "guarded::",
            "holds::",
            "survey::",
            "no_rule_is_broken",
            "replicas_take_over",
            "replies_are_garbled",
            "sentinels_lie_and_die",
            "slots_move",
        ],
    ),
    ("stores/mysql", &["stores::", "laws::mysql", "mysql::"]),
];

fn main() -> ExitCode {
    let named: Vec<_> = env::args().skip(1).collect();
    let mut folders = Vec::new();
    for name in &named {
        let Some(folder) = FOLDERS.iter().find(|(folder, _)| folder == name) else {
            eprintln!("the folders are ground, engine and those of stores, not {name}");
            return ExitCode::FAILURE;
        };
        folders.push(*folder);
    }
    if named.is_empty() {
        folders.extend(FOLDERS);
    }
    let mut all_explained = true;
    for (folder, filters) in folders {
        match try_folder(folder, filters) {
            Ok(explained) => all_explained &= explained,
            Err(error) => {
                eprintln!("{folder}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    match all_explained {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(2),
    }
}

/// What a folder has.
struct Folder {
    sources: Vec<Source>,
    changes: Vec<Change>,
    /// Names of changes that cannot be chosen at run time, with the reason.
    left_out: Vec<(String, &'static str)>,
    unviable: usize,
}

fn find(root: &Path, folder: &str) -> Result<Folder, String> {
    let mut found = Folder {
        sources: Vec::new(),
        changes: Vec::new(),
        left_out: Vec::new(),
        unviable: 0,
    };
    let within = [format!("src/{folder}/"), format!("src/{folder}.rs")];
    for file in sources::modules(root)? {
        if !file.starts_with(&within[0]) && file != within[1] {
            continue;
        }
        let text =
            fs::read_to_string(root.join(&file)).map_err(|error| format!("{file}: {error}"))?;
        let first = u32::try_from(found.changes.len()).map_err(|error| error.to_string())? + 1;
        let of_file =
            find::changes(&file, &text, first).map_err(|error| format!("{file}: {error}"))?;
        found.changes.extend(of_file.changes);
        found.left_out.extend(of_file.left_out);
        found.unviable += of_file.unviable;
        found.sources.push(Source {
            file,
            text,
            edits: of_file.edits,
        });
    }
    Ok(found)
}

/// Tries a folder, and returns whether all that was missed is explained.
fn try_folder(folder: &str, filters: &[&str]) -> Result<bool, String> {
    let start = Instant::now();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let found = find(&root, folder)?;
    if is_set("LIST") {
        found
            .changes
            .iter()
            .for_each(|change| println!("{}", change.name()));
        found
            .left_out
            .iter()
            .for_each(|(name, reason)| println!("left out: {name}: {reason}"));
        return Ok(true);
    }
    let total = found.changes.len() + found.left_out.len() + found.unviable;
    eprintln!("{folder}: {total} changes");
    let target = compile::target(&root);
    let own = target.join("mutants").join(folder.replace('/', "-"));
    fs::create_dir_all(&own).map_err(|error| error.to_string())?;
    let workshop = Workshop {
        tree: target.join("mutants/tree"),
        // Not that of the tree itself: cargo takes one for the other, and would run changed programs there.
        target: target.join("mutants/target"),
        root,
    };
    let only_units = is_set("UNITS");
    let built = compile::build(&workshop, &found.sources, only_units)?;
    eprintln!("built after {:.1} minutes", trial::minutes(start));

    let tree = read_tree(&workshop.tree)?;
    let of_all = sources::fingerprint(tree.values().map(Vec::as_slice));
    let workers = run::number("WORKERS").unwrap_or(2 * run::processors());
    let runner = Runner::new(
        &workshop.tree,
        run::number("RUST_TEST_THREADS").unwrap_or(4),
    );
    let tests = tests(&runner, workers, &own, filters, &built, of_all)?;
    for name in &tests.failing {
        eprintln!("fails without a change, and is left out: {name}");
    }

    let chosen = chosen(&found, &built)?;
    let of_file: BTreeMap<_, _> = found
        .sources
        .iter()
        .map(|it| (it.file.clone(), sources::fingerprint([it.text.as_bytes()])))
        .collect();
    let results =
        Results::open(&own.join("results"), &of_file, of_all).map_err(|error| error.to_string())?;
    let (known, open): (Vec<_>, Vec<_>) = chosen
        .iter()
        .cloned()
        .partition(|it| results.of(it).is_some());
    eprintln!(
        "{} tests after {:.1} minutes; {} changes to try",
        tests.all.len(),
        trial::minutes(start),
        open.len()
    );
    let (done, count) = (AtomicUsize::new(0), open.len());
    let verdicts = std::sync::Mutex::new(Vec::new());
    let lock = || {
        verdicts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    for change in known {
        let verdict = results.of(&change).cloned();
        lock().extend(verdict.map(|verdict| (change, verdict)));
    }
    // One that is tried in short may be caught in full.
    let is_short = only_units || is_set("BUDGET");
    trial::all(&runner, workers, &tests, open, |change, verdict| {
        if !is_short || matches!(verdict, Verdict::Caught(_) | Verdict::Ended(_)) {
            let of_file = of_file.get(&change.file).copied().unwrap_or(0);
            results.add(change, &verdict, of_file, of_all);
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        match &verdict {
            Verdict::Missed => eprintln!("{done}/{count} missed: {}", change.name()),
            Verdict::Unreached => eprintln!("{done}/{count} not reached: {}", change.name()),
            _ if done.is_multiple_of(50) => {
                eprintln!("{done}/{count} after {:.1} minutes", trial::minutes(start))
            }
            _ => {}
        }
        lock().push((change.clone(), verdict));
    });
    let verdicts = std::mem::take(&mut *lock());
    report(folder, &found, &built, verdicts, start)
}

/// The tests that are about a folder, with what they reach: as it was recorded, if nothing is different since.
fn tests(
    runner: &Runner,
    workers: usize,
    own: &Path,
    filters: &[&str],
    built: &Built,
    of_all: u64,
) -> Result<Tests, String> {
    let path = own.join("tests");
    let recorded = fs::read_to_string(&path).unwrap_or_default();
    let recorded: serde_json::Value = serde_json::from_str(&recorded).unwrap_or_default();
    let wanted = json!([of_all, filters, built.programs]);
    if let Some(tests) = Tests::from_json(&recorded["tests"]).filter(|_| recorded["of"] == wanted) {
        return Ok(tests);
    }
    let mut all = Vec::new();
    for program in &built.programs {
        let names = runner.tests(program, filters)?;
        all.extend(names.into_iter().map(|name| (program.clone(), name)));
    }
    eprintln!("{} tests are run once, to learn what they reach", all.len());
    let tests = trial::record(runner, workers, own, all);
    let text = json!({ "of": wanted, "tests": tests.to_json() }).to_string();
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(tests)
}

/// All that the tests are built from.
fn read_tree(tree: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            let is_code = path.extension().is_some_and(|it| {
                ["rs", "lua", "toml", "lock", "c"]
                    .iter()
                    .any(|kind| it == *kind)
            });
            if path.is_dir() {
                folders.push(path);
            } else if is_code && !path.starts_with(tree.join("tests/mutants")) {
                let content =
                    fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                files.insert(path.to_string_lossy().into_owned(), content);
            }
        }
    }
    Ok(files)
}

/// Whether a variable has a value.
fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|it| !it.is_empty())
}

/// The changes that are to be tried: those that are there, of `FILES` and of `SHARD`.
fn chosen(found: &Folder, built: &Built) -> Result<Vec<Change>, String> {
    let patterns = env::var("FILES").unwrap_or_default();
    let patterns: Vec<_> = patterns.split_whitespace().collect();
    let is_there = |it: &&Change| {
        let is_built = !built.unviable.contains(&it.number) && !built.left_out.contains(&it.number);
        is_built
            && (patterns.is_empty()
                || patterns
                    .iter()
                    .any(|pattern| sources::matches(pattern, &it.file)))
    };
    let shard = env::var("SHARD").unwrap_or_default();
    let (index, count) = match shard.split_once('/') {
        None if shard.is_empty() => (0, 1),
        parts => {
            let number = |part: &str| part.parse().ok();
            let both = parts.and_then(|(index, count)| number(index).zip(number(count)));
            both.filter(|(index, count): &(usize, usize)| index < count)
                .ok_or_else(|| format!("SHARD is {shard}, not 3/20 or the like"))?
        }
    };
    Ok(found
        .changes
        .iter()
        .filter(is_there)
        .skip(index)
        .step_by(count)
        .cloned()
        .collect())
}

fn report(
    folder: &str,
    found: &Folder,
    built: &Built,
    mut verdicts: Vec<(Change, Verdict)>,
    start: Instant,
) -> Result<bool, String> {
    let listed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mutants.equivalent");
    let listed =
        fs::read_to_string(&listed).map_err(|error| format!("{}: {error}", listed.display()))?;
    let listed: BTreeSet<_> = listed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(" # ").next().unwrap_or(line).trim())
        .collect();
    verdicts.sort_by_key(|(change, _)| change.number);
    let missed: Vec<_> = verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Missed | Verdict::Unreached))
        .collect();
    let unexplained: Vec<_> = missed
        .iter()
        .filter(|(change, _)| !listed.contains(&*change.lasting_name()))
        .collect();
    if !unexplained.is_empty() {
        eprintln!("no test sees, and no reason is listed:");
    }
    for (change, verdict) in &unexplained {
        let note = match verdict {
            Verdict::Unreached => " (no test gets there)",
            _ => "",
        };
        println!("{}{note}", change.name());
    }
    let written: Vec<_> = found
        .changes
        .iter()
        .filter(|it| built.left_out.contains(&it.number))
        .collect();
    for change in &written {
        eprintln!("left out: {}: it compiles only alone", change.name());
    }
    println!(
        "{}",
        json!({
            "folder": folder,
            "viable": verdicts.len(),
            "caught": verdicts.len() - missed.len(),
            "endless": verdicts.iter().filter(|(_, it)| matches!(it, Verdict::Ended(_))).count(),
            "missed": missed.len(),
            "missed_unexplained": unexplained.len(),
            "unviable": found.unviable + built.unviable.len(),
            "left_out": found.left_out.len() + written.len(),
            "minutes": trial::minutes(start).round(),
        })
    );
    Ok(unexplained.is_empty())
}
