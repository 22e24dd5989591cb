//! The tree that is changed: a copy of the checkout, with the files of the library's modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use syn::{Item, ItemMod};

use crate::find::is_compiled;

/// Copies what git knows of `root`, and new files that it does not ignore, to `tree`; nothing else stays there. A file is
/// written only if it differs, so that what was compiled stays so. `written` has the files that are not copied.
pub(crate) fn copy(root: &Path, tree: &Path, written: &BTreeMap<String, String>) -> io::Result<()> {
    let listed = files(root)?;
    for file in listed.iter().filter(|file| !written.contains_key(*file)) {
        put(&tree.join(file), &fs::read(root.join(file))?)?;
        let mode = fs::metadata(root.join(file))?.permissions();
        fs::set_permissions(tree.join(file), mode)?;
    }
    for (file, text) in written {
        put(&tree.join(file), text.as_bytes())?;
    }
    let wanted = listed.iter().chain(written.keys());
    clear(tree, &wanted.map(|file| tree.join(file)).collect())
}

/// The files of a checkout that a commit of all would have.
pub(crate) fn files(root: &Path) -> io::Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let files = listed.lines().filter(|file| root.join(file).is_file());
    Ok(files.map(str::to_owned).collect())
}

fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|before| before == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)
}

fn clear(folder: &Path, wanted: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            clear(&path, wanted)?;
        } else if !wanted.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// The files of the library's modules, as paths below `root`, without those for tests.
pub(crate) fn modules(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    follow(root, "src/lib.rs", "src", &mut found)?;
    found.sort();
    Ok(found)
}

fn follow(root: &Path, file: &str, folder: &str, found: &mut Vec<String>) -> Result<(), String> {
    let text = fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))?;
    let tree = syn::parse_file(&text).map_err(|error| format!("{file}: {error}"))?;
    found.push(file.to_owned());
    declared(root, &tree.items, folder, found)
}

fn declared(
    root: &Path,
    items: &[Item],
    folder: &str,
    found: &mut Vec<String>,
) -> Result<(), String> {
    for item in items {
        let Item::Mod(ItemMod {
            attrs,
            ident,
            content,
            ..
        }) = item
        else {
            continue;
        };
        let has_path = attrs
            .iter()
            .any(|attribute| attribute.path().is_ident("path"));
        if has_path || !attrs.iter().all(is_compiled) {
            continue;
        }
        let below = format!("{folder}/{ident}");
        match content {
            Some((_, items)) => declared(root, items, &below, found)?,
            None => {
                let alone = format!("{below}.rs");
                let file = match root.join(&alone).is_file() {
                    true => alone,
                    false => format!("{below}/mod.rs"),
                };
                follow(root, &file, &below, found)?;
            }
        }
    }
    Ok(())
}

/// A number that changes with these texts.
pub(crate) fn fingerprint<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for text in texts {
        text.hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether a path is matched by a pattern, in which `*` stands for any part of a name and `**` for folders.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    match (pattern.strip_prefix("**/"), pattern.strip_prefix('*')) {
        (Some(rest), _) => {
            let folders = path.match_indices('/').map(|(at, _)| at + 1);
            [0].into_iter()
                .chain(folders)
                .any(|at| matches(rest, &path[at..]))
        }
        (None, Some(rest)) => {
            let within = path.find('/').unwrap_or(path.len());
            (0..=within)
                .filter(|at| path.is_char_boundary(*at))
                .any(|at| matches(rest, &path[at..]))
        }
        (None, None) => match (pattern.chars().next(), path.chars().next()) {
            (Some(wanted), Some(sign)) if wanted == sign => {
                matches(&pattern[wanted.len_utf8()..], &path[sign.len_utf8()..])
            }
            (wanted, sign) => wanted.is_none() && sign.is_none(),
        },
    }
}
