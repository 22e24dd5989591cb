//! The dead man's switch: a process beside redlatch that ends the command when redlatch no longer supervises it.
//!
//! redlatch may be killed, or stopped for longer than its lock is valid. At redlatch's death the kernel signals only
//! the command, none of its descendants, and a stop signals no process. redlatch therefore sends a new deadline again
//! and again. The switch kills the whole process group at that deadline or at redlatch's death.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag;

use super::target::Target;
use crate::child::{decode_signal, encode_signal};
use crate::errors::Failure;
use crate::output::note;
use crate::stderr;

/// The argument with which redlatch starts the switch.
pub(crate) const SWITCH: &str = "__switch";

/// The longest poll: its timer stops while the machine is suspended.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The poll interval while a command is asked to end.
pub(super) const FAST_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Message in place of a deadline: nothing is watched any more.
const ENDED: u64 = 0;

/// Message in place of a deadline: the command has ended, its group may still exist.
const COMMAND_ENDED: u64 = 1;

/// Flag of a deadline: the lock's validity, which `--on-lost warn` lets the command outlive.
const VALID: u64 = 1 << 63;

/// A message is a sequence of words: first the process id, then times of `now` in ns.
const WORD: usize = size_of::<u64>();

/// The clock of leases, common to all processes of the machine.
pub(super) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// Encodes a time.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(!VALID, |nanos| nanos.min(!VALID))
}

/// redlatch's end.
pub(super) struct Switch {
    pipe: ChildStdin,
    /// Whether the switch may exit, or its exit is already reported.
    is_gone: Cell<bool>,
}

impl Switch {
    /// Starts the switch, before the command, so that no command runs without one.
    pub(super) fn start(
        itself: &Path,
        orphan: Option<Signal>,
        leads: bool,
        title: &str,
    ) -> io::Result<Switch> {
        let mut child = Command::new(itself)
            .args([
                SWITCH,
                &encode_signal(orphan),
                if leads { "1" } else { "0" },
                title,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Signals of the terminal and to the command's group must not reach the switch.
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // A stopped switch must not block redlatch.
        fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        Ok(Switch {
            pipe,
            is_gone: Cell::new(false),
        })
    }

    /// Passes the command's process id, the deadline for the command and the end of the lock's validity, which applies
    /// if redlatch dies.
    pub(super) fn arm(&self, pid: Pid, deadline: Duration, valid_until: Duration) {
        let pid = u64::from(pid.as_raw_nonzero().get().unsigned_abs());
        // A single write, so that the switch never has a process id without a deadline.
        self.send(&[pid, nanos(valid_until) | VALID, nanos(deadline)]);
    }

    /// Moves the deadline of the command.
    pub(super) fn set_deadline(&self, deadline: Duration) {
        self.send(&[nanos(deadline)]);
    }

    /// Moves the end of the validity, which is the deadline of an orphaned command.
    pub(super) fn set_valid_until(&self, time: Duration) {
        self.send(&[nanos(time) | VALID]);
    }

    /// Reports that the command has ended. Its id may be reused once its group is gone.
    pub(super) fn command_ended(&self) {
        self.send(&[COMMAND_ENDED]);
        // The switch may exit from now on.
        self.is_gone.set(true);
    }

    /// Ends the switch after the end of the command.
    pub(super) fn disarm(&self) {
        self.send(&[ENDED]);
        self.is_gone.set(true);
    }

    fn send(&self, words: &[u64]) {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        match (&self.pipe).write(&words) {
            Err(error)
                if error.kind() == io::ErrorKind::BrokenPipe && !self.is_gone.replace(true) =>
            {
                note(
                    "the process that ends the command if redlatch dies has exited; this run continues without it",
                );
            }
            // A full pipe means that the switch is stopped. When it continues, it reads old deadlines and ends the
            // command too early.
            _ => {}
        }
    }
}

/// Why the switch acts.
enum SwitchEvent {
    /// The command is no longer watched, or its group is gone.
    Ended,
    /// redlatch has died.
    ParentGone,
    /// The deadline has passed.
    DeadlinePassed,
}

/// Runs the switch: `__switch SIGNAL LEADS TITLE`.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let words: Option<Vec<&str>> = arguments.iter().map(|word| word.to_str()).collect();
    let Some([orphan, leads, title]) = words.as_deref() else {
        Failure::usage("__switch is internal to redlatch; use redlatch run").print();
        return ExitCode::FAILURE;
    };
    // Signals that end redlatch in an orderly way must not end the switch first: redlatch reports the end of the
    // command.
    for signal in [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        // If a handler cannot be installed, redlatch notices the exit of the switch.
        let _ = flag::register(signal, Arc::default());
    }
    let mut first = [0; WORD];
    // Unbuffered, to leave the words that follow in the pipe. If redlatch is dead, nothing is read.
    let _ = rustix::io::read(io::stdin(), &mut first);
    let pid = i32::try_from(u64::from_le_bytes(first)).ok();
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        // redlatch started no command.
        return ExitCode::SUCCESS;
    };
    let target = Target {
        pid,
        leads: *leads == "1",
    };
    // The switch reads all pending messages before it acts.
    if fcntl_setfl(io::stdin(), OFlags::NONBLOCK).is_err() {
        return ExitCode::FAILURE;
    }
    let state = SwitchState {
        target,
        deadline: None,
        valid_until: None,
        has_command_ended: false,
    };
    state.run(decode_signal(orphan), title);
    ExitCode::SUCCESS
}

