//! Makes the library that the simulation runs: a copy of `src` in which some files are replaced and bugs are planted.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is how cargo is told"
)]

mod planted;
mod planting;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

/// Files of `src`, or new ones there, and their replacements: threads, clocks, randomness and network of the world.
const SWAPPED: [(&str, &str); 9] = [
    ("engine/owner/thread_holds.rs", "swapped/thread_holds.rs"),
    ("ground/host.rs", "swapped/host.rs"),
    ("ground/poll.rs", "swapped/poll.rs"),
    ("ground/random.rs", "swapped/random.rs"),
    ("ground/sync.rs", "swapped/sync.rs"),
    ("ground/time.rs", "swapped/time.rs"),
    ("stores/host_names.rs", "swapped/names.rs"),
    ("stores/redis/transport/socket.rs", "swapped/socket.rs"),
    ("stores/connection_pool.rs", "swapped/connection_pool.rs"),
];

/// Code appended to files in the simulation, to access their private items.
const ADDED: [(&str, &str); 2] = [
    ("engine/owner/mod.rs", "pub mod thread_holds;\n"),
    (
        "engine/hold/renewal_schedule.rs",
        "\
impl Hold {
    /// The lease of its renewals, if it is renewed.
    pub(crate) fn renewed_lease(&self) -> Option<Duration> {
        self.state.lock().renewed_lease()
    }
}
",
    ),
];

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=../../src");
    println!("cargo::rerun-if-changed=swapped");
    // Features and cfgs that the copy does not use.
    println!(
        "cargo::rustc-check-cfg=cfg(feature, values(\"metrics\", \"mysql\", \"tls\", \"tracing\", \"test-util\", \"in-memory\"))"
    );
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
    planting::plant_in_files(&src, planted::bugs())?;
    for (file, swapped) in SWAPPED {
        let (from, to) = (here.join(swapped), src.join(file));
        std::fs::copy(from, to).map_err(|error| format!("{swapped}: {error}"))?;
    }
    for (file, added) in ADDED {
        planting::edit(&src.join(file), |text| Ok(text + "\n" + added))?;
    }
    planting::edit(&src.join("lib.rs"), |text| {
        Ok(planting::without_inner_attributes(&text))
    })
}
