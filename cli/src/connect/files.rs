//! Files with secrets.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::errors::Failure;
use crate::output::note;

/// Warns if other users can read the file.
pub(super) fn load_secret(path: &Path) -> Result<String, Failure> {
    let text = read_secret(path)?;
    let metadata = fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        note(&format!(
            "{} contains a secret and other users can read it; run chmod 600 on it",
            path.display()
        ));
    }
    Ok(text)
}

/// Does not check the permissions of the file.
pub(super) fn read_secret(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| cannot_read(path, &error))?;
    let text = text.trim_end_matches(['\r', '\n']).to_owned();
    match text.is_empty() {
        true => Err(Failure::usage(format!(
            "{} is empty; write the secret into it",
            path.display()
        ))),
        false => Ok(text),
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", path.display()))
}
