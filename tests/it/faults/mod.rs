//! Faults, by the failing side. `README.md` in this folder lists them all by number.

mod kinds;
mod process;
mod server;
mod transport;
mod waiting;

/// Runs `role` in a child process; returns false for a role of other files.
pub(crate) fn play(role: &str) -> bool {
    process::play(role) || transport::play(role) || waiting::play(role)
}
