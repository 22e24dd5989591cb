//! House rules that no compiler checks.
#![allow(
    clippy::expect_used,
    reason = "a check that cannot run is a failed check"
)]

mod crate_versions;
mod layers;
mod locks;
mod messages;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below `src`, without unit tests and their servers.
pub(crate) fn sources() -> Vec<PathBuf> {
    let mut found = files(&root().join("src"));
    // A module of unit tests may have files of its own, in a folder of its name.
    let is_test = |path: &Path| {
        let path = below(&root().join("src"), path);
        path.ends_with("/tests.rs") || path.contains("/tests/")
    };
    found.retain(|path| !is_test(path));
    found
}

/// The path of a file below a folder, with slashes.
fn below(folder: &Path, path: &Path) -> String {
    let path = path.strip_prefix(folder).expect("a file below the folder");
    path.to_string_lossy().replace('\\', "/")
}

/// The files of Rust code below a folder.
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

/// Whether `line` contains `word` as a whole word.
fn says(line: &str, word: &str) -> bool {
    let part =
        |other: Option<char>| other.is_some_and(|other| other.is_alphanumeric() || other == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (
            line[..at].chars().next_back(),
            line[at + word.len()..].chars().next(),
        );
        // A module may be named like the crate it hides.
        let path_of_ours = word.ends_with("::") && before == Some(':');
        let longer = word.starts_with(char::is_alphanumeric) && part(before)
            || word.ends_with(char::is_alphanumeric) && part(after);
        !path_of_ours && !longer
    })
}
