//! `redlatch run`: a command that runs as long as its lock is held, and no longer.

mod arguments;
pub(crate) mod dead_man;
mod obtain;
mod once;
mod process;
mod progress;
mod report;
mod supervise;
mod target;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use redlatch::{Error, Guard};

use crate::errors::Failure;
use crate::output::note;
use crate::signals::Signals;
use crate::stderr;
pub(crate) use arguments::RunArgs;
use obtain::Obtained;
use process::{Ended, Process};
use report::RunReport;
use supervise::{Limits, Outcome};

/// An outer run has this very lock.
const NESTED: u8 = 122;
/// `--max-run` was over, as timeout(1) says it.
const TIMED_OUT: u8 = 124;
/// It failed by itself.
pub(crate) const FAILED: u8 = 125;
/// The base of the codes of signals.
const SIGNALLED: u8 = 128;

/// The last words are waited for so long at most, if nobody reads them.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the command; every failure of our own has one code.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    let mut report = RunReport::default();
    let code = match attempt(args, &mut report) {
        Ok(code) => code,
        Err(failure) => {
            report.failed(&failure);
            failure.print();
            FAILED
        }
    };
    report.code = Some(code);
    if let Some(file) = &args.report
        && let Err(failure) = report.write(file)
    {
        failure.print();
    }
    stderr::flush(FLUSH_TIMEOUT);
    ExitCode::from(code)
}

fn attempt(args: &RunArgs, report: &mut RunReport) -> Result<u8, Failure> {
    args.check()?;
    // Before anything is locked that could not be used.
    target::itself()?;
    stderr::detach()
        .map_err(|error| Failure::usage(format!("no thread could be started: {error}")))?;
    // Before anything is asked, so that no signal is missed.
    let signals = Signals::install()?;
    let backend = args.connection.open()?;
    let limits = Limits::of(args, backend.lease())?;
    let begun = Instant::now();
    let obtained = obtain::obtain(args, &backend, &signals)?;
    report.waited = begun.elapsed();
    let (guard, locks) = match obtained {
        Obtained::Held(guard, locks) => (guard, locks),
        Obtained::Refused => {
            if !args.quiet {
                note(&format!(
                    "{}: somebody else holds it, so the command was not started",
                    args.title()
                ));
            }
            return Ok(args.refused_code);
        }
        Obtained::Nested => {
            note(&format!(
                "{}: the redlatch run around this one holds it, so waiting would never end",
                args.title()
            ));
            return Ok(NESTED);
        }
        Obtained::Signalled(number) => return Ok(SIGNALLED.saturating_add(number)),
    };
    drop(locks);
    report.obtained = true;
    let mark = once::Mark::of(args, &backend)?;
    let may_run = match mark.as_ref().map(once::Mark::may_run) {
        Some(Err(failure)) => {
            if let Some(mark) = &mark {
                mark.wait_until_resolved(&guard);
            }
            return match signals.ending() {
                Some(number) => Ok(SIGNALLED.saturating_add(number)),
                None => Err(failure),
            };
        }
        Some(Ok(may_run)) => may_run,
        None => true,
    };
    if !may_run {
        report.skipped = true;
        if !args.quiet {
            let again = mark.as_ref().map(once::Mark::next_run_text);
            note(&format!(
                "{}: it has run in this period, so the command was not started{}",
                args.title(),
                again.unwrap_or_default()
            ));
        }
        drop(release(guard));
        return Ok(args.refused_code);
    }
    // None that came until here is for a command that was not there.
    while signals.received().try_recv().is_ok() {}
    if let Some(number) = signals.ending() {
        if let Some(mark) = &mark {
            mark.remove();
        }
        drop(release(guard));
        return Ok(SIGNALLED.saturating_add(number));
    }
    // To ask for the mark may have taken longer than the lease.
    if !guard.is_valid() {
        if let Some(mark) = &mark {
            mark.remove();
        }
        drop(guard);
        let lost = "its validity ended before the command was started";
        note(&format!("{}: the lock is lost: {lost}", args.title()));
        report.lost = Some(lost.to_owned());
        return Ok(args.lost_code);
    }
    under_lock(args, &limits, guard, mark.as_ref(), &signals, report)
}

/// Runs the command under the lock.
fn under_lock(
    args: &RunArgs,
    limits: &Limits,
    guard: Guard,
    mark: Option<&once::Mark>,
    signals: &Signals,
    report: &mut RunReport,
) -> Result<u8, Failure> {
    // The time first, as this process may be stopped in between.
    let read = dead_man::now();
    let left = guard.remaining_validity();
    let times = [limits.unsupervised(left), limits.kill_deadline(left)];
    let times = times.map(|time| read.saturating_add(time));
    let process = Process::start(args, &guard, limits.lease(), times).inspect_err(|_| {
        if let Some(mark) = mark {
            mark.remove();
        }
    })?;
    let Outcome {
        ended,
        is_late,
        lost,
    } = supervise::supervise(&process, &guard, limits, signals);
    let is_valid = guard.is_valid();
    if let Some(mark) = mark
        && !process.was_command_executed()
    {
        mark.remove();
    }
    report.held = process.begun.elapsed();
    let lost = match (lost, is_valid) {
        (None, false) => Some("its validity ended before the command did".to_owned()),
        (lost, _) => lost,
    };
    let ended_well = ended == Some(Ended::Code(0)) && lost.is_none() && !is_late;
    let noted = match mark {
        Some(mark) if ended_well => mark.record_success(process.begun),
        _ => Ok(()),
    };
    let lost = match lost {
        Some(lost) => {
            // It is no longer ours to unlock.
            drop(guard);
            Some(lost)
        }
        None => release(guard),
    };
    match ended {
        Some(Ended::Code(code)) => report.command_code = Some(code),
        Some(Ended::Signal(number)) => report.signal = Some(number),
        None => {}
    }
    if let Some(lost) = lost {
        note(&format!(
            "{}: the lock was lost while the command ran: {lost}",
            args.title()
        ));
        report.lost = Some(lost);
        return Ok(args.lost_code);
    }
    // The 0 of the command would say that its period is noted.
    noted?;
    if is_late {
        return Ok(TIMED_OUT);
    }
    match ended {
        Some(Ended::Code(code)) => Ok(code),
        Some(Ended::Signal(number)) => Ok(SIGNALLED.saturating_add(number)),
        None => Err(Failure::usage(
            "the command is gone, and the system did not tell how it ended",
        )),
    }
}

/// Unlocks, and returns why the lock was found to be lost, if it was. The command has ended, so an answer that does not
/// come is no failure of it.
fn release(guard: Guard) -> Option<String> {
    match guard.unlock() {
        Ok(()) => None,
        Err(Error::Lost { cause, .. }) => Some(cause.to_string()),
        Err(error) => {
            note(&format!("{error:?}"));
            None
        }
    }
}
