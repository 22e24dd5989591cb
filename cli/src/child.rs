//! `redlatch __child`: the last step before the command, in its own process.
//!
//! The kernel is told to end this process when the one that holds the lock dies. Nothing in between may forget that, so it is
//! said here, and not before a fork.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::Signal;

/// The argument by which the command calls itself.
pub(crate) const CHILD: &str = "__child";

/// The exit codes of env(1) for a command that cannot be started.
const CANNOT_BE_EXECUTED: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The word for a signal of the dead, and for none.
pub(crate) fn word_of(orphan: Option<Signal>) -> String {
    orphan.map_or(0, Signal::as_raw).to_string()
}

/// The signal of such a word.
pub(crate) fn signal_of(word: &str) -> Option<Signal> {
    word.parse().ok().and_then(Signal::from_named_raw)
}

/// Becomes the command: `__child PARENT SIGNAL COMMAND [ARG...]`.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let [parent, signal, command, rest @ ..] = arguments else {
        return failed("it was called by hand", CANNOT_BE_EXECUTED);
    };
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse::<i32>().ok());
    let (Some(parent), Some(signal)) = (number(parent), number(signal)) else {
        return failed("it was called by hand", CANNOT_BE_EXECUTED);
    };
    if let Err(error) = follow(parent, signal) {
        return failed(&error, CANNOT_BE_EXECUTED);
    }
    let error = Command::new(command).args(rest).exec();
    let shown = command.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => failed(&format!("{shown}: command not found"), NOT_FOUND),
        _ => failed(
            &format!("{shown} cannot be executed: {error}"),
            CANNOT_BE_EXECUTED,
        ),
    }
}

/// Has the kernel send this process a signal when its parent dies; an error if that is dead already.
#[cfg(target_os = "linux")]
fn follow(parent: i32, signal: i32) -> Result<(), String> {
    if let Some(signal) = Signal::from_named_raw(signal) {
        rustix::process::set_parent_process_death_signal(Some(signal))
            .map_err(|error| format!("the command could not be tied to its lock: {error}"))?;
    }
    let is_there = rustix::process::getppid().is_some_and(|it| it.as_raw_nonzero().get() == parent);
    match is_there || signal == 0 {
        true => Ok(()),
        false => Err("the lock was gone before the command began".to_owned()),
    }
}

/// Elsewhere there is no such signal.
#[cfg(not(target_os = "linux"))]
fn follow(_: i32, _: i32) -> Result<(), String> {
    Ok(())
}

fn failed(text: &str, code: u8) -> ExitCode {
    // Nobody is left to be told that this failed, too.
    let _ = writeln!(io::stderr(), "redlatch: {}", crate::output::visible(text));
    ExitCode::from(code)
}
