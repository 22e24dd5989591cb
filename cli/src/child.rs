//! `redlatch __child`: the process that becomes the command.
//!
//! It asks the kernel for a signal when redlatch dies. `fork` clears that request, so the process that calls `exec`
//! makes it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::Signal;

use crate::exit_codes::{CANNOT_BE_EXECUTED, NOT_FOUND};
use crate::gate::GateWaiter;
use crate::output::note;
use crate::stderr;

/// The argument with which redlatch starts this process.
pub(crate) const CHILD: &str = "__child";

/// Limit for printing why the command was not started.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Encodes the signal for an orphaned command, 0 for none.
pub(crate) fn encode_signal(orphan: Option<Signal>) -> String {
    orphan.map_or(0, Signal::as_raw).to_string()
}

/// Decodes `encode_signal`.
pub(crate) fn decode_signal(word: &str) -> Option<Signal> {
    word.parse().ok().and_then(Signal::from_named_raw)
}

/// Executes the command: `__child SIGNAL COMMAND [ARG...]`.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let [signal, command, rest @ ..] = arguments else {
        return fail(
            "__child is internal to redlatch; use redlatch run",
            CANNOT_BE_EXECUTED,
        );
    };
    let signal = signal.to_str().and_then(decode_signal);
    // Set before the wait: redlatch's death either closes the gate or sends the signal.
    if let Err(error) = set_parent_death_signal(signal) {
        let text =
            format!("the command was not started, as it cannot be tied to redlatch: {error}");
        return fail(&text, CANNOT_BE_EXECUTED);
    }
    let gate = match GateWaiter::wait() {
        Ok(gate) => gate,
        Err(error) => {
            let text = format!(
                "the command was not started, as redlatch or its lock ended first: {error}"
            );
            return fail(&text, CANNOT_BE_EXECUTED);
        }
    };
    // If the report fails, redlatch is dead and this process is about to be signalled.
    let _ = gate.report();
    let error = Command::new(command).args(rest).exec();
    let _ = gate.report();
    let shown = command.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => fail(&format!("{shown}: command not found"), NOT_FOUND),
        _ => fail(
            &format!("cannot execute {shown}: {error}"),
            CANNOT_BE_EXECUTED,
        ),
    }
}

/// Asks the kernel for a signal when the parent dies.
#[cfg(target_os = "linux")]
fn set_parent_death_signal(signal: Option<Signal>) -> rustix::io::Result<()> {
    match signal {
        Some(_) => rustix::process::set_parent_process_death_signal(signal),
        None => Ok(()),
    }
}

/// Other systems have no such signal.
#[cfg(not(target_os = "linux"))]
fn set_parent_death_signal(_: Option<Signal>) -> rustix::io::Result<()> {
    Ok(())
}

fn fail(text: &str, code: u8) -> ExitCode {
    // stderr may block, and the lock is held until this process ends.
    let _ = stderr::detach();
    note(text);
    stderr::flush(FLUSH_TIMEOUT);
    ExitCode::from(code)
}
