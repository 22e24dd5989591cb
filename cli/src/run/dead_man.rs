//! The dead man's switch: a process beside redlatch. It ends the command when redlatch no longer supervises the command.
//!
//! redlatch may be killed, or stopped for longer than its lock is valid. If redlatch dies, the kernel can kill the
//! command, but not its descendants. If redlatch is stopped, the kernel signals no process. So redlatch keeps sending new
//! deadlines to the switch. At the deadline, the switch kills the process group. If redlatch dies, `--orphan` decides.

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

pub(crate) const SWITCH: &str = "__switch";

/// The maximum poll timeout. It is short because the timer stops while the machine is suspended.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The poll interval of a wait for processes to end.
pub(super) const FAST_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A message in place of a deadline: the switch watches nothing from now on.
const ENDED: u64 = 0;

/// A message in place of a deadline: the command has ended, but its group may exist.
const COMMAND_ENDED: u64 = 1;

/// A flag that marks a deadline as the end of the lock's validity. With `--on-lost warn`, the command may run longer.
const VALID: u64 = 1 << 63;

/// Messages consist of words. The first word is the process id. The others are times in ns, `ENDED` or `COMMAND_ENDED`.
const WORD: usize = size_of::<u64>();

/// The clock of leases, which all processes of the machine share.
pub(super) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(!VALID, |nanos| nanos.min(!VALID))
}

/// redlatch's end of the pipe to the switch.
pub(super) struct Switch {
    pipe: ChildStdin,
    /// Whether the exit of the switch is no error, or was already reported.
    is_gone: Cell<bool>,
    /// The last deadline that was sent.
    deadline: Cell<Duration>,
}

impl Switch {
    /// The switch starts before the command, so no command runs without a switch.
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
            // The switch must not get signals of the terminal or of the command's group.
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // If the switch is stopped, writing to it must not block redlatch.
        fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        Ok(Switch {
            pipe,
            is_gone: Cell::new(false),
            deadline: Cell::new(Duration::MAX),
        })
    }

    /// `valid_until`, the end of the lock's validity, applies if redlatch dies.
    pub(super) fn arm(&self, pid: Pid, deadline: Duration, valid_until: Duration) {
        self.deadline.set(deadline);
        let pid = u64::from(pid.as_raw_nonzero().get().unsigned_abs());
        // This is a single write, so the switch never has a process id without a deadline.
        self.send(&[pid, nanos(valid_until) | VALID, nanos(deadline)]);
    }

    /// Returns whether the previous deadline was still ahead. Then the switch gets the new deadline in time, because it
    /// reads all messages before it acts. Otherwise it may have killed the command.
    pub(super) fn set_deadline(&self, deadline: Duration) -> bool {
        self.send(&[nanos(deadline)]);
        now() < self.deadline.replace(deadline)
    }

    pub(super) fn set_valid_until(&self, time: Duration) {
        self.send(&[nanos(time) | VALID]);
    }

    pub(super) fn command_ended(&self) {
        self.send(&[COMMAND_ENDED]);
        // From now on, the exit of the switch is no error.
        self.is_gone.set(true);
    }

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
            // The pipe is full only if the switch is stopped. If the switch continues later, it reads old deadlines, and
            // ends the command too early.
            _ => {}
        }
    }
}

enum SwitchEvent {
    /// The switch watches nothing any more, or the command's group is gone.
    Ended,
    ParentGone,
    DeadlinePassed,
}

/// The arguments are `__switch SIGNAL LEADS TITLE`.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let words: Option<Vec<&str>> = arguments.iter().map(|word| word.to_str()).collect();
    let Some([orphan, leads, title]) = words.as_deref() else {
        Failure::usage("__switch is internal to redlatch; use redlatch run").print();
        return ExitCode::FAILURE;
    };
    // Some signals end redlatch in an orderly way. They must not end the switch before redlatch reports the end of the
    // command.
    for signal in [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        // If a handler cannot be installed, the signal ends the switch, which redlatch notices.
        let _ = flag::register(signal, Arc::default());
    }
    let mut first = [0; WORD];
    // The read is unbuffered, so all later words stay in the pipe.
    let _ = rustix::io::read(io::stdin(), &mut first);
    let pid = i32::try_from(u64::from_le_bytes(first)).ok();
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        // redlatch has started no command.
        return ExitCode::SUCCESS;
    };
    let target = Target {
        pid,
        leads: *leads == "1",
    };
    // Reads must not block, because the switch reads all pending messages before it acts.
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

struct SwitchState {
    target: Target,
    /// When the command is killed. `None` before the first message.
    deadline: Option<Duration>,
    valid_until: Option<Duration>,
    has_command_ended: bool,
}

impl SwitchState {
    fn run(mut self, orphan: Option<Signal>, title: &str) {
        match self.wait() {
            SwitchEvent::Ended => {}
            SwitchEvent::DeadlinePassed => {
                self.target.signal(Signal::KILL);
                // stderr may block. So this happens after the kill, and has a time limit.
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
                        // When the group is gone, its id may be reused.
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
            // A signal may interrupt the poll. Pending messages are read in any case.
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref());
            let mut bytes = [0; 512 * WORD];
            let is_alone = loop {
                match rustix::io::read(fd, &mut bytes) {
                    // Each write is small enough to be atomic, so no word is split.
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
