//! If the machine has no C compiler, names the feature that needs one.
//!
//! Without a C compiler, the build of Lua fails without naming the feature. Cargo runs both builds at the same time, so
//! this error may come too late. The compiler is searched for as the crate `cc` does. Targets for which `cc` has other ways
//! are skipped.
#![allow(
    clippy::print_stdout,
    reason = "cargo reads the output of build scripts"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

fn main() {
    // If this script succeeded once, a C compiler exists, so the script need not run again. Cargo always repeats a failed
    // script.
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(words) = compiler()
        && let Err(reason) = start(&words)
    {
        println!(
            "cargo::error=redlatch: the feature `in-memory` compiles Lua, which needs a C compiler, and `{}` could not be \
             started ({reason}): install one, or build without the feature",
            words.join(" ")
        );
    }
}

/// Returns the compiler and its first arguments. `None` if they are not known.
fn compiler() -> Option<Vec<String>> {
    let (host, target) = (env::var("HOST").ok()?, env::var("TARGET").ok()?);
    if target.contains("msvc") {
        return None;
    }
    let is_native = host == target;
    let kind = if is_native { "HOST_CC" } else { "TARGET_CC" };
    let names = [
        format!("CC_{target}"),
        format!("CC_{}", target.replace(['-', '.'], "_")),
        kind.to_owned(),
        "CC".to_owned(),
    ];
    let chosen = names.iter().find_map(env::var_os);
    let chosen = chosen.unwrap_or_default().to_string_lossy().into_owned();
    let chosen = chosen.trim();
    let is_path =
        |path: &Path| path.is_file() || cfg!(windows) && path.with_extension("exe").is_file();
    // The path may contain spaces.
    if is_path(Path::new(chosen)) {
        return Some(vec![chosen.to_owned()]);
    }
    if !chosen.is_empty() {
        return Some(chosen.split_whitespace().map(str::to_owned).collect());
    }
    // With `linker-plugin-lto`, the compiler may be clang.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let is_plain = is_native && !flags.contains("linker-plugin-lto");
    let name = match env::consts::OS {
        "windows" if target.ends_with("llvm") => "clang",
        "windows" | "solaris" | "illumos" => "gcc",
        "android" | "nto" => return None,
        _ => "cc",
    };
    is_plain.then(|| vec![name.to_owned()])
}

/// Tries to start the compiler. Not every compiler accepts `--version`, so the second attempt compiles a file.
fn start(words: &[String]) -> Result<(), String> {
    let run = |args: &[&str]| {
        let (program, first) = words.split_first().ok_or("no name")?;
        let mut command = Command::new(program);
        command.args(first).args(args).stdin(Stdio::null());
        let output = command.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(output.status.to_string()),
        }
    };
    run(&["--version"]).or_else(|reason| {
        let folder = env::var("OUT_DIR").map_err(|_| reason.clone())?;
        let (source, object) = (format!("{folder}/empty.c"), format!("{folder}/empty.o"));
        fs::write(&source, "int empty;\n").map_err(|_| reason.clone())?;
        run(&["-c", &source, "-o", &object]).map_err(|_| reason)
    })
}
