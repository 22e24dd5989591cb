//! Failures of redlatch: a message and an exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

use redlatch::{Error, LockInfo, LockKind};
use serde::Serialize;

use crate::escape::escape;
use crate::exit_codes::{FORBIDDEN, OUTPUT_FAILED, UNREACHABLE, USAGE};
use crate::output::SCHEMA;
use crate::stderr;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

#[derive(Debug)]
pub(crate) struct Failure {
    kind: &'static str,
    text: String,
    lock: Option<String>,
    node: Option<String>,
    code: u8,
    /// Whether nothing is printed. Set if the reader has closed the pipe.
    is_silent: bool,
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    schema: u32,
    error: ErrorFields<'a>,
}

#[derive(Serialize)]
struct ErrorFields<'a> {
    kind: &'a str,
    message: &'a str,
    lock: Option<&'a str>,
    node: Option<&'a str>,
}

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure {
            kind: "usage",
            text: text.into(),
            lock: None,
            node: None,
            code: USAGE,
            is_silent: false,
        }
    }

    /// Stdout cannot be written. If the reader has closed the pipe, as `head` does, this is a success without a message.
    pub(crate) fn output(error: &io::Error) -> Failure {
        let is_silent = error.kind() == io::ErrorKind::BrokenPipe;
        Failure {
            kind: "output",
            is_silent,
            code: if is_silent { 0 } else { OUTPUT_FAILED },
            ..Failure::usage(format!("the output could not be written: {error}"))
        }
    }

    pub(crate) fn exit_with(printed: Result<(), Failure>, code: u8) -> Result<ExitCode, Failure> {
        match printed {
            Err(failure) if !failure.is_silent => Err(failure),
            _ => Ok(ExitCode::from(code)),
        }
    }

    /// The failure of a request for several locks. The error contains their pattern, which is no lock name.
    pub(crate) fn without_lock(error: Error) -> Failure {
        let text = message_of(&error);
        Failure {
            lock: None,
            text,
            ..Failure::from(error)
        }
    }

    /// The key is a counter or a semaphore, which has no hold to release.
    pub(crate) fn not_a_lock(name: &str, info: &LockInfo) -> Failure {
        let advice = match info.kind {
            LockKind::Counter => {
                "latch or semaphore without owners; count a latch down, add permits to a semaphore, or delete the key"
            }
            _ => {
                "its permits are returned when the lease of their owner ends; Semaphore::add_permits replaces permits \
                 that were never released"
            }
        };
        Failure {
            kind: "wrong_type",
            lock: Some(name.to_owned()),
            node: Some(info.node.to_string()),
            ..Failure::usage(format!(
                "{name} is not a lock but a {}: {advice}",
                info.kind
            ))
        }
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    pub(crate) fn print(&self) {
        self.report(Format::Text);
    }

    pub(crate) fn report(&self, format: Format) -> ExitCode {
        if !self.is_silent {
            let line = match format {
                Format::Text => format!("redlatch: {}", escape(&self.text)),
                Format::Json => self.json(),
            };
            stderr::print(line + "\n");
        }
        ExitCode::from(self.code)
    }

    fn json(&self) -> String {
        let line = ErrorLine {
            schema: SCHEMA,
            error: ErrorFields {
                kind: self.kind,
                message: &self.text,
                lock: self.lock.as_deref(),
                node: self.node.as_deref(),
            },
        };
        serde_json::to_string(&line).unwrap_or_else(|error| error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let kind = error.kind();
        let mut failure = Failure {
            kind,
            lock: error.lock_name().map(str::to_owned),
            node: error.node().map(str::to_owned),
            code: match kind {
                "permission" | "untrusted" => FORBIDDEN,
                "invalid_name" | "invalid_config" | "invalid_lease" | "invalid_wait"
                | "unsupported" | "wrong_type" | "schema" => USAGE,
                _ => UNREACHABLE,
            },
            ..Failure::usage(format!("{error:?}"))
        };
        if kind == "schema" {
            failure.text += "; `redlatch create-tables` creates missing tables";
        }
        failure
    }
}

/// Returns the message of an error, without the lock name at its beginning.
pub(crate) fn message_of(error: &Error) -> String {
    let name = format!("lock {:?}: ", error.lock_name().unwrap_or_default());
    let text = Failure::from(error.clone()).text;
    match text.strip_prefix(&name) {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}
