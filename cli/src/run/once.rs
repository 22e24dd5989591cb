//! `--once-per`: the mark of a run in a period. It is a lock with a fixed lease, released only if no command started.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Guard, Lock};

use super::arguments::{MarkWhen, RunArgs};
use crate::connect::Backend;
use crate::errors::Failure;
use crate::output::{note, span};

/// The longest wait for the release of an in-doubt mark.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

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

    /// Whether the job may run. If so, and with `--mark start`, this sets the mark.
    pub(super) fn may_run(&self) -> Result<bool, Failure> {
        match self.when {
            MarkWhen::Start => Ok(self.lock.with_lease_time(self.period).try_lock()?),
            MarkWhen::Success => Ok(!self.lock.is_locked()?),
        }
    }

    /// Empty if the time is unknown.
    pub(super) fn next_run_text(&self) -> String {
        let left = self.lock.remaining_lease().ok().flatten();
        left.map_or(String::new(), |left| {
            format!("; it may run again in {}", span(left))
        })
    }

    /// Removes the mark of a command that was not started. If this fails, the job counts as run in this period.
    pub(super) fn remove(&self) {
        if self.when == MarkWhen::Start
            && let Err(error) = self.lock.unlock()
        {
            note(&format!("{error:?}"));
        }
    }

    /// The client resolves an in-doubt mark in the background, so this process waits before it exits.
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

    /// The period of the mark begins at the start of the command.
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
