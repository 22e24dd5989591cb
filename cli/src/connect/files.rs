//! The files that arguments name.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::errors::Failure;
use crate::output::note;

/// Reads a file with one secret in it.
pub(super) fn load_secret(path: &Path) -> Result<String, Failure> {
    let text = read_secret(path)?;
    let shown = path.display();
    let wrong = |error| Failure::usage(format!("{shown} cannot be read: {error}"));
    let mode = fs::metadata(path).map_err(wrong)?.permissions().mode();
    if mode & 0o077 != 0 {
        note(&format!(
            "others can read {shown}, which has a secret; chmod 600 it"
        ));
    }
    Ok(text)
}

/// The same, without a look at who else can read it.
pub(super) fn read_secret(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let wrong = |error| Failure::usage(format!("{shown} cannot be read: {error}"));
    let text = fs::read_to_string(path).map_err(wrong)?;
    let text = text.trim_end_matches(['\r', '\n']).to_owned();
    match text.is_empty() {
        true => Err(Failure::usage(format!("{shown} is empty"))),
        false => Ok(text),
    }
}
