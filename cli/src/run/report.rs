//! `--report`: writes the outcome of a run for programs.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use serde::Serialize;

use crate::errors::Failure;
use crate::output::{SCHEMA, millis};

#[derive(Default)]
pub(super) struct RunReport {
    pub(super) obtained: bool,
    pub(super) skipped: bool,
    pub(super) waited: Duration,
    pub(super) held: Duration,
    pub(super) lost: Option<String>,
    pub(super) code: Option<u8>,
    pub(super) command_code: Option<u8>,
    pub(super) signal: Option<u8>,
    error: Option<String>,
}

/// The format is `cli/schema/report.json`.
#[derive(Serialize)]
struct ReportObject<'a> {
    schema: u32,
    obtained: bool,
    skipped: bool,
    waited_ms: u64,
    held_ms: u64,
    lost: bool,
    why: Option<&'a str>,
    code: Option<u8>,
    command_code: Option<u8>,
    signal: Option<u8>,
    error: Option<&'a str>,
}

impl RunReport {
    pub(super) fn failed(&mut self, failure: &Failure) {
        self.error = Some(failure.to_string());
    }

    pub(super) fn write(&self, file: &Path) -> Result<(), Failure> {
        let object = ReportObject {
            schema: SCHEMA,
            obtained: self.obtained,
            skipped: self.skipped,
            waited_ms: millis(self.waited),
            held_ms: millis(self.held),
            lost: self.lost.is_some(),
            why: self.lost.as_deref(),
            code: self.code,
            command_code: self.command_code,
            signal: self.signal,
            error: self.error.as_deref(),
        };
        let line =
            serde_json::to_string(&object).map_err(|error| Failure::output(&error.into()))?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        // Opening a named pipe without a reader must not block.
        options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let written = options
            .open(file)
            .and_then(|mut file| file.write_all((line + "\n").as_bytes()));
        written.map_err(|error| {
            Failure::usage(format!(
                "cannot write the report {}: {error}",
                file.display()
            ))
        })
    }
}
