//! Operations on counters, which are semaphores and latches, and the wait until a counter is 0.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::engine::hold::{Hold, ReleasePlan};
use crate::engine::owner::current_thread_id;
use crate::engine::raw_lock::RawLock;
use crate::engine::wait_loop::{self, Visit, WaitLimit};
use crate::ground::claim::VisitorId;
use crate::ground::error::Result;
use crate::ground::events::WaitSpan;
use crate::ground::loss::LossCause;
use crate::store::{CountOp, CountStep, Refusal};

/// A waiter that receives no message queries the counter after this time.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

impl RawLock {
    pub(crate) fn count(&self, step: CountStep) -> Result<i64> {
        self.ready()?;
        self.count_until(step, None, self.inner.deadline())
    }

    pub(crate) fn count_permit(&self, step: CountStep, permit: &VisitorId) -> Result<i64> {
        self.ready()?;
        self.count_until(step, Some(permit), self.inner.deadline())
    }

    fn count_until(
        &self,
        step: CountStep,
        permit: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<i64> {
        let number = self.inner.next_hold();
        let op = CountOp {
            counter: &self.key.lock,
            request: VisitorId::new(&self.inner.id, current_thread_id(), number),
            permit,
            step,
        };
        self.ask_count(&op, deadline)
    }

    fn ask_count(&self, op: &CountOp<'_>, deadline: Instant) -> Result<i64> {
        self.inner.ask_by("count", |store| {
            store.redis_for(op.counter)?.count(op, deadline)
        })
    }

    /// Gives up the ownership of acquired permits. The permits stay acquired in the store.
    pub(crate) fn forget(&self, hold: &Hold) -> Result<()> {
        let deadline = self.inner.deadline();
        match hold.release_level(0, deadline) {
            ReleasePlan::Whole(_) => {}
            ReleasePlan::Lost { cause, .. } => return Err(hold.lost_error(cause)),
            _ => return Err(self.not_held()),
        }
        self.inner.watchdog.unwatch(hold);
        if self.key.lock.kind.rules().has_ids {
            // These permits stay acquired under their ids, so the store needs no request.
            hold.close_listeners();
            return Ok(());
        }
        let op = CountOp {
            counter: &self.key.lock,
            request: hold.visitor.clone(),
            permit: None,
            step: CountStep::Forget,
        };
        let outcome = match self.ask_count(&op, deadline) {
            Ok(1) => Ok(()),
            Ok(_) => Err(self.inner.watchdog.lost_in_release(hold, LossCause::Gone)),
            Err(error) => Err(error),
        };
        hold.close_listeners();
        outcome
    }

    /// Waits until the counter is 0 or missing. Returns false if `limit` is reached first.
    pub(crate) fn wait_for_zero(&self, limit: WaitLimit<'_>) -> Result<bool> {
        self.ready()?;
        let RawLock { inner, key, .. } = self;
        let class = inner.counters.class(self.class);
        let _span = WaitSpan::enter(&key.lock.name, class, current_thread_id());
        let mut visit = CountVisit(self);
        Ok(wait_loop::wait(inner, &key.lock, None, limit, &mut visit)?.is_some())
    }
}

struct CountVisit<'a>(&'a RawLock);

impl Visit for CountVisit<'_> {
    type Entry = ();

    fn attempt(&mut self, deadline: Instant) -> Result<ControlFlow<(), Refusal>> {
        if self.0.count_until(CountStep::Get, None, deadline)? <= 0 {
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(Refusal::until(Some(LOOKS_AGAIN))))
    }
}
