//! Counts that several share: those of latches.

use std::sync::Arc;

use super::{Memory, no_answer, unreachable};
use crate::ground::clock::BootInstant;
use crate::ground::error::Result;
use crate::store::{CountOp, CountStep};
use crate::stores::memory::world::{Counter, State};

impl Memory {
    /// Carries out an operation on a counter.
    pub(super) fn change(&self, op: &CountOp<'_>) -> Result<i64> {
        let CountOp { counter, step, .. } = op;
        let unknown = || match step {
            // A question changes nothing, so an answer that does not come leaves nothing unknown.
            CountStep::Get => Err(unreachable(&counter.name, "a test lost its answer")),
            step => Err(no_answer(&counter.name, None, step.name())),
        };
        let now = self.world.timeline.now();
        self.world
            .ask(counter.kind, &counter.name, unknown, |state| {
                state.count(&counter.name, *step, now)
            })
    }
}

impl State {
    fn count(&mut self, name: &Arc<str>, step: CountStep, now: BootInstant) -> i64 {
        let count = self.counters.get(name).map(|it| it.count);
        let has_one = i64::from(count.is_some());
        match (step, count) {
            (CountStep::Get, count) => count.unwrap_or_default().max(0),
            (CountStep::SetIfMissing(..), Some(_)) => 0,
            (CountStep::SetIfMissing(count, life), None) => {
                let counter = Counter {
                    count: count.into(),
                    ends: life.map(|life| now + life),
                };
                self.counters.insert(Arc::clone(name), counter);
                1
            }
            (CountStep::CountDown, Some(count)) if count > 1 => {
                if let Some(counter) = self.counters.get_mut(name) {
                    counter.count -= 1;
                }
                count - 1
            }
            (CountStep::CountDown | CountStep::Delete, _) => {
                if self.counters.remove(name).is_some() {
                    self.wake(name, usize::MAX);
                }
                match step {
                    CountStep::Delete => has_one,
                    _ => 0,
                }
            }
        }
    }
}
