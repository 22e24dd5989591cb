//! Supervises a command. Forwards signals to it, and ends it before its lock can expire.

use std::time::{Duration, Instant};

use crossbeam_channel::{after, select};
use redlatch::{Guard, LossCause};
use rustix::process::Signal;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

use super::arguments::{OnLost, RunArgs};
use super::dead_man;
use super::process::{Ended, Process};
use crate::errors::Failure;
use crate::output::note;
use crate::signals::Signals;

/// The maximum pause. It is short because timers stop while the machine is suspended.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long to wait for the cause of a loss after the validity has ended.
const LOSS_REPORT_WAIT: Duration = Duration::from_millis(100);

/// `terminate_after_int` is called this long after an INT, or at a second INT. A second INT within `INT_DEBOUNCE` is not
/// counted, because timeout(1) signals a process and then its group.
const INT_TIMEOUT: Duration = Duration::from_secs(10);
const INT_DEBOUNCE: Duration = Duration::from_millis(50);

/// After KILL, how long the lock is kept for processes that have not ended.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// KILL is sent this fraction of the lease before the validity ends.
const LAST_PART: u32 = 60;

pub(super) struct Limits {
    lease: Duration,
    grace: Duration,
    kill_after: Duration,
    max_run: Option<Duration>,
    on_lost: OnLost,
    title: String,
}

pub(super) struct Outcome {
    /// `None` if the exit status is unknown.
    pub(super) ended: Option<Ended>,
    /// Whether the command exceeded `--max-run`.
    pub(super) is_late: bool,
    /// Why the lock was lost, or why the command was ended before a loss.
    pub(super) lost: Option<String>,
}

impl Limits {
    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn of(args: &RunArgs, lease: Duration) -> Result<Limits, Failure> {
        let longest = lease / 3;
        let grace = args.grace.unwrap_or(longest);
        if grace > longest {
            return Err(Failure::usage(format!(
                "--grace must be at most a third of the lease, {longest:?}, or renewals come too late; lower it or \
                 raise --lease"
            )));
        }
        let shortest = lease / LAST_PART + LOSS_REPORT_WAIT;
        if args.grace.is_some_and(|grace| grace < shortest) {
            return Err(Failure::usage(format!(
                "--grace must be at least {shortest:?} to leave time between TERM and KILL"
            )));
        }
        Ok(Limits {
            lease,
            grace,
            kill_after: args.kill_after,
            max_run: args.max_run,
            on_lost: args.on_lost,
            title: args.title(),
        })
    }

    /// Returns how long the command lives if `check` is not called again. `left` is the remaining validity.
    pub(super) fn unsupervised(&self, left: Duration) -> Duration {
        match self.on_lost {
            OnLost::Warn => Duration::MAX,
            OnLost::Term | OnLost::Kill => left.saturating_sub(self.grace / 2),
        }
    }

    pub(super) fn time_until_kill(&self, left: Duration) -> Duration {
        left.saturating_sub(self.lease / LAST_PART)
    }
}

struct Supervisor<'a> {
    process: &'a Process,
    limits: &'a Limits,
    kill_at: Option<Instant>,
    /// Until when the group may react to a signal that asks it to end.
    group_deadline: Option<Instant>,
    /// When an INT was forwarded. The command may have handled it and continued.
    int_at: Option<Instant>,
    is_killed: bool,
    is_late: bool,
    is_warned: bool,
    /// Whether a loss was reported. If so, the cause of the loss, not the validity, decides when the command is ended.
    is_loss_reported: bool,
    lost: Option<String>,
}

