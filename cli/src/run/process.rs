//! The command as a process, which is started, signalled and reaped.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Code(u8),
    Signal(u8),
}

pub(super) struct Process {
    target: Target,
    switch: Switch,
    gate: Gate,
    pub(super) begun: Instant,
    pub(super) ended: Receiver<Ended>,
    /// Lets the reaper thread reap the command. Before the command is reaped, its id cannot be reused.
    reaps: Sender<()>,
    /// Whether the command may be reaped. Its id may be reused when its group is gone.
    is_pid_released: Cell<bool>,
}

/// How often a killed group is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Process {
    /// The kernel signals the child when the parent *thread* dies, so the calling thread must outlive the command.
    /// `until` is the first deadline of the switch. `valid_until` applies if redlatch dies.
    pub(super) fn start(
        args: &RunArgs,
        guard: &Guard,
        lease: Duration,
        [until, valid_until]: [Duration; 2],
    ) -> Result<Process, Failure> {
        let failed =
            |what: &'static str| move |error: io::Error| Failure::usage(format!("{what}: {error}"));
        let itself = itself()?;
        let mut command = Command::new(&itself);
        // For KILL, the kernel and the switch both send the signal. For TERM, only the switch sends it, so the command gets
        // it once.
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
        // If redlatch's parent ignored SIGCHLD, the kernel would reap the children. Any handler prevents this. Programs
        // that redlatch starts do not inherit the handler.
        flag::register(SIGCHLD, Arc::default())
            .map_err(failed("cannot install a SIGCHLD handler"))?;
        become_subreaper().map_err(failed(
            "cannot become the reaper of the command's descendants",
        ))?;
        let switch = Switch::start(&itself, args.orphan_signal(), leads, &args.title()).map_err(
            failed("cannot start the process that ends the command if redlatch dies"),
        )?;
        let (gate, stdin) = Gate::new().map_err(failed("cannot create a socket"))?;
        command.stdin(stdin);
        let begun = Instant::now();
        let child = command
            .spawn()
            .map_err(failed("cannot start the command"))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(Failure::usage("the command has no process id"));
        };
        switch.arm(pid, until, valid_until);
        let (reports, ended) = unbounded();
        let (reaps, may_reap) = unbounded();
        // The command's orphans become children of this process, so the thread reaps all children.
        thread::Builder::new()
            .name("redlatch-reaps".to_owned())
            .spawn(move || reap(pid, &reports, &may_reap))
            .map_err(failed("cannot start a thread"))?;
        // If this process was stopped past the deadline, the gate stays closed, and the switch ends the child.
        if now() < until {
            gate.open().map_err(failed("cannot start the command"))?;
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

    /// An id that may have been reused gets no signal.
    pub(super) fn signal(&self, signal: Signal) {
        if !(self.is_pid_released.get() && self.is_group_gone()) {
            self.target.signal(signal);
        }
    }

    /// The switch is informed first, so it never signals another process with the id of the ended command.
    pub(super) fn release_pid(&self) {
        match self.target.leads {
            true => self.switch.command_ended(),
            false => self.switch.disarm(),
        }
        self.is_pid_released.set(true);
        // If there is no child, the reaper thread has ended, and `send` fails.
        let _ = self.reaps.send(());
    }

    pub(super) fn is_group_gone(&self) -> bool {
        !self.target.leads || self.target.is_gone()
    }

    /// Returns whether the group is gone.
    pub(super) fn kill_group(&self, within: Duration) -> bool {
        let begun = Instant::now();
        while !self.is_group_gone() {
            if begun.elapsed() > within {
                return false;
            }
            // Another process may have joined the group, so the signal is repeated.
            self.target.signal(Signal::KILL);
            thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// See [`Switch::set_deadline`].
    pub(super) fn set_deadline(&self, until: Duration) -> bool {
        self.switch.set_deadline(until)
    }

    pub(super) fn set_valid_until(&self, time: Duration) {
        self.switch.set_valid_until(time);
    }

    pub(super) fn disarm_switch(&self) {
        self.switch.disarm();
    }

    pub(super) fn was_command_executed(&self) -> bool {
        self.gate.was_command_executed()
    }

    /// Always `false` on other systems than Linux.
    pub(super) fn ignores_int(&self) -> bool {
        let pid = self.target.pid.as_raw_nonzero();
        ignored(&pid.to_string()) & (1 << (SIGINT - 1)) != 0
    }

    /// Whether the terminal sends its signals to the command directly.
    pub(super) fn shares_terminal(&self) -> bool {
        !self.target.leads && io::stdin().is_terminal()
    }
}

/// Makes this process the parent of the command's orphans, so that none stays in the group as a zombie.
#[cfg(target_os = "linux")]
fn become_subreaper() -> io::Result<()> {
    let ourselves = rustix::process::getpid();
    Ok(rustix::process::set_child_subreaper(Some(ourselves))?)
}

/// On systems other than Linux, process 1 is the parent of orphans.
#[cfg(not(target_os = "linux"))]
fn become_subreaper() -> io::Result<()> {
    Ok(())
}

/// Reports the end of the command first, and reaps the command when `may_reap` allows it.
fn reap(command: Pid, reports: &Sender<Ended>, may_reap: &Receiver<()>) {
    let ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let report = |code: Option<i32>, signal: Option<i32>| {
        if let Some(ended) = ended_of(code, signal) {
            let _ = reports.send(ended);
            let _ = may_reap.recv();
        }
    };
    let mut is_reported = false;
    loop {
        match waitid(WaitId::All, ends) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            // No child is left. If another thread has reaped the command, its exit status is unknown.
            Err(_) => return,
        }
        if !is_reported
            && let Ok(Some(status)) = waitid(WaitId::Pid(command), ends | WaitIdOptions::NOHANG)
        {
            report(status.exit_status(), status.terminating_signal());
            is_reported = true;
        }
        // If the command ends right now, this `wait` may reap it.
        if let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG)
            && pid == command
            && !is_reported
        {
            report(status.exit_status(), status.terminating_signal());
            is_reported = true;
        }
    }
}

fn ended_of(code: Option<i32>, signal: Option<i32>) -> Option<Ended> {
    let number = |it: i32| u8::try_from(it).unwrap_or(u8::MAX);
    let code = code.map(|code| Ended::Code(number(code)));
    code.or(signal.map(|signal| Ended::Signal(number(signal))))
}
