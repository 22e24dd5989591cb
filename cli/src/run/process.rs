//! The command as a process: started, signalled, reaped.

use std::cell::Cell;
use std::env;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use redlatch::Guard;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, wait, waitid};
use signal_hook::consts::{SIGCHLD, SIGINT};
use signal_hook::flag;

use super::arguments::RunArgs;
use super::dead_man::{Switch, now};
use super::obtain::VISITORS;
use super::target::{Target, itself};
use crate::child::{CHILD, encode_signal};
use crate::connect::secret_variables;
use crate::errors::Failure;
use crate::gate::Gate;
use crate::signals::ignored;

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Code(u8),
    Signal(u8),
}

/// A command that runs.
pub(super) struct Process {
    target: Target,
    switch: Switch,
    gate: Gate,
    pub(super) begun: Instant,
    pub(super) ended: Receiver<Ended>,
    /// Has the command reaped, which keeps its id until then.
    reaps: Sender<()>,
    /// Whether it may be reaped by now, so that its id may be that of others once its group is gone.
    is_pid_released: Cell<bool>,
}

/// How often it looks whether what was killed is gone.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Process {
    /// Starts the command. The calling thread has to live as long as it: the kernel ends it with its parent *thread*.
    ///
    /// It may live until this time of the clock of the switch, until more is allowed; as an orphan for as long as the lock is valid.
    pub(super) fn start(
        args: &RunArgs,
        guard: &Guard,
        lease: Duration,
        [until, valid_until]: [Duration; 2],
    ) -> Result<Process, Failure> {
        let failed = |what: &str, error: io::Error| Failure::usage(format!("{what}: {error}"));
        let itself = itself()?;
        let mut command = Command::new(&itself);
        // KILL comes from the kernel and from the switch; TERM, which may be counted, from the switch alone.
        let from_kernel = args.orphan_signal().filter(|it| *it == Signal::KILL);
        command.args([CHILD, &encode_signal(from_kernel)]);
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
        become_subreaper()
            .map_err(|error| failed("what the command leaves cannot be adopted", error))?;
        let switch = Switch::start(&itself, args.orphan_signal(), leads, &args.title())
            .map_err(|error| failed("the watch over the command could not be started", error))?;
        let (gate, stdin) =
            Gate::new().map_err(|error| failed("no socket could be made", error))?;
        command.stdin(stdin);
        let begun = Instant::now();
        let child = command
            .spawn()
            .map_err(|error| failed("the command could not be started", error))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(Failure::usage("the command has no process id"));
        };
        switch.arm(pid, until, valid_until);
        let (told, ended) = unbounded();
        let (reaps, may_reap) = unbounded();
        // Whatever child ends is reaped, for what the command leaves is ours.
        thread::Builder::new()
            .name("redlatch-reaps".to_owned())
            .spawn(move || reap(pid, &told, &may_reap))
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
            reaps,
            is_pid_released: Cell::new(false),
        })
    }

    /// Sends a signal to the command, and to its group if it has one.
    pub(super) fn signal(&self, signal: Signal) {
        if !(self.is_pid_released.get() && self.is_group_gone()) {
            self.target.signal(signal);
        }
    }

    /// Gives up the id of the command, which has ended. The switch is told first, so that it never signals those who get that id next.
    pub(super) fn release_pid(&self) {
        match self.target.leads {
            true => self.switch.command_ended(),
            false => self.switch.disarm(),
        }
        self.is_pid_released.set(true);
        // It reaps nothing more if there is no child.
        let _ = self.reaps.send(());
    }

    /// Whether the command, which was let go, has left nothing in its group.
    pub(super) fn is_group_gone(&self) -> bool {
        !self.target.leads || self.target.is_gone()
    }

    /// Kills what the command has left in its group, and waits until that is gone, but not for ever. Returns whether it is.
    pub(super) fn kill_group(&self, within: Duration) -> bool {
        let begun = Instant::now();
        while !self.is_group_gone() {
            if begun.elapsed() > within {
                return false;
            }
            // Again, for another process may have put one into the group.
            self.target.signal(Signal::KILL);
            thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// Lets the command live until this time, also if this process does nothing more.
    pub(super) fn set_deadline(&self, until: Duration) {
        self.switch.set_deadline(until);
    }

    /// Says until when the lock is valid, for the case that this process does nothing more.
    pub(super) fn set_valid_until(&self, time: Duration) {
        self.switch.set_valid_until(time);
    }

    /// Notes that the command has ended.
    pub(super) fn disarm_switch(&self) {
        self.switch.disarm();
    }

    /// Whether it became the command before it ended.
    pub(super) fn was_command_executed(&self) -> bool {
        self.gate.was_command_executed()
    }

    /// Whether the command ignores INT; elsewhere than on Linux nobody tells.
    pub(super) fn ignores_int(&self) -> bool {
        let pid = self.target.pid.as_raw_nonzero();
        ignored(&pid.to_string()) & (1 << (SIGINT - 1)) != 0
    }

    /// Whether the terminal tells the command of its signals by itself.
    pub(super) fn shares_terminal(&self) -> bool {
        !self.target.leads && io::stdin().is_terminal()
    }
}

/// Has the system leave to us what the command leaves, so that none of it stays in its group as a zombie. Process 1 of a container
/// gets it anyway.
#[cfg(target_os = "linux")]
fn become_subreaper() -> io::Result<()> {
    let ourselves = rustix::process::getpid();
    Ok(rustix::process::set_child_subreaper(Some(ourselves))?)
}

/// Elsewhere process 1 gets it.
#[cfg(not(target_os = "linux"))]
fn become_subreaper() -> io::Result<()> {
    Ok(())
}

/// Reaps all children as they end; the command, whose end is told, when that is allowed.
fn reap(command: Pid, told: &Sender<Ended>, may_reap: &Receiver<()>) {
    let ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let tell = |code: Option<i32>, signal: Option<i32>| {
        if let Some(ended) = ended_of(code, signal) {
            // The main thread waits for it, and answers.
            let _ = told.send(ended);
            let _ = may_reap.recv();
        }
    };
    let mut is_loss_reported = false;
    loop {
        match waitid(WaitId::All, ends) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            // There is no child any more. If the command was not among them, the channel closes without an end.
            Err(_) => return,
        }
        if !is_loss_reported
            && let Ok(Some(status)) = waitid(WaitId::Pid(command), ends | WaitIdOptions::NOHANG)
        {
            tell(status.exit_status(), status.terminating_signal());
            is_loss_reported = true;
        }
        // The system does not tell beforehand which one this is: if the command ends right now, it may be that.
        if let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG)
            && pid == command
            && !is_loss_reported
        {
            tell(status.exit_status(), status.terminating_signal());
            is_loss_reported = true;
        }
    }
}

fn ended_of(code: Option<i32>, signal: Option<i32>) -> Option<Ended> {
    let number = |it: i32| u8::try_from(it).unwrap_or(u8::MAX);
    let code = code.map(|code| Ended::Code(number(code)));
    code.or(signal.map(|signal| Ended::Signal(number(signal))))
}