pub(super) fn supervise(
    process: &Process,
    guard: &Guard,
    limits: &Limits,
    signals: &Signals,
) -> Outcome {
    let losses = guard.lost();
    let never = crossbeam_channel::never();
    let mut lost = losses.as_receiver();
    let no_second_end = crossbeam_channel::never();
    let mut reaped = &process.ended;
    // How the command ended. Its group may continue.
    let mut first = None;
    let mut supervisor = Supervisor {
        process,
        limits,
        kill_at: None,
        group_deadline: None,
        int_at: None,
        is_killed: false,
        is_late: false,
        is_warned: false,
        is_loss_reported: false,
        lost: None,
    };
    loop {
        // The clock is read first, because this process may be stopped between the two reads.
        let read = dead_man::now();
        let left = guard.remaining_validity();
        if left.is_zero()
            && !supervisor.is_loss_reported
            && let Ok(loss) = lost.recv_timeout(LOSS_REPORT_WAIT)
        {
            supervisor.on_loss(&loss.cause);
        }
        if supervisor.is_loss_reported {
            lost = &never;
        }
        let mut pause = supervisor.check(read, left);
        if let Some(ended) = first {
            if supervisor.is_over() {
                process.disarm_switch();
                if supervisor.is_killed && !process.kill_group(KILL_WAIT) {
                    note(&format!(
                        "{}: processes of the command still exist {KILL_WAIT:?} after KILL; the lock is released",
                        limits.title
                    ));
                }
                return Outcome {
                    ended,
                    is_late: supervisor.is_late,
                    lost: supervisor.lost,
                };
            }
            pause = pause.min(dead_man::FAST_POLL_INTERVAL);
        }
        select! {
            recv(reaped) -> ended => {
                process.release_pid();
                supervisor.on_command_end();
                first = Some(ended.ok());
                reaped = &no_second_end;
            }
            recv(signals.received()) -> signal => {
                if let Ok(signal) = signal {
                    supervisor.forward(signal);
                }
            }
            recv(lost) -> loss => {
                match loss {
                    Ok(loss) => supervisor.on_loss(&loss.cause),
                    // The channel was closed without a loss.
                    Err(_) => lost = &never,
                }
            }
            recv(after(pause)) -> _ => {}
        }
    }
}

