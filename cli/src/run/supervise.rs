//! The watch over a command: signals go on to it, and it ends before its lock can.

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

/// The watch looks at least this often, for timers do not count while a machine is suspended.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The cause of a loss is told within this time after the validity has ended.
const LOSS_REPORT_WAIT: Duration = Duration::from_millis(100);

/// A command that goes on for so long after INT gets TERM, as it does at once after a second INT. One that follows within the
/// shorter time is the first one once more: timeout(1) sends it to a process and then to its group.
const INT_TIMEOUT: Duration = Duration::from_secs(10);
const INT_DEBOUNCE: Duration = Duration::from_millis(50);

/// What got KILL is waited for so long at most before its lock is given back.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// KILL comes this part of the lease before the end of the validity.
const LAST_PART: u32 = 60;

/// The times of a run.
pub(super) struct Limits {
    lease: Duration,
    grace: Duration,
    kill_after: Duration,
    max_run: Option<Duration>,
    on_lost: OnLost,
    title: String,
}

/// How a run has ended.
pub(super) struct Outcome {
    /// `None` if the system did not tell: it is gone, but nobody knows how.
    pub(super) ended: Option<Ended>,
    /// Whether `--max-run` was over.
    pub(super) is_late: bool,
    /// Why the lock was lost, or why the command had to end before it could be.
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
                "--grace is longer than a third of the lease, {longest:?}: each renewal would come too late; raise --lease"
            )));
        }
        let shortest = lease / LAST_PART + LOSS_REPORT_WAIT;
        if args.grace.is_some_and(|grace| grace < shortest) {
            return Err(Failure::usage(format!(
                "--grace is shorter than {shortest:?}, which leaves no time between TERM and KILL"
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

    /// How long the command may live without a further look, if so much validity is left. One who looks does so before that,
    /// and then gives the command all the time there is.
    pub(super) fn unsupervised(&self, left: Duration) -> Duration {
        match self.on_lost {
            OnLost::Warn => Duration::MAX,
            OnLost::Term | OnLost::Kill => left.saturating_sub(self.grace / 2),
        }
    }

    /// The time until the last moment for KILL, if so much validity is left.
    pub(super) fn kill_deadline(&self, left: Duration) -> Duration {
        left.saturating_sub(self.lease / LAST_PART)
    }
}

/// What has been done about the command so far.
struct Supervisor<'a> {
    process: &'a Process,
    limits: &'a Limits,
    /// When KILL is sent.
    kill_at: Option<Instant>,
    /// How long the group may take to follow a signal that asks it to end.
    group_deadline: Option<Instant>,
    /// When an INT came that the command may go on after.
    int_at: Option<Instant>,
    is_killed: bool,
    is_late: bool,
    is_warned: bool,
    /// Whether the store has told of a loss: then its cause decides, and no validity.
    is_loss_reported: bool,
    lost: Option<String>,
}

/// Watches over the command until it has ended.
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
    // How the command itself has ended; its group may go on.
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
        // The time first, as this process may be stopped in between.
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
                        "{}: {KILL_WAIT:?} after KILL something of the command is still there, and the lock is given back",
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
                    // There was none.
                    Err(_) => lost = &never,
                }
            }
            recv(after(pause)) -> _ => {}
        }
    }
}

impl Supervisor<'_> {
    /// Does what is due where so much validity was left at the time `read`, and returns how long nothing will be.
    fn check(&mut self, read: Duration, left: Duration) -> Duration {
        let limits = self.limits;
        let now = Instant::now();
        let last = limits.kill_deadline(left);
        let counts = !self.is_loss_reported && limits.on_lost != OnLost::Warn;
        let is_short = !self.is_loss_reported && left <= limits.grace;
        if counts {
            let time = if is_short {
                last
            } else {
                limits.unsupervised(left)
            };
            self.process.set_deadline(read.saturating_add(time));
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
                    "{}: the lock is not renewed, so the command is ended before it can be lost",
                    limits.title
                ));
                match limits.on_lost {
                    OnLost::Kill => self.kill(),
                    _ => self.terminate_within(last),
                }
            }
            // Where it ends for another reason, it has no longer than this either.
            self.kill_at = Some(self.kill_at.map_or(now + last, |at| at.min(now + last)));
        } else if is_short && !self.is_warned {
            self.is_warned = true;
            note(&format!(
                "{}: the lock is not renewed and may be lost soon",
                limits.title
            ));
        }
        if self.int_at.is_some_and(|at| now - at >= INT_TIMEOUT) {
            self.terminate_after_int();
        }
        if self.kill_at.is_some_and(|at| at <= now) && !self.is_killed {
            self.kill();
            let title = &limits.title;
            note(&format!(
                "{title}: the command has not ended, and gets KILL"
            ));
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

    /// The store has told that the hold is lost.
    fn on_loss(&mut self, cause: &LossCause) {
        let limits = self.limits;
        note(&format!("{}: the lock is lost: {cause}", limits.title));
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
            // There is no time left that could be waited for.
            OnLost::Term | OnLost::Kill => self.kill(),
        }
    }

    /// Passes a signal on that came to us.
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
        // On a terminal it comes to the command, too.
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

    /// The command itself has ended. If it was asked to, so was its group, and that has as long.
    fn on_command_end(&mut self) {
        let now = Instant::now();
        if let Some(at) = self.group_deadline.filter(|at| *at > now) {
            self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Whether nothing of the command is waited for any more, once it has ended itself.
    fn is_over(&self) -> bool {
        self.is_killed || self.kill_at.is_none() || self.process.is_group_gone()
    }

    /// Ends a command that goes on after INT, as TERM does. At a terminal that key is a word to programs such as shells and
    /// databases, which catch it: only one that ignores it is ended.
    fn terminate_after_int(&mut self) {
        self.int_at = None;
        if !self.process.shares_terminal() || self.process.ignores_int() {
            self.group_deadline = Some(Instant::now() + self.limits.kill_after);
            self.terminate_because("has not followed INT");
        }
    }

    /// Says why the command is ended, and does so.
    fn terminate_because(&mut self, why: &str) {
        let Limits {
            title, kill_after, ..
        } = self.limits;
        note(&format!(
            "{title}: the command {why}, so it gets TERM, and KILL {kill_after:?} later"
        ));
        self.terminate_within(*kill_after);
    }

    fn terminate_within(&mut self, time: Duration) {
        self.process.signal(Signal::TERM);
        // One that is stopped hears nothing.
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
