//! Builds the changed tree, and drops the changes that do not compile.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::find::Edit;
use crate::rewrite::{self, SWITCH, Written};
use crate::sources;

/// One file with changes.
pub(crate) struct Source {
    pub(crate) file: String,
    pub(crate) text: String,
    pub(crate) edits: Vec<Edit>,
}

/// What was built.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// Changes that do not compile.
    pub(crate) unviable: BTreeSet<u32>,
    /// Changes that could, were they not chosen at run time.
    pub(crate) left_out: BTreeSet<u32>,
    /// The unit tests, the tests of the whole library, and those that simulate it.
    pub(crate) programs: Vec<PathBuf>,
}

/// Where cargo builds.
pub(crate) struct Workshop {
    pub(crate) root: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) target: PathBuf,
}

/// What is changed, and the same compiled for the simulation.
const LIBRARY: &[&str] = &["--package", "redlatch", "--all-features"];
const SIMULATION: &[&str] = &["--package", "redlatch-sim"];

/// Each round sees the errors that those of the round before had hidden.
const ROUNDS: usize = 60;

/// Builds the tests with all changes that compile.
///
/// # Errors
///
/// An error of the compiler that no change is to blame for, or a file that cannot be written.
pub(crate) fn build(
    workshop: &Workshop,
    files: &[Source],
    only_units: bool,
) -> Result<Built, String> {
    let mut built = Built::default();
    // It is quicker to check, and tells the same.
    let all: [(&[&str], &[&str]); 3] = [
        (LIBRARY, &["check", "--lib"]),
        (LIBRARY, &["test", "--no-run", "--lib", "--test", "it"]),
        (SIMULATION, &["test", "--no-run", "--test", "sim"]),
    ];
    let units: [(&[&str], &[&str]); 1] = [(LIBRARY, &["test", "--no-run", "--lib"])];
    let (steps, wanted) = match only_units {
        true => (&units[..], 1),
        false => (&all[..], 3),
    };
    for round in 1..=ROUNDS {
        let dropped = built.unviable.union(&built.left_out).copied().collect();
        let written: BTreeMap<&str, Written> = files
            .iter()
            .map(|it| (&*it.file, rewrite::rewrite(&it.text, &it.edits, &dropped)))
            .collect();
        write(workshop, &written)?;
        let (mut checked, mut programs) = (Answer::default(), Vec::new());
        for (package, step) in steps {
            checked = cargo(workshop, package, step)?;
            if !checked.errors.is_empty() {
                break;
            }
            programs.append(&mut checked.programs);
        }
        if checked.errors.is_empty() {
            built.programs = programs;
            return match built.programs.len() == wanted {
                true => Ok(built),
                false => Err(format!(
                    "cargo builds {:?}, not as many programs as {wanted}",
                    built.programs
                )),
            };
        }
        let before = built.unviable.len() + built.left_out.len();
        for error in &checked.errors {
            blame(error, &written, &mut built);
        }
        let dropped = built.unviable.len() + built.left_out.len();
        eprintln!(
            "round {round}: {} errors, {} changes dropped",
            checked.errors.len(),
            dropped - before
        );
        if dropped == before {
            let texts: Vec<_> = checked.errors.iter().map(|error| &*error.text).collect();
            return Err(format!(
                "no change is to blame for this:\n{}",
                texts.join("\n")
            ));
        }
    }
    Err(format!("it does not compile after {ROUNDS} rounds"))
}

fn write(workshop: &Workshop, written: &BTreeMap<&str, Written>) -> Result<(), String> {
    let Workshop { root, tree, .. } = workshop;
    let read = |file: &str| {
        let text = fs::read_to_string(root.join(file));
        text.map_err(|error| format!("{file}: {error}"))
    };
    let mut files: BTreeMap<_, _> = written
        .iter()
        .map(|(file, written)| ((*file).to_owned(), written.text.clone()))
        .collect();
    // Not how the source is written is asked here, but what it does.
    let opening = "#![allow(warnings, clippy::all, arithmetic_overflow, unconditional_panic, overflowing_literals)]\n";
    let simulation = "tests/sim/lib.rs";
    let root_of_simulation =
        read(simulation)?.replacen("include!", &format!("{opening}include!"), 1);
    files.insert(simulation.to_owned(), root_of_simulation);
    // The specification of the scripts has a file of the library in it.
    for (folder, first) in [("src", "#!["), ("tests/spec/src", "mod ")] {
        let file = format!("{folder}/lib.rs");
        let mut lib = read(&file)?;
        lib.insert_str(lib.find(first).unwrap_or(0), opening);
        lib.push_str("\nmod switch;\n");
        files.insert(file, lib);
        files.insert(format!("{folder}/switch.rs"), SWITCH.to_owned());
    }
    // By its version cargo tells it from the library as it is, which is built in the same folder.
    for file in ["Cargo.toml", "Cargo.lock"] {
        let named = "name = \"redlatch\"\nversion = \"";
        let changed = read(file)?.replacen(named, &format!("{named}99.0.0-"), 1);
        files.insert(file.to_owned(), changed);
    }
    fs::create_dir_all(tree).map_err(|error| error.to_string())?;
    sources::copy(root, tree, &files).map_err(|error| format!("{}: {error}", tree.display()))
}

