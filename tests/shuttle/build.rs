//! Copies the files of the library that are compiled for shuttle, and plants bugs in the copies.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is how cargo is told"
)]

#[path = "planted.rs"]
mod own;
#[path = "../sim/planted/mod.rs"]
mod planted;
#[path = "../sim/planting.rs"]
mod planting;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

/// The sources that are compiled here with bugs: these files of `src`, and this folder's.
const FILES: [&str; 3] = ["engine/timer.rs", "engine/wait_queue/", "ground/notify.rs"];

fn main() -> ExitCode {
    println!("cargo::rustc-cfg=redlatch_shuttle");
    println!("cargo::rerun-if-changed=../../src");
    match make() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn make() -> Result<(), String> {
    // At run time: a target folder may come from another checkout.
    let folder = |name| env::var_os(name).map(PathBuf::from);
    let here = folder("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?;
    let src = folder("OUT_DIR").ok_or("cargo sets OUT_DIR")?.join("src");
    planting::copy(&here.join("../../src"), &src).map_err(|error| error.to_string())?;
    let is_here = |file: &str| FILES.iter().any(|here| file.starts_with(here));
    let of_simulation = planted::bugs().filter(|bug| is_here(bug.file));
    planting::plant_in_files(&src, own::BUGS.iter().chain(of_simulation))?;
    // `main.rs` includes the files, except for submodules.
    for file in FILES {
        let file = match file.strip_suffix('/') {
            Some(folder) => &format!("{folder}/mod.rs"),
            None => file,
        };
        planting::edit(&src.join(file), |text| {
            Ok(planting::without_inner_attributes(&text))
        })?;
    }
    Ok(())
}
