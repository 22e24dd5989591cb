//! Faults, by the side that fails. `README.md` in this folder has the table of all of them, which the numbers refer to.

mod kinds;
mod process;
mod server;
mod transport;
mod waiting;

/// Plays `role` in a child process; false if it is not one of these files.
pub(crate) fn play(role: &str) -> bool {
    process::play(role) || transport::play(role) || waiting::play(role)
}
