//! `--once-per`: the mark that a command has run in a period, which is a lock with a fixed lease that nobody unlocks.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Guard, Lock};

use super::arguments::{MarkWhen, RunArgs};
use crate::connect::Backend;
use crate::errors::Failure;
use crate::output::{note, span};

/// How long a mark in doubt is waited for, and how often it is looked at.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The mark of one command.
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

    /// Whether the command may run in this period; if its start counts, that is noted.
    pub(super) fn may_run(&self) -> Result<bool, Failure> {
        match self.when {
            MarkWhen::Start => Ok(self.lock.with_lease_time(self.period).try_lock()?),
            MarkWhen::Success => Ok(!self.lock.is_locked()?),
        }
    }

    /// When it may run again, in words; nothing if the server does not tell.
    pub(super) fn next_run_text(&self) -> String {
        let left = self.lock.remaining_lease().ok().flatten();
        left.map_or(String::new(), |left| {
            format!("; it may run again in {}", span(left))
        })
    }

    /// Forgets that the command was about to start, which it was not. What cannot be taken back counts as a run.
    pub(super) fn remove(&self) {
        if self.when == MarkWhen::Start
            && let Err(error) = self.lock.unlock()
        {
            note(&format!("{error:?}"));
        }
    }

    /// Waits, but not for long, until nothing is left of a request whose answer did not come: the client forgets it only while it
    /// lives. What is left all the same counts as a run.
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

    /// Notes that the command has ended well; its period counts from its start.
    pub(super) fn record_success(&self, begun: Instant) -> Result<(), Failure> {
        if self.when == MarkWhen::Start {
            return Ok(());
        }
        let left = self.period.saturating_sub(begun.elapsed());
        if left < Duration::from_millis(10) {
            return Ok(());
        }
        if !self.lock.with_lease_time(left).try_lock()? {
            note("somebody else has noted this period already");
        }
        Ok(())
    }
}
