//! Shared libraries that replace functions of the system in a program under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::NamedTempFile;

/// Compiles a shared library of this name, and returns its path.
pub fn compiled(name: &str, text: &str) -> PathBuf {
    let target = folder().join(name).with_extension("so");
    // Several test processes may compile at the same time, while a server loads the old file. Only a rename replaces
    // it atomically.
    let fresh = NamedTempFile::new_in(folder())
        .expect("a file for the shim")
        .into_temp_path();
    // The source text, because tests of several packages include this file.
    let source = fresh.with_extension("c");
    fs::write(&source, text).expect("the text of the shim can be written");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&*fresh)
        .args(["-x", "c"])
        .arg(&source)
        .arg("-ldl");
    let output = compiler
        .output()
        .expect("a C compiler called `cc`; `make test` says how to get one");
    drop(fs::remove_file(&source));
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    fresh
        .persist(&target)
        .expect("the shim can be put in place");
    target
}

/// Cargo's folder for files of tests.
fn folder() -> &'static Path {
    // Unit tests have none.
    Path::new(option_env!("CARGO_TARGET_TMPDIR").unwrap_or("."))
}
