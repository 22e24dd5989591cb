//! What the run and its dead man's switch both act on: the processes of the command, and this program.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, kill_process, kill_process_group, test_kill_process, test_kill_process_group,
};

use crate::errors::Failure;

/// The processes that signals go to.
pub(super) struct Target {
    pub(super) pid: Pid,
    /// Whether it leads a group of its own, all of which gets them.
    pub(super) leads: bool,
}

impl Target {
    pub(super) fn signal(&self, signal: Signal) {
        // One that has ended gets none.
        let _ = match self.leads {
            true => kill_process_group(self.pid, signal),
            false => kill_process(self.pid, signal),
        };
    }

    /// Whether none of them is left, so that the id may be that of others soon.
    pub(super) fn is_gone(&self) -> bool {
        let found = match self.leads {
            true => test_kill_process_group(self.pid),
            false => test_kill_process(self.pid),
        };
        found == Err(Errno::SRCH)
    }
}

/// This program, also if its file was replaced meanwhile.
pub(super) fn itself() -> Result<PathBuf, Failure> {
    let lost = |error: io::Error| Failure::usage(format!("redlatch does not find itself: {error}"));
    if !cfg!(target_os = "linux") {
        return env::current_exe().map_err(lost);
    }
    let path = PathBuf::from("/proc/self/exe");
    match fs::read_link(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(Failure::usage(format!(
            "redlatch starts itself from /proc/self/exe, which cannot be read: {error}; mount /proc"
        ))),
    }
}