/// State of the switch.
struct SwitchState {
    target: Target,
    /// When the command is killed; `None` before the first message.
    deadline: Option<Duration>,
    /// When the lock's validity ends.
    valid_until: Option<Duration>,
    /// Whether the command has ended. Only its group then keeps its id from being reused.
    has_command_ended: bool,
}

impl SwitchState {
    fn run(mut self, orphan: Option<Signal>, title: &str) {
        match self.wait() {
            SwitchEvent::Ended => {}
            SwitchEvent::DeadlinePassed => {
                self.target.signal(Signal::KILL);
                // After the kill and with a time limit: stderr may block.
                let _ = stderr::detach();
                note(&format!(
                    "{title}: the lock is about to expire, so the command was killed"
                ));
                stderr::flush(POLL_INTERVAL);
            }
            SwitchEvent::ParentGone => {
                let Some(signal) = orphan else { return };
                self.target.signal(signal);
                if signal != Signal::KILL
                    && let Some(deadline) = self.valid_until.or(self.deadline)
                {
                    self.target.signal(Signal::CONT);
                    while let Some(left) = deadline.checked_sub(now()) {
                        // Afterwards the id may be reused.
                        if self.target.is_gone() {
                            return;
                        }
                        thread::sleep(left.min(FAST_POLL_INTERVAL));
                    }
                    self.target.signal(Signal::KILL);
                }
            }
        }
    }

    /// Waits for a reason to act.
    fn wait(&mut self) -> SwitchEvent {
        let stdin = io::stdin();
        let fd = stdin.as_fd();
        loop {
            let left = self.deadline.map(|deadline| deadline.saturating_sub(now()));
            let pause = if self.has_command_ended {
                FAST_POLL_INTERVAL
            } else {
                POLL_INTERVAL
            };
            let timeout = Timespec::try_from(left.unwrap_or(pause).min(pause)).ok();
            // A signal may interrupt the poll; pending messages are read in any case.
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref());
            let mut bytes = [0; 512 * WORD];
            let is_alone = loop {
                match rustix::io::read(fd, &mut bytes) {
                    // Writes of this size are atomic, so no word is split.
                    Ok(length @ 1..) => {
                        let words = bytes[..length].chunks_exact(WORD);
                        for word in words.filter_map(|word| word.try_into().ok()) {
                            match u64::from_le_bytes(word) {
                                ENDED => return SwitchEvent::Ended,
                                COMMAND_ENDED => self.has_command_ended = true,
                                time if time & VALID != 0 => {
                                    self.valid_until = Some(Duration::from_nanos(time & !VALID));
                                }
                                time => self.deadline = Some(Duration::from_nanos(time)),
                            }
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break false,
                    Ok(_) | Err(_) => break true,
                }
            };
            if self.has_command_ended && self.target.is_gone() {
                return SwitchEvent::Ended;
            }
            if is_alone {
                return SwitchEvent::ParentGone;
            }
            if self.deadline.is_some_and(|deadline| deadline <= now()) {
                return SwitchEvent::DeadlinePassed;
            }
        }
    }
}
