//! The command as a process: started, signalled, reaped.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use redlatch::Guard;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, test_kill_process,
    test_kill_process_group, wait,
};

use signal_hook::consts::SIGCHLD;
use signal_hook::flag;

use super::arguments::Args;
use super::dead_man::{Switch, now};
use super::obtain::VISITORS;
use crate::child::{CHILD, word_of};
use crate::connect::secret_variables;
use crate::errors::Failure;
use crate::gate::Gate;

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Code(u8),
    Signal(u8),
}

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

/// A command that runs.
pub(super) struct Process {
    target: Target,
    switch: Switch,
    gate: Gate,
    pub(super) begun: Instant,
    pub(super) ended: Receiver<Ended>,
}

impl Process {
    /// Starts the command. The calling thread has to live as long as it: the kernel ends it with its parent *thread*.
    ///
    /// It may live until this time of the clock of the switch, until more is allowed.
    pub(super) fn start(
        args: &Args,
        guard: &Guard,
        lease: Duration,
        until: Duration,
    ) -> Result<Process, Failure> {
        let failed = |what: &str, error: io::Error| Failure::usage(format!("{what}: {error}"));
        let itself = itself().map_err(|error| failed("redlatch does not find itself", error))?;
        let mut command = Command::new(itself);
        // KILL comes from the kernel and from the switch; TERM, which may be counted, from the switch alone.
        let from_kernel = args.orphan_signal().filter(|it| *it == Signal::KILL);
        command.args([CHILD, &word_of(from_kernel)]);
        command.args(&args.command);
        if !args.keep_credentials {
            for name in secret_variables() {
                command.env_remove(name);
            }
        }
        command.env("REDLATCH_LOCK", args.title());
        command.env("REDLATCH_LEASE_MS", lease.as_millis().to_string());
        let visitor = guard.visitor().as_str();
        let visitors = match env::var(VISITORS) {
            Ok(around) if !around.is_empty() => format!("{around} {visitor}"),
            _ => visitor.to_owned(),
        };
        command.env(VISITORS, visitors);
        match guard.fencing_token() {
            Some(fence) => command.env("REDLATCH_FENCE", fence.to_string()),
            None => command.env_remove("REDLATCH_FENCE"),
        };
        let leads = !args.foreground && !io::stdin().is_terminal();
        if leads {
            command.process_group(0);
        }
        // Our parent may have ignored the ends of its children, and then the system does not tell us of ours. A handler,
        // whatever it does, ends that, and no program that we start inherits it.
        flag::register(SIGCHLD, Arc::default())
            .map_err(|error| failed("the end of the command could not be noticed", error))?;
        let switch = Switch::start(args.orphan_signal(), leads, &args.title())
            .map_err(|error| failed("the watch over the command could not be started", error))?;
        let (gate, stdin) =
            Gate::close().map_err(|error| failed("no socket could be made", error))?;
        command.stdin(stdin);
        let begun = Instant::now();
        let child = command
            .spawn()
            .map_err(|error| failed("the command could not be started", error))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(Failure::usage("the command has no process id"));
        };
        switch.arm(pid, until);
        let (told, ended) = unbounded();
        // Whatever child ends is reaped, for as process 1 of a container we get those of others.
        thread::Builder::new()
            .name("redlatch-reaps".to_owned())
            .spawn(move || reap(pid, &told))
            .map_err(|error| failed("no thread could be started", error))?;
        // This process may have been stopped meanwhile: then the switch ends the other one before the gate.
        if now() < until {
            gate.open()
                .map_err(|error| failed("the command could not be started", error))?;
        }
        Ok(Process {
            target: Target { pid, leads },
            switch,
            gate,
            begun,
            ended,
        })
    }

    /// Sends a signal to the command, and to its group if it has one.
    pub(super) fn signal(&self, signal: Signal) {
        self.target.signal(signal);
    }

    /// Whether the command, which has ended, has left nothing in its group.
    pub(super) fn rest_is_gone(&self) -> bool {
        !self.target.leads || self.target.is_gone()
    }

    /// Ends what the command has left in its group.
    pub(super) fn sweep(&self) {
        if self.target.leads {
            self.target.signal(Signal::KILL);
        }
    }

    /// Lets the command live until this time, also if this process does nothing more.
    pub(super) fn allow(&self, until: Duration) {
        self.switch.allow(until);
    }

    /// Notes that the command has ended.
    pub(super) fn has_ended(&self) {
        self.switch.disarm();
    }

    /// Whether it became the command before it ended.
    pub(super) fn was_the_command(&self) -> bool {
        self.gate.was_passed()
    }

    /// Whether the terminal tells the command of its signals by itself.
    pub(super) fn shares_terminal(&self) -> bool {
        !self.target.leads && io::stdin().is_terminal()
    }
}

/// This program, also if its file was replaced meanwhile.
pub(super) fn itself() -> io::Result<PathBuf> {
    match cfg!(target_os = "linux") {
        true => Ok(PathBuf::from(OsString::from("/proc/self/exe"))),
        false => env::current_exe(),
    }
}

fn reap(command: Pid, told: &Sender<Ended>) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                if let Some(ended) = ended_of(status) {
                    // The main thread waits for it.
                    let _ = told.send(ended);
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            // There is no child any more. If the command was not among them, the channel closes without an end.
            Err(_) => return,
        }
    }
}

fn ended_of(status: WaitStatus) -> Option<Ended> {
    let number = |it: i32| u8::try_from(it).unwrap_or(u8::MAX);
    let code = status.exit_status().map(|code| Ended::Code(number(code)));
    code.or(status
        .terminating_signal()
        .map(|signal| Ended::Signal(number(signal))))
}
