//! The dead man's switch of a command: a process beside redlatch that ends the command once nobody watches over it.
//!
//! redlatch may be killed, or stopped for longer than its lock is valid. The kernel tells only the command itself of a death, none
//! of the processes that it has started, and tells nobody of a stop. So redlatch says again and again until when the command may
//! live, and this process ends all of it at that time, or when redlatch is gone.

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

/// The argument by which redlatch calls itself to be the switch.
pub(crate) const SWITCH: &str = "__switch";

/// It looks at least this often, as a poll does not count the time for which a machine is suspended.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often it looks whether a command that was asked to end has done so.
pub(super) const FAST_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What is said in place of a time when nothing of the command is watched any more.
const ENDED: u64 = 0;

/// What is said in place of a time when the command has ended, and the rest of its group may still be there.
const COMMAND_ENDED: u64 = 1;

/// What marks a time as the one until which the lock is valid, also where the command may outlive that.
const VALID: u64 = 1 << 63;

/// A message: first the id of the process, then times of the clock below, in ns.
const WORD: usize = size_of::<u64>();

/// The clock that leases count on; all processes of a machine share it.
pub(super) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// A time in a message.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(!VALID, |nanos| nanos.min(!VALID))
}

/// The side of redlatch.
pub(super) struct Switch {
    pipe: ChildStdin,
    /// Whether it may be gone, and nobody needs to be told of it any more.
    is_gone: Cell<bool>,
}

impl Switch {
    /// Starts the process. It is there before the command, so that no command runs without it.
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
            // Signals of the terminal and of the command's group are not for it.
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // One that is stopped must not stop redlatch.
        fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        Ok(Switch {
            pipe,
            is_gone: Cell::new(false),
        })
    }

    /// Names the command, and lets it live until this time of the clock above; without redlatch, until the validity ends.
    pub(super) fn arm(&self, pid: Pid, deadline: Duration, valid_until: Duration) {
        let pid = u64::from(pid.as_raw_nonzero().get().unsigned_abs());
        // At once, so that there is no moment in which only one of them is known.
        self.send(&[pid, nanos(valid_until) | VALID, nanos(deadline)]);
    }

    /// Lets the command live until this time.
    pub(super) fn set_deadline(&self, deadline: Duration) {
        self.send(&[nanos(deadline)]);
    }

    /// Says until when the lock is valid: an orphan has no more time, whatever it may do beside redlatch.
    pub(super) fn set_valid_until(&self, time: Duration) {
        self.send(&[nanos(time) | VALID]);
    }

    /// Says that the command has ended, and that its id may be that of others as soon as its group is gone.
    pub(super) fn command_ended(&self) {
        self.send(&[COMMAND_ENDED]);
        // From now on it may go by itself.
        self.is_gone.set(true);
    }

    /// Ends the process, as the command has ended.
    pub(super) fn disarm(&self) {
        self.send(&[ENDED]);
        // It goes now.
        self.is_gone.set(true);
    }

    fn send(&self, words: &[u64]) {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        match (&self.pipe).write(&words) {
            Err(error)
                if error.kind() == io::ErrorKind::BrokenPipe && !self.is_gone.replace(true) =>
            {
                note("the process that ends the command should this one die is gone");
            }
            // If it is full, the switch is stopped, and reads old times when it goes on: the command ends too early then.
            _ => {}
        }
    }
}

/// What the switch hears.
enum SwitchEvent {
    /// The command is not watched any more, or nothing is left of it.
    Ended,
    /// redlatch is gone.
    ParentGone,
    /// Nothing, by the time at which the command has to end.
    DeadlinePassed,
}

/// Is the switch: `__switch SIGNAL LEADS TITLE`.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let words: Option<Vec<&str>> = arguments.iter().map(|word| word.to_str()).collect();
    let Some([orphan, leads, title]) = words.as_deref() else {
        Failure::usage("it was called by hand".to_owned()).print();
        return ExitCode::FAILURE;
    };
    // What ends redlatch in good order is no reason to go first: it says when the command has ended.
    for signal in [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        // If it cannot be ignored, redlatch notices that the switch is gone.
        let _ = flag::register(signal, Arc::default());
    }
    let mut first = [0; WORD];
    // Without a buffer, which would take what comes behind it.
    // Nothing is read if redlatch is gone.
    let _ = rustix::io::read(io::stdin(), &mut first);
    let pid = i32::try_from(u64::from_le_bytes(first)).ok();
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        // It had started no command.
        return ExitCode::SUCCESS;
    };
    let target = Target {
        pid,
        leads: *leads == "1",
    };
    // All that has come is to be known before anything is done.
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

/// What the switch knows.
struct SwitchState {
    target: Target,
    /// Until when the command may live; `None` if that was not said yet.
    deadline: Option<Duration>,
    /// Until when the lock is valid.
    valid_until: Option<Duration>,
    /// Whether the command has ended, so that its group alone keeps its id from others.
    has_command_ended: bool,
}

impl SwitchState {
    fn run(mut self, orphan: Option<Signal>, title: &str) {
        match self.wait() {
            SwitchEvent::Ended => {}
            SwitchEvent::DeadlinePassed => {
                self.target.signal(Signal::KILL);
                // After that, and not for ever, as stderr may be a pipe that nobody reads.
                let _ = stderr::detach();
                note(&format!("{title}: the lock ends, so the command is ended"));
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
                        // Its id may be that of others after this.
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

    /// Listens until something has to be done.
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
            // A signal may end it early, and what has come meanwhile is read all the same.
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref());
            let mut bytes = [0; 512 * WORD];
            let is_alone = loop {
                match rustix::io::read(fd, &mut bytes) {
                    // A word is written at once, so none is read in two parts.
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
