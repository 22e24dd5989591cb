//! The processes of the command, and the path of the redlatch executable.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, kill_process, kill_process_group, test_kill_process, test_kill_process_group,
};

use crate::errors::Failure;

pub(super) struct Target {
    pub(super) pid: Pid,
    /// Whether the process leads a group, which then gets the signals.
    pub(super) leads: bool,
}

impl Target {
    pub(super) fn signal(&self, signal: Signal) {
        // The processes may have ended.
        let _ = match self.leads {
            true => kill_process_group(self.pid, signal),
            false => kill_process(self.pid, signal),
        };
    }

    /// Whether all processes have ended, so that their id may be reused.
    pub(super) fn is_gone(&self) -> bool {
        let found = match self.leads {
            true => test_kill_process_group(self.pid),
            false => test_kill_process(self.pid),
        };
        found == Err(Errno::SRCH)
    }
}

/// Returns the path of this program. On Linux, the path stays valid if the file is replaced.
pub(super) fn itself() -> Result<PathBuf, Failure> {
    let lost =
        |error: io::Error| Failure::usage(format!("cannot find the redlatch executable: {error}"));
    if !cfg!(target_os = "linux") {
        return env::current_exe().map_err(lost);
    }
    let path = PathBuf::from("/proc/self/exe");
    match fs::read_link(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(Failure::usage(format!(
            "cannot read /proc/self/exe, which redlatch run executes: {error}; mount /proc"
        ))),
    }
}
