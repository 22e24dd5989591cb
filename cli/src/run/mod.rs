//! `redlatch run`: runs a command only while its lock is held.

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
use crate::exit_codes::{self, FAILED, NESTED, TIMED_OUT};
use crate::output::note;
use crate::signals::Signals;
use crate::stderr;
pub(crate) use arguments::RunArgs;
use obtain::Obtained;
use process::{Ended, Process};
use report::RunReport;
use supervise::{Limits, Outcome};

const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// If redlatch itself fails, the exit code is `FAILED`.
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
    // If redlatch's own executable cannot be found, no lock is acquired.
    target::itself()?;
    stderr::detach().map_err(|error| Failure::usage(format!("cannot start a thread: {error}")))?;
    // The handlers are installed before the first request, so no signal is missed.
    let signals = Signals::install()?;
    let backend = args.connection.open()?;
    let limits = Limits::of(args, backend.lease())?;
    let begun = Instant::now();
    let obtained = obtain::obtain(args, &backend, &signals)?;
    report.waited = begun.elapsed();
    let guard = match obtained {
        Obtained::Held(guard) => guard,
        Obtained::Refused => {
            if !args.quiet {
                note(&format!(
                    "{}: another client holds the lock; the command was not started",
                    args.title()
                ));
            }
            return Ok(args.refused_code);
        }
        Obtained::Nested => {
            note(&format!(
                "{}: an outer redlatch run holds the lock, so waiting would never end; the command was not started",
                args.title()
            ));
            return Ok(NESTED);
        }
        Obtained::Signalled(number) => return Ok(exit_codes::of_signal(number)),
    };
    report.obtained = true;
    let mark = once::Mark::of(args, &backend)?;
    let remove_mark = || mark.iter().for_each(once::Mark::remove);
    let may_run = match mark.as_ref().map_or(Ok(true), once::Mark::may_run) {
        Ok(may_run) => may_run,
        Err(failure) => {
            mark.iter().for_each(|it| it.wait_until_resolved(&guard));
            return match signals.ending() {
                Some(number) => Ok(exit_codes::of_signal(number)),
                None => Err(failure),
            };
        }
    };
    if !may_run {
        report.skipped = true;
        if !args.quiet {
            let again = mark.as_ref().map(once::Mark::next_run_text);
            note(&format!(
                "{}: already started in this period; the command was not started again{}",
                args.title(),
                again.unwrap_or_default()
            ));
        }
        drop(release(guard));
        return Ok(args.refused_code);
    }
    // The signals that have arrived so far were not meant for the command.
    while signals.received().try_recv().is_ok() {}
    if let Some(number) = signals.ending() {
        remove_mark();
        drop(release(guard));
        return Ok(exit_codes::of_signal(number));
    }
    // Setting the mark may have taken longer than the lease.
    if !guard.is_valid() {
        remove_mark();
        drop(guard);
        let lost = "its validity ended before the command started";
        note(&format!("{}: the lock was lost: {lost}", args.title()));
        report.lost = Some(lost.to_owned());
        return Ok(args.lost_code);
    }
    under_lock(args, &limits, guard, mark.as_ref(), &signals, report)
}

fn under_lock(
    args: &RunArgs,
    limits: &Limits,
    guard: Guard,
    mark: Option<&once::Mark>,
    signals: &Signals,
    report: &mut RunReport,
) -> Result<u8, Failure> {
    // The clock is read first, because this process may be stopped between the two reads.
    let read = dead_man::now();
    let left = guard.remaining_validity();
    let times = [limits.unsupervised(left), limits.time_until_kill(left)];
    let times = times.map(|time| read.saturating_add(time));
    let remove_mark = || mark.into_iter().for_each(once::Mark::remove);
    let process =
        Process::start(args, &guard, limits.lease(), times).inspect_err(|_| remove_mark())?;
    let Outcome {
        ended,
        is_late,
        lost,
    } = supervise::supervise(&process, &guard, limits, signals);
    let is_valid = guard.is_valid();
    if !process.was_command_executed() {
        remove_mark();
    }
    report.held = process.begun.elapsed();
    let lost = match (lost, is_valid) {
        (None, false) => Some("its validity ended before the command".to_owned()),
        (lost, _) => lost,
    };
    let ended_well = ended == Some(Ended::Code(0)) && lost.is_none() && !is_late;
    let noted = match mark {
        Some(mark) if ended_well => mark.record_success(process.begun),
        _ => Ok(()),
    };
    let lost = match lost {
        Some(lost) => {
            // The loss is reported below, so an error of the unlock is not reported.
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
            "{}: the lock was lost, or could no longer be kept: {lost}",
            args.title()
        ));
        report.lost = Some(lost);
        return Ok(args.lost_code);
    }
    // With exit code 0, the caller would believe that the period is recorded.
    noted?;
    if is_late {
        return Ok(TIMED_OUT);
    }
    match ended {
        Some(Ended::Code(code)) => Ok(code),
        Some(Ended::Signal(number)) => Ok(exit_codes::of_signal(number)),
        None => Err(Failure::usage(
            "the command ended, but the system did not report its exit status",
        )),
    }
}

/// Unlocks. If the lock was lost, returns the cause. Other errors are only printed, because the command has ended.
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
