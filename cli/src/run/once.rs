//! `--once-per`: the mark of a run in a period, a lock with a fixed lease that stays locked.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Guard, Lock};

use super::arguments::{MarkWhen, RunArgs};
use crate::connect::Backend;
use crate::errors::Failure;
use crate::output::{note, span};

/// How long, and how often, an in-doubt mark is checked.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The mark of one job.
pub(super) struct Mark {
    lock: Lock,
    period: Duration,
    when: MarkWhen,
}

impl Mark {
    pub(super) fn of(args: &RunArgs, backend: &Backend) -> Result<Option<Mark>, Failure> {
        let (Some(period), [name]) = (args.period()?, &args.names[..]) else {
            return Ok(None);
        };
        let name = match &args.once_key {
            Some(key) => format!("{name}:once:{key}"),
            None => format!("{name}:once"),
        };
        Ok(Some(Mark {
            lock: backend.lock(&name),
            period,
            when: args.mark,
        }))
    }

    /// Whether the job may run. With `--mark start` this sets the mark.
    pub(super) fn may_run(&self) -> Result<bool, Failure> {
        match self.when {
            MarkWhen::Start => Ok(self.lock.with_lease_time(self.period).try_lock()?),
            MarkWhen::Success => Ok(!self.lock.is_locked()?),
        }
    }

    /// When the job may run again, as text; empty if unknown.
    pub(super) fn next_run_text(&self) -> String {
        let left = self.lock.remaining_lease().ok().flatten();
        left.map_or(String::new(), |left| {
            format!("; it may run again in {}", span(left))
        })
    }

    /// Removes the mark of a command that was not started. If that fails, the period counts as run.
    pub(super) fn remove(&self) {
        if self.when == MarkWhen::Start
            && let Err(error) = self.lock.unlock()
        {
            note(&format!("{error:?}"));
        }
    }

    /// Waits, with a limit, until the client has resolved an in-doubt mark, which it does only while it lives. A mark
    /// that remains counts as a run.
    pub(super) fn wait_until_resolved(&self, guard: &Guard) {
        let visitor = guard.visitor().as_str();
        let client = visitor.split(':').next().unwrap_or(visitor);
        let until = Instant::now() + RESOLVE_TIMEOUT;
        while self.when == MarkWhen::Start && Instant::now() < until {
            let is_resolved = self.lock.describe().is_ok_and(|info| {
                let mut holders = info.holders.iter();
                !holders.any(|holder| holder.visitor.starts_with(client))
            });
            if is_resolved {
                return;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Records the success of a command; its period counts from its start.
    pub(super) fn record_success(&self, begun: Instant) -> Result<(), Failure> {
        if self.when == MarkWhen::Start {
            return Ok(());
        }
        let left = self.period.saturating_sub(begun.elapsed());
        if left < Duration::from_millis(10) {
            return Ok(());
        }
        if !self.lock.with_lease_time(left).try_lock()? {
            note("another client has already recorded a run for this period");
        }
        Ok(())
    }
}
