//! A thread with its program, and the guarantees after each reply.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redlatch_sim::{Error, Lock, Losses, NoLoss, Result, thread_holds};
use redlatch_world::events;
use redlatch_world::scheduler::{self, MILLI, Nanos};

use crate::counter_programs::End;
use crate::counters::Held;
use crate::plan::{FaultMode, Op, Plan, Target, Thread};
use crate::process::{Place, interrupt_after, within};
use crate::rules;
use crate::run::violated;
use crate::sides;
use crate::writes::Writes;

/// A thread with its program.
pub(crate) struct Worker {
    pub(crate) place: Place,
    thread: Thread,
    pub(crate) command: Nanos,
    pub(crate) plan: Plan,
    is_calm: bool,
    /// When all losses have been reported after the client's shutdown.
    told_at: Option<Nanos>,
    /// The levels that it relies on, and the locks with levels that may be lost.
    levels: BTreeMap<String, u32>,
    /// The target of each entered lock.
    targets: BTreeMap<String, Target>,
    in_doubt: BTreeSet<String>,
    /// For each lock, the receiver of the loss of its first hold.
    losses: BTreeMap<String, Losses>,
    /// Its guarded writes that may still run.
    pub(crate) writes: Writes,
    /// The lease that the watchdog renews.
    pub(crate) lease: Duration,
    pub(crate) permits: Vec<Held>,
}

impl Worker {
    pub(crate) fn new(
        place: &Place,
        thread: Thread,
        closes_at: Option<Nanos>,
        plan: &Plan,
    ) -> Worker {
        Worker {
            place: place.clone(),
            thread,
            command: plan.command * MILLI,
            plan: plan.clone(),
            is_calm: plan.fault_mode == FaultMode::Calm,
            told_at: told_at(closes_at, plan),
            levels: BTreeMap::new(),
            targets: BTreeMap::new(),
            in_doubt: BTreeSet::new(),
            losses: BTreeMap::new(),
            writes: Writes::default(),
            lease: Duration::from_millis(plan.lease),
            permits: Vec::new(),
        }
    }

    pub(crate) fn run(mut self) {
        let me = rules::watch_me();
        self.writes.by(&me);
        for op in std::mem::take(&mut self.thread.program) {
            self.execute(&op);
            self.compare(&me);
        }
        if self.thread.leaves {
            rules::leaves(&me);
            scheduler::note(|| "leaves".to_owned());
            if self.levels.values().any(|levels| *levels > 0) {
                events::count("thread ended with holds");
            }
            return;
        }
        for (name, count) in self.levels.clone() {
            let Some(target) = self.targets.get(&name).copied() else {
                continue;
            };
            for _ in 0..count {
                self.execute(&Op::Unlock(target));
            }
        }
        while !self.permits.is_empty() {
            self.give_back(End::Release);
        }
    }

    /// Compares the library's counts with the program's.
    fn compare(&mut self, me: &thread_holds::WatchedThread) {
        self.listen();
        let Some(seen) = thread_holds::holds_of(me) else {
            return;
        };
        for (name, levels) in &self.levels.clone() {
            if self.in_doubt.contains(name) || self.plan.may_lose() {
                continue;
            }
            let hold = seen.iter().find(|hold| hold.name == *name);
            let held = hold.filter(|hold| hold.is_held);
            let count = held.map_or(0, |hold| hold.count);
            // A hold that ended by the clock is reported soon.
            if count != *levels && hold.is_none_or(|hold| hold.is_valid) {
                match self.losses.get(name).map(Losses::try_recv) {
                    Some(Ok(loss)) if self.plan.survives() => violated(&format!(
                        "I9: a trouble shorter than the lease has ended a hold: {loss}"
                    )),
                    Some(Ok(loss)) => self.doubt(name, &loss.to_string()),
                    told => violated(&format!(
                        "I7: {name} is held {count} times, not {levels}, and was told {told:?}"
                    )),
                }
            }
        }
    }

