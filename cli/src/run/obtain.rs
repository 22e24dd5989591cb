//! Acquires the lock for a command. The lock may be refused, or a signal may end the wait.

use std::time::Duration;

use redlatch::{Guard, Lock, MultiLock};

use super::arguments::RunArgs;
use super::progress::WaitProgress;
use crate::connect::Backend;
use crate::errors::Failure;
use crate::signals::Signals;

/// The environment variable that lists the holds of outer runs.
pub(super) const VISITORS: &str = "REDLATCH_VISITOR";

pub(super) enum Obtained {
    Held(Guard),
    Refused,
    /// An outer run holds the lock.
    Nested,
    Signalled(u8),
}

pub(super) fn obtain(
    args: &RunArgs,
    backend: &Backend,
    signals: &Signals,
) -> Result<Obtained, Failure> {
    let locks: Vec<Lock> = args.names.iter().map(|name| backend.lock(name)).collect();
    let lock = match &locks[..] {
        [lock] => lock.clone(),
        several => MultiLock::of(several)?,
    };
    let is_nested = is_held_around(&locks, signals);
    if let Some(number) = signals.ending() {
        return Ok(Obtained::Signalled(number));
    }
    if is_nested? {
        return Ok(Obtained::Nested);
    }
    let wait_timeout = args.wait_timeout();
    let waits = wait_timeout != Some(Duration::ZERO) && !args.quiet;
    let progress = waits.then(|| WaitProgress::begin(args.title(), locks.clone()));
    let taken = match wait_timeout {
        None => lock.guard_interruptibly(signals.interrupt()).map(Some),
        Some(Duration::ZERO) => lock.try_guard(),
        Some(wait_timeout) => lock.try_guard_for_interruptibly(wait_timeout, signals.interrupt()),
    };
    drop(progress);
    let number = signals.ending();
    match (taken, number) {
        (Ok(Some(guard)), Some(number)) => {
            super::release(guard);
            Ok(Obtained::Signalled(number))
        }
        (Ok(None) | Err(_), Some(number)) => Ok(Obtained::Signalled(number)),
        (Ok(Some(guard)), None) => Ok(Obtained::Held(guard)),
        (Ok(None), None) => Ok(Obtained::Refused),
        (Err(error), None) => Err(error.into()),
    }
}

/// Whether an outer run holds one of the locks. The id of a hold is never reused, so a stale variable does no harm.
fn is_held_around(locks: &[Lock], signals: &Signals) -> Result<bool, Failure> {
    let around = std::env::var(VISITORS).unwrap_or_default();
    if around.is_empty() {
        return Ok(false);
    }
    for lock in locks {
        if signals.ending().is_some() {
            return Ok(false);
        }
        for holder in lock.describe()?.holders {
            if around.split(' ').any(|visitor| holder.is_visitor(visitor)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
