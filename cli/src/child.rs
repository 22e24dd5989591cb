//! `redlatch __child`: the process that later executes the command.
//!
//! This process asks the kernel for a signal when redlatch dies. `fork` clears such a request, so the process that
//! calls `exec` has to make the request.

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

pub(crate) const CHILD: &str = "__child";

const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// 0 stands for no signal.
pub(crate) fn encode_signal(orphan: Option<Signal>) -> String {
    orphan.map_or(0, Signal::as_raw).to_string()
}

pub(crate) fn decode_signal(word: &str) -> Option<Signal> {
    word.parse().ok().and_then(Signal::from_named_raw)
}

/// The arguments are `__child SIGNAL COMMAND [ARG...]`.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let [signal, command, rest @ ..] = arguments else {
        return fail(
            "__child is internal to redlatch; use redlatch run",
            CANNOT_BE_EXECUTED,
        );
    };
    let signal = signal.to_str().and_then(decode_signal);
    // The request precedes the wait at the gate. So redlatch's death either closes the gate, or sends the signal.
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
    // A report fails only if redlatch is dead. `--orphan` then decides what happens to this process.
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

#[cfg(target_os = "linux")]
fn set_parent_death_signal(signal: Option<Signal>) -> rustix::io::Result<()> {
    match signal {
        Some(_) => rustix::process::set_parent_process_death_signal(signal),
        None => Ok(()),
    }
}

/// Not supported on other systems than Linux.
#[cfg(not(target_os = "linux"))]
fn set_parent_death_signal(_: Option<Signal>) -> rustix::io::Result<()> {
    Ok(())
}

fn fail(text: &str, code: u8) -> ExitCode {
    // stderr may block, and the lock stays held until this process ends. So printing has a time limit.
    let _ = stderr::detach();
    note(text);
    stderr::flush(FLUSH_TIMEOUT);
    ExitCode::from(code)
}
