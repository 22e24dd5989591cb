//! The scripts of the library: each as the text that it sends.

#[path = "../../../src/stores/redis/scripts/pieces.rs"]
mod pieces;

use std::path::Path;
use std::sync::LazyLock;
use std::{fs, io};

/// A script and its text.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The path of its text below `src/stores/redis/kinds`, without the extension.
    pub name: &'static str,
    /// The text in Lua.
    pub text: &'static str,
}

/// All scripts, read from the source of the library.
pub static ALL: LazyLock<Vec<Script>> = LazyLock::new(|| {
    let mut all = Vec::new();
    let kinds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/stores/redis/kinds");
    read(Path::new(kinds), "", &mut all).unwrap_or_else(|error| panic!("{kinds}: {error}"));
    all.sort_by_key(|script| script.name);
    all
});

fn read(folder: &Path, prefix: &str, all: &mut Vec<Script>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            read(&path, &format!("{name}/"), all)?;
        } else if path.extension().is_some_and(|it| it == "lua") {
            all.push(Script {
                name: name.leak(),
                text: spliced(&fs::read_to_string(&path)?).leak(),
            });
        }
    }
    Ok(())
}

/// The script of this name.
pub fn named(name: &str) -> Option<&'static Script> {
    ALL.iter().find(|script| script.name == name)
}

impl Script {
    /// The text for nodes whose messages are sharded.
    pub fn sharded_text(&self) -> String {
        sharded(self.text)
    }
}

/// A text for nodes whose messages are sharded.
pub(crate) fn sharded(text: &str) -> String {
    let text = text.replace("'PUBLISH'", "'SPUBLISH'");
    text.replace("'NUMSUB'", "'SHARDNUMSUB'")
}

/// The text that is sent: the file's, with the shared pieces inserted.
pub fn spliced(text: &str) -> String {
    pieces::spliced(text)
}

/// The hash of a script's text.
pub fn hash(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}