/// An error of the compiler.
struct Problem {
    text: String,
    /// File and place, the most important first.
    places: Vec<(String, Range<usize>)>,
    /// How many of them are where the error is.
    primary: usize,
}

#[derive(Default)]
struct Answer {
    errors: Vec<Problem>,
    programs: Vec<PathBuf>,
}

fn cargo(workshop: &Workshop, package: &[&str], step: &[&str]) -> Result<Answer, String> {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(step)
        .args(package)
        .args(["--message-format=json", "--quiet"])
        // What is changed would not be the text that bugs are planted in.
        .env("REDLATCH_NONE_PLANTED", "1")
        .arg("--target-dir")
        .arg(&workshop.target)
        .current_dir(&workshop.tree)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let mut answer = Answer::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        // The simulation is a program, too, that its tests start.
        let is_test = message["profile"]["test"] == true;
        if let Some(program) = message["executable"].as_str().filter(|_| is_test) {
            answer.programs.push(program.into());
        }
        let diagnosis = &message["message"];
        if message["reason"] == "compiler-message" && diagnosis["level"] == "error" {
            answer.errors.extend(problem(diagnosis));
        }
    }
    if !output.status.success() && answer.errors.is_empty() {
        return Err(format!("cargo {step:?} {package:?} fails"));
    }
    Ok(answer)
}

/// The error of a message, unless it is about others.
fn problem(diagnosis: &Value) -> Option<Problem> {
    let (mut primary, mut others) = (Vec::new(), Vec::new());
    for span in list(&diagnosis["spans"]) {
        let to = match span["is_primary"].as_bool() {
            Some(true) => &mut primary,
            _ => &mut others,
        };
        to.extend(place(span));
    }
    for child in list(&diagnosis["children"]) {
        others.extend(list(&child["spans"]).iter().filter_map(place));
    }
    if primary.is_empty() && others.is_empty() {
        return None;
    }
    Some(Problem {
        text: diagnosis["rendered"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        primary: primary.len(),
        places: primary.into_iter().chain(others).collect(),
    })
}

/// Where a span is in a file, or that of the macro call that it comes from.
fn place(span: &Value) -> Option<(String, Range<usize>)> {
    let mut outer = span;
    while outer["expansion"]["span"].is_object() {
        outer = &outer["expansion"]["span"];
    }
    let number = |name: &str| usize::try_from(outer[name].as_u64()?).ok();
    let file = outer["file_name"].as_str()?;
    // The simulation is built from a copy of the library.
    let file = file.rsplit_once("/out/").map_or(file, |(_, copied)| copied);
    Some((file.to_owned(), number("byte_start")?..number("byte_end")?))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Drops the changes that an error speaks of.
fn blame(error: &Problem, written: &BTreeMap<&str, Written>, built: &mut Built) {
    let blamed = |(file, place): &(String, Range<usize>)| written.get(&**file)?.blamed(place);
    let all: Vec<_> = error.places.iter().filter_map(blamed).collect();
    // The place of the error first, then those that explain it.
    let changed = all.iter().find(|(_, is_changed)| *is_changed);
    let written_so = || {
        error.places[..error.primary]
            .iter()
            .find_map(blamed)
            .or(all.first().copied())
    };
    match changed {
        Some((numbers, _)) => built.unviable.extend(numbers.iter()),
        None => built
            .left_out
            .extend(written_so().into_iter().flat_map(|(numbers, _)| numbers)),
    }
}

/// The folder that cargo builds in, by default.
pub(crate) fn target(root: &Path) -> PathBuf {
    let set = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    set.map_or_else(|| root.join("target"), |target| root.join(target))
}
