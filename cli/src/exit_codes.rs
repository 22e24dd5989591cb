//! The exit codes of the command. Options of `run` set two more: 120 "not started" and 121 "lock lost".
//! `errors.rs` chooses the code of an error.

/// The answer is no: the lock is free, nothing was released, or the check found a danger.
pub(crate) const NO: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const UNREACHABLE: u8 = 3;
pub(crate) const FORBIDDEN: u8 = 4;
pub(crate) const OUTPUT_FAILED: u8 = 5;

/// An outer run holds the same lock.
pub(crate) const NESTED: u8 = 122;
/// `--max-run` was exceeded; the code of timeout(1).
pub(crate) const TIMED_OUT: u8 = 124;
/// `run` failed, not its command.
pub(crate) const FAILED: u8 = 125;
/// The codes of env(1) for a command that cannot be started.
pub(crate) const CANNOT_BE_EXECUTED: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// The exit code of a process that ends because of a signal, as in shells.
pub(crate) fn of_signal(signal: u8) -> u8 {
    128_u8.saturating_add(signal)
}
