//! How long a caller waits, and what ends the wait early.

use std::time::{Duration, Instant};

use crate::engine::wait_loop::next_step::{GRACE, Time};
use crate::ground::clock::{PROCESS, Timeline};
use crate::ground::error::Result;
use crate::ground::interrupt::Interrupt;
use crate::ground::time;

#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimit<'a> {
    bound: Bound,
    timeline: &'a Timeline,
    pub(super) interrupt: Option<&'a Interrupt>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    Once,
    /// `ahead` is how far tests had advanced the clock when the wait began. A later advance ends the wait before `end`.
    Until {
        end: Instant,
        ahead: Duration,
    },
    Forever,
}

impl<'a> WaitLimit<'a> {
    pub(crate) fn once() -> WaitLimit<'a> {
        WaitLimit {
            bound: Bound::Once,
            ..WaitLimit::forever(None)
        }
    }

    pub(crate) fn forever(interrupt: Option<&'a Interrupt>) -> WaitLimit<'a> {
        WaitLimit {
            bound: Bound::Forever,
            timeline: &PROCESS,
            interrupt,
        }
    }

    pub(crate) fn without_end<T>(
        interrupt: Option<&'a Interrupt>,
        mut attempt: impl FnMut(WaitLimit<'a>) -> Result<Option<T>>,
    ) -> Result<T> {
        loop {
            if let Some(got) = attempt(WaitLimit::forever(interrupt))? {
                return Ok(got);
            }
        }
    }

    /// Returns `None` if `wait` is too long for an [`Instant`].
    pub(crate) fn lasting(
        wait: Duration,
        timeline: &'a Timeline,
        interrupt: Option<&'a Interrupt>,
    ) -> Option<WaitLimit<'a>> {
        let ahead = timeline.ahead();
        let end = time::now().checked_add(wait)?;
        end.checked_add(GRACE)?;
        Some(WaitLimit {
            bound: Bound::Until { end, ahead },
            timeline,
            interrupt,
        })
    }

    pub(super) fn time(&self) -> Time {
        let end = match self.bound {
            Bound::Until { end, ahead } => Some(self.timeline.instant_of(end, ahead)),
            Bound::Once | Bound::Forever => None,
        };
        let now = time::now();
        Time { now, end }
    }

    pub(crate) fn is_single(&self) -> bool {
        matches!(self.bound, Bound::Once)
    }

    pub(crate) fn is_endless(&self) -> bool {
        matches!(self.bound, Bound::Forever)
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.interrupt.is_some_and(Interrupt::is_raised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_know_whether_they_are_endless_or_single() {
        let of = |limit: WaitLimit<'_>| (limit.is_single(), limit.is_endless());
        assert_eq!(of(WaitLimit::once()), (true, false));
        assert_eq!(of(WaitLimit::forever(None)), (false, true));
        let lasting = WaitLimit::lasting(Duration::ZERO, &PROCESS, None);
        assert_eq!(lasting.map(of), Some((false, false)));
    }

    #[test]
    fn a_limit_has_its_own_interrupt() {
        let interrupt = Interrupt::new();
        let limit = WaitLimit::forever(Some(&interrupt));
        assert!(
            limit
                .interrupt
                .is_some_and(|it| std::ptr::eq(it, &interrupt))
        );
        assert!(WaitLimit::once().interrupt.is_none() && !limit.is_raised());
        interrupt.raise();
        assert!(limit.is_raised() && !WaitLimit::once().is_raised());
    }
}
