//! The Lua scripts as the library sends them.

#[allow(
    clippy::duplicate_mod,
    reason = "the unit tests of the library have it, too"
)]
#[path = "../../src/stores/redis/scripts/pieces.rs"]
mod pieces;

use std::fs;
use std::path::{Path, PathBuf};

/// All scripts: the path of each below the folder of the kinds, and the text of its file.
pub fn all() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kinds = root.join("src/stores/redis/kinds");
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let (folders, files): (Vec<_>, Vec<_>) =
        entries(&kinds).into_iter().partition(|it| it.is_dir());
    let mut files: Vec<_> = files
        .into_iter()
        .chain(folders.iter().flat_map(|folder| entries(folder)))
        .filter(|path| path.extension().is_some_and(|it| it == "lua"))
        .collect();
    files.sort();
    let named = |path: &PathBuf| {
        let name = path.strip_prefix(&kinds).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    files.iter().map(named).collect()
}

/// The text that is sent: the file's, with the shared pieces inserted.
pub fn spliced(text: &str) -> String {
    pieces::spliced(text)
}

/// The hash of a script, from the text of its file.
pub fn hash(text: &str) -> String {
    redis::Script::new(&spliced(text)).get_hash().to_owned()
}