    /// Checks that the loss of each hold is reported that a client had or acquired during its shutdown.
    fn listen(&self) {
        if self.told_at.is_none_or(|at| scheduler::now() < at) {
            return;
        }
        for (name, losses) in &self.losses {
            let is_held = self.levels.get(name).is_some_and(|levels| *levels > 0);
            // A lock with members stays valid on its own until its validity ends.
            let is_whole = name.contains(" + ");
            if is_held && !is_whole && matches!(losses.try_recv(), Err(NoLoss::NotYet)) {
                violated(&format!(
                    "I6: the client of the hold of {name} was shut down, and its loss is not told"
                ));
            }
        }
    }

    /// Whether the thread may wait for this lock without a timeout: locks are ordered, to exclude deadlocks.
    fn may_wait(&self, name: &str) -> bool {
        let mut held = self.levels.iter().filter(|(_, levels)| **levels > 0);
        held.all(|(held, _)| {
            **held == *name || (!self.plan.topology.has_overlaps() && **held < *name)
        })
    }

    /// Whether it relies on holding a lock.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.levels.get(name).is_some_and(|levels| *levels > 0)
    }

    /// Whether no faults affect it.
    pub(crate) fn is_in_calm(&self) -> bool {
        self.is_calm
    }

    /// Records that it has reacquired a lock after a wait on a condition.
    pub(crate) fn has_come_back(&mut self, lock: &Lock, name: &str) {
        if let Ok(losses) = lock.lost() {
            self.losses.insert(name.to_owned(), losses);
        }
    }

    pub(crate) fn execute(&mut self, op: &Op) {
        match op {
            Op::Lock(target) | Op::Guarded(target, ..) if !self.may_wait(&self.lock(target).1) => {
                self.execute(&Op::TryFor(*target, 500));
            }
            Op::Sleep(span) => scheduler::sleep_until(scheduler::now() + span * MILLI),
            Op::Lock(target) => self.enter(target, "lock", None, |lock| lock.lock().map(|()| true)),
            Op::Try(target) => {
                let bound = self.command;
                self.enter(target, "try_lock", Some(bound), Lock::try_lock);
            }
            Op::TryFor(target, wait) => {
                let bound = (wait + 250) * MILLI;
                let wait = Duration::from_millis(*wait);
                self.enter(target, "try_lock_for", Some(bound), |lock| {
                    lock.try_lock_for(wait)
                });
            }
            Op::Interruptibly(target, after) => {
                let interrupt = interrupt_after(*after);
                let bound = (after + 250) * MILLI + self.command;
                self.enter(target, "lock_interruptibly", Some(bound), |lock| {
                    lock.lock_interruptibly(&interrupt).map(|()| true)
                });
            }
            Op::Unlock(target) => self.unlock(target),
            Op::Set(number, count, is_latch) => self.set(*number, *count, *is_latch),
            Op::Take(want) => self.take(want),
            Op::GiveBack(how) => self.give_back(*how),
            Op::TakeId(want) => self.take_id(want),
            Op::GiveIdBack(twice) => self.give_id_back(*twice),
            Op::CountDown(number) => self.count_down(*number),
            Op::WaitForLatch(number, wait) => self.wait_for_latch(*number, *wait),
            Op::Produce(target, things, all) => self.produce(target, *things, *all),
            Op::Consume(target, how) => self.consume(target, *how),
            Op::Force(target) => {
                let (lock, name) = self.lock(target);
                self.doubt(&name, "force_unlock");
                let bound = Some(self.command);
                let outcome = within("force_unlock", bound, || lock.force_unlock());
                self.note("force_unlock", &name, &outcome);
                self.allow(&name, outcome.err());
            }
            Op::Write(target) => self.write(target),
            Op::Guarded(target, span, reenters) => self.guarded(target, *span, *reenters),
            Op::Ask(target) => {
                let (lock, name) = self.lock(target);
                let bound = Some(self.command);
                let outcome = within("is_locked", bound, || lock.is_locked());
                self.note("is_locked", &name, &outcome);
                self.allow(&name, outcome.err());
                let outcome = within("hold_count", bound, || lock.hold_count());
                self.note("hold_count", &name, &outcome);
                self.allow(&name, outcome.err());
            }
        }
    }

    pub(crate) fn lock(&self, target: &Target) -> (Lock, String) {
        let (lock, name) = match target.side {
            Some(writes) => self.place.side(target.name, writes),
            None => self.place.lock(target.name, target.is_token),
        };
        let lock = match target.lease {
            Some(lease) => lock.with_lease_time(Duration::from_millis(lease.max(100))),
            None => lock,
        };
        (lock, name)
    }

    pub(crate) fn note<T: std::fmt::Debug>(&self, what: &str, name: &str, outcome: &T) {
        scheduler::note(|| format!("{what} {name} = {outcome:?}"));
    }

    /// From now on its levels may be lost.
    pub(crate) fn doubt(&mut self, name: &str, why: &str) {
        if self.in_doubt.contains(name) {
            return;
        }
        let is_known = matches!(why, "a fixed lease" | "force_unlock");
        if self.is_calm && !is_known && !self.plan.may_lose() {
            violated(&format!("in calm {name} is in doubt: {why}"));
        }
        self.in_doubt.insert(name.to_owned());
    }

    fn enter(
        &mut self,
        target: &Target,
        what: &str,
        bound: Option<Nanos>,
        call: impl FnOnce(&Lock) -> Result<bool>,
    ) {
        let (lock, name) = self.lock(target);
        if target.lease.is_some() {
            self.doubt(&name, "a fixed lease");
        }
        scheduler::note(|| format!("{what} {name} lease {:?}", target.lease));
        let waits = rules::waits_for(&name);
        let wish = target.side.map(|_| sides::begin(&name, bound));
        let outcome = within(what, bound, || call(&lock));
        drop(waits);
        self.note(what, &name, &outcome);
        if let Some(wish) = wish {
            self.has_wished(wish, target, &name, &outcome);
        }
        match outcome {
            Ok(true) => self.has_entered(target, name),
            Ok(false) => {}
            Err(error) => self.allow(&name, Some(error)),
        }
    }

    /// Checks that a side was granted in turn, and that a refusal was not caused by the thread's own holds.
    fn has_wished(&mut self, wish: u64, target: &Target, name: &str, outcome: &Result<bool>) {
        let has = |writes| {
            let levels = self.levels.get(&sides::name_of(target.name, writes));
            levels.is_some_and(|levels| *levels > 0)
        };
        let (reads, writes) = (has(false), has(true));
        let is_sure = !self.in_doubt.contains(&sides::name_of(target.name, true));
        let is_read = target.side == Some(false);
        if is_read && writes && is_sure && self.is_calm && matches!(outcome, Ok(false)) {
            violated(&format!(
                "I15: a thread that writes is kept from reading {name}"
            ));
        }
        let is_upgrade = matches!(outcome, Err(Error::Upgrade { .. }));
        if is_upgrade && self.is_calm && (is_read || writes && is_sure || !reads) {
            violated(&format!(
                "I15: {name} is refused as if its thread were reading"
            ));
        }
        if let Some(flaw) = sides::end(wish, outcome, !reads && !writes, self.is_calm) {
            violated(&flaw);
        }
    }

    /// Counts one level more.
    pub(crate) fn has_entered(&mut self, target: &Target, name: String) {
        if name.contains(" + ") {
            events::count("multi-lock entered");
        } else if name.starts_with("fenced") {
            events::count("fenced lock entered");
        } else if name.starts_with("spin") {
            events::count("spin lock entered");
        } else if name.starts_with("fair") {
            events::count("fair lock entered");
        }
        let (lock, _) = self.lock(target);
        let target = Target {
            lease: None,
            ..*target
        };
        self.targets.insert(name.clone(), target);
        let levels = self.levels.entry(name.clone()).or_default();
        *levels += 1;
        if *levels == 1
            && let Ok(losses) = lock.lost()
        {
            self.losses.insert(name, losses);
        }
    }

    fn unlock(&mut self, target: &Target) {
        let (lock, name) = self.lock(target);
        let outcome = within("unlock", Some(self.command), || lock.unlock());
        self.note("unlock", &name, &outcome);
        let levels = self.levels.entry(name.clone()).or_default();
        let had = std::mem::replace(levels, levels.saturating_sub(1));
        match outcome {
            Ok(()) if had == 0 => violated(&format!("I7: {name} was unlocked, and not held")),
            Ok(()) if had == 1 => {
                sides::left(&name);
                self.writes.end(&name);
            }
            Ok(()) => {}
            Err(Error::NotHeld { .. }) if had == 0 => {}
            Err(Error::NotHeld { .. }) if !self.in_doubt.contains(&name) => {
                violated(&format!("I7: {name} is held {had} times, and is not held"));
            }
            Err(error) => self.allow(&name, Some(error)),
        }
    }

    /// Checks whether an error is allowed here.
    pub(crate) fn allow(&mut self, name: &str, error: Option<Error>) {
        let Some(error) = error else {
            return;
        };
        let is_allowed = match &error {
            Error::Interrupted { .. } | Error::NotReentrant { .. } | Error::Upgrade { .. } => true,
            Error::Overlap { .. } => {
                events::count("overlap");
                self.plan.topology.has_overlaps()
            }
            Error::Closed { .. } => self.plan.shuts_down(),
            Error::Exhausted { .. } => true,
            Error::Lost { .. } => true,
            Error::NotHeld { .. } => self.in_doubt.contains(name),
            Error::NoQuorum { .. } => {
                // Its nodes report the cause: the pool may be too small, or this process too slow.
                !self.is_calm || self.plan.may_lose() || self.plan.is_crowded()
            }
            Error::Unreachable { .. }
            | Error::Unknown { .. }
            | Error::Unavailable { .. }
            | Error::NotReplicated { .. } => !self.is_calm,
            _ => false,
        };
        if !is_allowed {
            violated(&format!("an error that cannot be here: {error:?}"));
        }
        let changes_nothing = matches!(
            error,
            Error::Interrupted { .. }
                | Error::NotReentrant { .. }
                | Error::Upgrade { .. }
                | Error::Overlap { .. }
                | Error::Exhausted { .. }
                | Error::NoQuorum { .. }
                | Error::Closed { .. }
        );
        if !changes_nothing && !self.in_doubt.contains(name) {
            self.doubt(name, &error.to_string());
        }
    }

    fn guarded(&mut self, target: &Target, span: u64, reenters: bool) {
        let (lock, name) = self.lock(target);
        if target.lease.is_some() {
            self.doubt(&name, "a fixed lease");
        }
        let waits = rules::waits_for(&name);
        let outcome = within("guard", None, || lock.guard());
        drop(waits);
        scheduler::note(|| format!("guard {name} = {:?}", outcome.as_ref().map(|_| ())));
        let guard = match outcome {
            Ok(guard) => guard,
            Err(error) => return self.allow(&name, Some(error)),
        };
        if reenters && !target.is_token {
            let inner = within("guard", None, || lock.guard());
            if let Ok(inner) = inner {
                scheduler::sleep_until(scheduler::now() + span * MILLI / 2);
                within("the drop of a guard", Some(self.command), || drop(inner));
            }
        }
        scheduler::sleep_until(scheduler::now() + span * MILLI);
        let outcome = within("the unlock of a guard", Some(self.command), || {
            guard.unlock()
        });
        self.note("unlock of the guard", &name, &outcome);
        self.allow(&name, outcome.err());
    }
}

/// When all losses of a client are reported that is shut down at `closes_at`, unless it is kept from running.
fn told_at(closes_at: Option<Nanos>, plan: &Plan) -> Option<Nanos> {
    let is_kept = plan.fault_mode != FaultMode::Calm || plan.pace.jump > 0.0;
    let closes_at = closes_at.filter(|_| !is_kept)?;
    Some(closes_at + (plan.command + 1_000) * MILLI)
}
