//! The package of the other lock crates.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds it into the target folder of this program. `None` if that fails.
pub(crate) fn build() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    // target/release/deps/contention-…
    let target = program.ancestors().nth(3)?.join("peers");
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    println!("building the peers …");
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(&package)
        .arg("--target-dir")
        .arg(&target)
        .stdin(Stdio::null())
        .status();
    let peers = target.join("release/redlatch-peers");
    match built {
        Ok(status) if status.success() && peers.exists() => Some(peers),
        failed => {
            eprintln!();
            eprintln!(
                "!! the other crates are LEFT OUT: {} cannot be built ({failed:?})",
                package.display()
            );
            eprintln!();
            None
        }
    }
}

/// Replaces this process by the program of the peers: its path, then its arguments.
pub(crate) fn become_workers(args: &[String]) {
    let error = Command::new(&args[0]).args(&args[1..]).exec();
    panic!("{}: {error}", args[0]);
}
