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

use crate::gate::Passage;
use crate::output::note;
use crate::stderr;

/// The argument by which the command calls itself.
pub(crate) const CHILD: &str = "__child";

/// The exit codes of env(1) for a command that cannot be started.
const CANNOT_BE_EXECUTED: u8 = 126;
const NOT_FOUND: u8 = 127;

/// For so long somebody may take to read why it was not started.
const PATIENCE: Duration = Duration::from_secs(1);

/// The word for a signal of the dead, and for none.
pub(crate) fn word_of(orphan: Option<Signal>) -> String {
    orphan.map_or(0, Signal::as_raw).to_string()
}

/// The signal of such a word.
pub(crate) fn signal_of(word: &str) -> Option<Signal> {
    word.parse().ok().and_then(Signal::from_named_raw)
}

/// Becomes the command: `__child SIGNAL COMMAND [ARG...]`.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let [signal, command, rest @ ..] = arguments else {
        return failed("it was called by hand", CANNOT_BE_EXECUTED);
    };
    let signal = signal.to_str().and_then(signal_of);
    // Before the wait, so that a death is noticed by the one or by the other.
    if let Err(error) = follow(signal) {
        let text = format!("the command could not be tied to its lock: {error}");
        return failed(&text, CANNOT_BE_EXECUTED);
    }
    let passage = match Passage::wait() {
        Ok(passage) => passage,
        Err(error) => {
            let text = format!("the lock was gone before the command began: {error}");
            return failed(&text, CANNOT_BE_EXECUTED);
        }
    };
    // redlatch is gone if it cannot be told, and then this process is about to be.
    let _ = passage.say();
    let error = Command::new(command).args(rest).exec();
    let _ = passage.say();
    let shown = command.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => failed(&format!("{shown}: command not found"), NOT_FOUND),
        _ => failed(
            &format!("{shown} cannot be executed: {error}"),
            CANNOT_BE_EXECUTED,
        ),
    }
}

/// Has the kernel send this process a signal when its parent dies.
#[cfg(target_os = "linux")]
fn follow(signal: Option<Signal>) -> rustix::io::Result<()> {
    match signal {
        Some(_) => rustix::process::set_parent_process_death_signal(signal),
        None => Ok(()),
    }
}

/// Elsewhere there is no such signal.
#[cfg(not(target_os = "linux"))]
fn follow(_: Option<Signal>) -> rustix::io::Result<()> {
    Ok(())
}

fn failed(text: &str, code: u8) -> ExitCode {
    // Nobody may read it, and the lock is held until this process ends.
    let _ = stderr::detach();
    note(text);
    stderr::flush(PATIENCE);
    ExitCode::from(code)
}
