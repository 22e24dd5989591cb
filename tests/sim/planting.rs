//! Copies the source of the library to where a build script may write, and plants bugs in the copy.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::planted::Bug;

/// The placeholder in the text of a bug for whether the bug is planted in this run.
const PLANTED: &str = "PLANTED";

/// Makes `to` a copy of the folder `from`.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Plants bugs in the files of a copy of `src`.
///
/// # Errors
///
/// One for each bug that [`plant`] refuses.
pub(crate) fn plant_in_files<'b>(
    src: &Path,
    bugs: impl IntoIterator<Item = &'b Bug>,
) -> Result<(), String> {
    let mut bugs: Vec<_> = bugs.into_iter().collect();
    bugs.sort_by_key(|bug| bug.file);
    let of_files = bugs.chunk_by(|one, other| one.file == other.file);
    let outcomes = of_files.map(|of_file| {
        let path = src.join(of_file[0].file);
        edit(&path, |text| plant(&text, of_file))
    });
    all(outcomes).map(drop)
}

/// Returns the text of a file with bugs planted in it.
///
/// # Errors
///
/// Names each bug whose correct text is not exactly once in the file, or overlaps another bug's text, or whose wrong
/// text lacks the placeholder.
pub(crate) fn plant(text: &str, bugs: &[&Bug]) -> Result<String, String> {
    let mut places = all(bugs.iter().map(|bug| Ok((place(text, bug)?, *bug))))?;
    places.sort_by_key(|(place, _)| place.start);
    let (mut planted, mut done) = (String::with_capacity(text.len() * 2), 0);
    for (place, bug) in places {
        if place.start < done {
            return Err(format!("{}: it overlaps another bug", title(bug)));
        }
        planted.push_str(&text[done..place.start]);
        let question = format!("crate::ground::sync::mutant({:?})", bug.name);
        planted.push_str(&bug.replace.replace(PLANTED, &question));
        done = place.end;
    }
    planted.push_str(&text[done..]);
    Ok(planted)
}

fn place(text: &str, bug: &Bug) -> Result<Range<usize>, String> {
    let mut found = text.match_indices(bug.find);
    let place = match (found.next(), found.count()) {
        (Some((at, found)), 0) => at..at + found.len(),
        (first, others) => {
            let times = others + usize::from(first.is_some());
            let title = title(bug);
            return Err(format!(
                "{title}: the text to find is {times} times in the file, not once:\n{}",
                bug.find
            ));
        }
    };
    match bug.replace.contains(PLANTED) {
        true => Ok(place),
        false => Err(format!(
            "{}: the text to put there lacks {PLANTED}",
            title(bug)
        )),
    }
}

/// Returns all successes, or all errors.
fn all<T>(outcomes: impl Iterator<Item = Result<T, String>>) -> Result<Vec<T>, String> {
    let (mut done, mut errors) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(value) => done.push(value),
            Err(error) => errors.push(error),
        }
    }
    match errors.is_empty() {
        true => Ok(done),
        false => Err(errors.join("\n")),
    }
}

fn title(bug: &Bug) -> String {
    format!("the planted bug \"{}\", src/{}", bug.name, bug.file)
}

/// Puts another text into a file.
pub(crate) fn edit(
    path: &Path,
    change: impl FnOnce(String) -> Result<String, String>,
) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(failed)?;
    fs::write(path, change(text)?).map_err(failed)
}

/// Turns inner attributes and inner comments, which `include!` rejects, into plain comments. No offset in the text
/// changes.
pub(crate) fn without_inner_attributes(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        if let Some(rest) = line.strip_prefix("//!") {
            format!("// {rest}")
        } else if let Some(rest) = line.strip_prefix("#![") {
            format!("//[{rest}")
        } else {
            line.to_owned()
        }
    });
    lines.collect()
}
