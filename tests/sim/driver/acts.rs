//! Rarer things that a thread does: it forgets a guard, panics under one, forks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fork::Fork;
use redlatch_sim::{Error, Guard, Lock};
use redlatch_world::events;
use redlatch_world::scheduler::forks::{self, Breach};
use redlatch_world::scheduler::{self, MILLI};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::plan::Target;
use crate::process::within;
use crate::run::violated;
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

    pub(crate) fn fork(&mut self, target: &Target) {
        let (lock, _) = self.lock(target);
        let guard = self.try_guard(target);
        events::count("fork");
        match fork::fork() {
            Ok(Fork::Child) => {
                forks::enter();
                live_as_child(&lock, guard.map(|(guard, _)| guard));
            }
            Ok(Fork::Parent(child)) => judge(child),
            Err(error) => violated(&format!("the world cannot fork: {error}")),
        }
        if let Some((guard, name)) = guard {
            let outcome = within("the unlock of a guard", Some(self.command), || {
                guard.unlock()
            });
            self.allow(&name, outcome.err());
        }
    }
}

/// All that a child may do is to fail.
fn live_as_child(lock: &Lock, guard: Option<Guard>) -> ! {
    let wait = Duration::from_secs(1);
    let outcomes = [
        lock.lock().map(|()| true),
        lock.try_lock(),
        lock.try_lock_for(wait),
        lock.unlock().map(|()| true),
        lock.force_unlock(),
        lock.is_locked(),
        lock.hold_count().map(|count| count > 0),
        lock.lost().map(|_| true),
        lock.try_guard().map(|guard| guard.is_some()),
    ];
    let is_forked = |outcome: &Result<bool, Error>| matches!(outcome, Err(Error::Forked { .. }));
    let is_sure = lock.is_valid() || guard.as_ref().is_some_and(Guard::is_valid);
    drop(guard);
    if is_sure || !outcomes.iter().all(is_forked) {
        forks::exit(Breach::Answers);
    }
    std::process::exit(0)
}

/// Waits for a child, in the time of the real world, and says what it has done.
fn judge(child: i32) {
    let pid = Pid::from_raw(child);
    for _ in 0..20_000 {
        match waitpid(pid, WaitOptions::NOHANG) {
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Ok(Some((_, status))) => match status.exit_status() {
                Some(0) => return,
                Some(3) => violated("the child of a fork waits for a thread that it does not have"),
                Some(4) => violated("the child of a fork touches a connection"),
                Some(5) => violated("the child of a fork is not told that it is one"),
                code => violated(&format!("the child of a fork ends with {code:?}")),
            },
            Err(error) => violated(&format!("the child of a fork is gone: {error}")),
        }
    }
    if let Some(pid) = pid {
        // It is of no use any more, dead or alive.
        let _ = kill_process(pid, Signal::KILL);
    }
    violated("the child of a fork hangs");
}
