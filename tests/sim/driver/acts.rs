//! Rarer things that a thread does: it forgets a guard, or panics under one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use redlatch_sim::Guard;
use redlatch_world::events;
use redlatch_world::scheduler::{self, MILLI};

use crate::plan::Target;
use crate::process::within;
use crate::worker::Worker;

impl Worker {
    /// Takes a lock without waiting for it, by a guard.
    fn try_guard(&mut self, target: &Target) -> Option<(Guard, String)> {
        let (lock, name) = self.lock(target);
        let bound = Some(self.command);
        let outcome = within("try_guard", bound, || lock.try_guard());
        scheduler::note(|| {
            format!(
                "try_guard {name} = {:?}",
                outcome.as_ref().map(Option::is_some)
            )
        });
        match outcome {
            Ok(guard) => guard.map(|guard| (guard, name)),
            Err(error) => {
                self.allow(&name, Some(error));
                None
            }
        }
    }

    /// The level of a forgotten guard is one that `unlock` gives back.
    pub(crate) fn leak(&mut self, target: &Target) {
        if let Some((guard, name)) = self.try_guard(target) {
            events::count("guard forgotten");
            self.place.note_leak();
            std::mem::forget(guard);
            self.has_entered(target, name);
        }
    }

    pub(crate) fn unwind(&mut self, target: &Target, span: u64) {
        if let Some((guard, name)) = self.try_guard(target) {
            events::count("panic under a guard");
            let panic = catch_unwind(AssertUnwindSafe(|| {
                let _guard = guard;
                scheduler::sleep_until(scheduler::now() + span * MILLI);
                panic!("on purpose");
            }));
            if panic.is_err() {
                self.doubt(&name, "a panic");
            }
        }
    }
}
