//! `redlatch __child`: the last step before the command, in its own process.
//!
//! The kernel is told to end this process when the one that holds the lock dies. Nothing in between may forget that, so it is
//! said here, and not before a fork.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::Signal;

use crate::gate::GateWaiter;
use crate::output::note;
use crate::stderr;

/// The argument by which the command calls itself.
pub(crate) const CHILD: &str = "__child";

/// The exit codes of env(1) for a command that cannot be started.
const CANNOT_BE_EXECUTED: u8 = 126;
const NOT_FOUND: u8 = 127;

/// For so long somebody may take to read why it was not started.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The word for a signal of the dead, and for none.
pub(crate) fn encode_signal(orphan: Option<Signal>) -> String {
    orphan.map_or(0, Signal::as_raw).to_string()
}

/// The signal of such a word.
pub(crate) fn decode_signal(word: &str) -> Option<Signal> {
    word.parse().ok().and_then(Signal::from_named_raw)
}

/// Becomes the command: `__child SIGNAL COMMAND [ARG...]`.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let [signal, command, rest @ ..] = arguments else {
        return fail("it was called by hand", CANNOT_BE_EXECUTED);
    };
    let signal = signal.to_str().and_then(decode_signal);
    // Before the wait, so that a death is noticed by the one or by the other.
    if let Err(error) = set_parent_death_signal(signal) {
        let text = format!("the command could not be tied to its lock: {error}");
        return fail(&text, CANNOT_BE_EXECUTED);
    }
    let gate = match GateWaiter::wait() {
        Ok(gate) => gate,
        Err(error) => {
            let text = format!("the lock was gone before the command began: {error}");
            return fail(&text, CANNOT_BE_EXECUTED);
        }
    };
    // redlatch is gone if it cannot be told, and then this process is about to be.
    let _ = gate.report();
    let error = Command::new(command).args(rest).exec();
    let _ = gate.report();
    let shown = command.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => fail(&format!("{shown}: command not found"), NOT_FOUND),
        _ => fail(
            &format!("{shown} cannot be executed: {error}"),
            CANNOT_BE_EXECUTED,
        ),
    }
}

/// Has the kernel send this process a signal when its parent dies.
#[cfg(target_os = "linux")]
fn set_parent_death_signal(signal: Option<Signal>) -> rustix::io::Result<()> {
    match signal {
        Some(_) => rustix::process::set_parent_process_death_signal(signal),
        None => Ok(()),
    }
}

/// Elsewhere there is no such signal.
#[cfg(not(target_os = "linux"))]
fn set_parent_death_signal(_: Option<Signal>) -> rustix::io::Result<()> {
    Ok(())
}

fn fail(text: &str, code: u8) -> ExitCode {
    // Nobody may read it, and the lock is held until this process ends.
    let _ = stderr::detach();
    note(text);
    stderr::flush(FLUSH_TIMEOUT);
    ExitCode::from(code)
}