impl Supervisor<'_> {
    /// `left` was the remaining validity at the time `read`. Returns the time until the next action.
    fn check(&mut self, read: Duration, left: Duration) -> Duration {
        let limits = self.limits;
        let now = Instant::now();
        let last = limits.time_until_kill(left);
        let counts = !self.is_loss_reported && limits.on_lost != OnLost::Warn;
        let is_short = !self.is_loss_reported && left <= limits.grace;
        if counts {
            let time = if is_short {
                last
            } else {
                limits.unsupervised(left)
            };
            let is_in_time = self.process.set_deadline(read.saturating_add(time));
            if !is_in_time && self.lost.is_none() {
                self.lost =
                    Some("redlatch was stopped until the lease was about to end".to_owned());
                self.kill();
            }
        }
        if limits.on_lost == OnLost::Warn {
            let time = if self.is_loss_reported {
                Duration::ZERO
            } else {
                last
            };
            self.process.set_valid_until(read.saturating_add(time));
        }
        if let Some(most) = limits.max_run.filter(|_| !self.is_late) {
            match most.checked_sub(self.process.begun.elapsed()) {
                Some(rest) if !rest.is_zero() => {}
                _ => {
                    self.is_late = true;
                    self.terminate_because(&format!("has run for {most:?} (--max-run)"));
                }
            }
        }
        if is_short && counts {
            if self.lost.is_none() {
                self.lost = Some("its lease could not be renewed in time".to_owned());
                note(&format!(
                    "{}: the lease could not be renewed; ending the command before the lock can be lost",
                    limits.title
                ));
                match limits.on_lost {
                    OnLost::Kill => self.kill(),
                    _ => self.terminate_within(last),
                }
            }
            // A command that is already being ended for another reason must not get more time.
            self.kill_at = Some(self.kill_at.map_or(now + last, |at| at.min(now + last)));
        } else if is_short && !self.is_warned {
            self.is_warned = true;
            note(&format!(
                "{}: the lease could not be renewed; the lock may be lost soon",
                limits.title
            ));
        }
        if self.int_at.is_some_and(|at| now - at >= INT_TIMEOUT) {
            self.terminate_after_int();
        }
        if self.kill_at.is_some_and(|at| at <= now) && !self.is_killed {
            self.kill();
            let title = &limits.title;
            note(&format!("{title}: the command did not end; sending KILL"));
        }
        let mut pause = POLL_INTERVAL;
        if left > limits.grace {
            pause = pause.min(left - limits.grace);
        }
        if let Some(at) = self.kill_at.filter(|_| !self.is_killed) {
            pause = pause.min(at.saturating_duration_since(now));
        }
        if let Some(at) = self.int_at {
            pause = pause.min(INT_TIMEOUT.saturating_sub(now - at));
        }
        if let Some(most) = limits.max_run.filter(|_| !self.is_late) {
            pause = pause.min(most.saturating_sub(self.process.begun.elapsed()));
        }
        pause
    }

    fn on_loss(&mut self, cause: &LossCause) {
        let limits = self.limits;
        note(&format!("{}: the lock was lost: {cause}", limits.title));
        self.is_loss_reported = true;
        self.lost = Some(cause.to_string());
        let is_in_time = matches!(cause, LossCause::Gone | LossCause::HeldBy(_));
        match limits.on_lost {
            OnLost::Warn => {}
            OnLost::Term if is_in_time => {
                self.process
                    .set_deadline(dead_man::now() + limits.kill_after + POLL_INTERVAL);
                self.terminate_within(limits.kill_after);
            }
            // No time remains for TERM.
            OnLost::Term | OnLost::Kill => self.kill(),
        }
    }

    fn forward(&mut self, number: i32) {
        let signal = match number {
            SIGINT => Signal::INT,
            SIGTERM => Signal::TERM,
            SIGHUP => Signal::HUP,
            SIGQUIT => Signal::QUIT,
            SIGUSR1 => Signal::USR1,
            SIGUSR2 => Signal::USR2,
            SIGCONT => Signal::CONT,
            SIGWINCH => Signal::WINCH,
            _ => return,
        };
        // A terminal sends these signals to the command directly.
        let is_known = matches!(number, SIGINT | SIGQUIT | SIGWINCH | SIGCONT);
        if !(is_known && self.process.shares_terminal()) {
            self.process.signal(signal);
        }
        if matches!(number, SIGTERM | SIGHUP | SIGINT | SIGQUIT) {
            self.group_deadline = Some(Instant::now() + self.limits.kill_after);
        }
        if number == SIGINT {
            match self.int_at {
                Some(at) if at.elapsed() < INT_DEBOUNCE => {}
                Some(_) => self.terminate_after_int(),
                None => self.int_at = Some(Instant::now()),
            }
        }
        if number == SIGTERM {
            self.kill_within(self.limits.kill_after);
        }
    }

    /// After the command's end, the time limit of a forwarded signal applies to the rest of the group.
    fn on_command_end(&mut self) {
        let now = Instant::now();
        if let Some(at) = self.group_deadline.filter(|at| *at > now) {
            self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Called after the command has ended.
    fn is_over(&self) -> bool {
        self.is_killed || self.kill_at.is_none() || self.process.is_group_gone()
    }

    /// Ends a command that continues after INT. On a terminal, only a command that ignores INT is ended, because shells and
    /// databases handle INT and continue.
    fn terminate_after_int(&mut self) {
        self.int_at = None;
        if !self.process.shares_terminal() || self.process.ignores_int() {
            self.group_deadline = Some(Instant::now() + self.limits.kill_after);
            self.terminate_because("did not end after INT");
        }
    }

    fn terminate_because(&mut self, why: &str) {
        let Limits {
            title, kill_after, ..
        } = self.limits;
        note(&format!(
            "{title}: the command {why}; sending TERM, and KILL after {kill_after:?}"
        ));
        self.terminate_within(*kill_after);
    }

    fn terminate_within(&mut self, time: Duration) {
        self.process.signal(Signal::TERM);
        // A stopped process handles TERM only after CONT.
        self.process.signal(Signal::CONT);
        self.kill_within(time);
    }

    fn kill_within(&mut self, time: Duration) {
        let at = Instant::now() + time;
        self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
    }

    fn kill(&mut self) {
        self.is_killed = true;
        self.process.signal(Signal::KILL);
    }
}
