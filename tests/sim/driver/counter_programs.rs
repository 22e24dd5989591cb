//! Programs of semaphores and latches, and the operations of their threads.

use std::time::Duration;

use fastrand::Rng;
use redlatch_sim::Result;
use redlatch_world::events;
use redlatch_world::scheduler::{self, MILLI, SECOND};

use crate::counters::{self, Held};
use crate::ids::{self, Source};
use crate::plan::{FaultMode, Op, Plan, PlannedFault, pick};
use crate::process::{Place, interrupt_after, within};
use crate::rules;
use crate::run::{expect, violated};
use crate::shapes::{SOON, people};
use crate::worker::Worker;

/// Requested permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) semaphore: usize,
    pub(crate) permits: u32,
    /// The timeout in ms; `None` for none.
    pub(crate) wait: Option<u64>,
    /// The requested lease in ms; `None` for the watchdog's.
    pub(crate) lease: Option<u64>,
    /// Whether an interrupt ends the wait, not its timeout.
    pub(crate) is_interrupted: bool,
}

/// How permits are released.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Release,
    Drop,
    /// By another thread.
    Elsewhere,
}

/// The other threads wait this long for the thread that sets a latch.
const SETTING: u64 = 8;

impl Worker {
    pub(crate) fn semaphore(&self, number: usize) -> String {
        match number.checked_sub(ids::FIRST) {
            Some(number) => format!("{}{number}", ids::KIND),
            None => format!("semaphore{number}"),
        }
    }

    /// Sets the semaphore or latch of this number, unless it is set.
    pub(crate) fn set(&mut self, number: usize, count: u32, is_latch: bool) {
        if is_latch {
            return self.set_latch(number, count);
        }
        let name = self.semaphore(number);
        counters::note_limit(&name, count);
        let semaphore = Source::of(self.place.client(), &name);
        loop {
            let outcome = within("try_set", Some(self.command), || semaphore.try_set(count));
            self.note("try_set", &name, &outcome);
            match outcome {
                Ok(_) => return,
                Err(error) => self.allow(&name, Some(error)),
            }
            scheduler::sleep_until(scheduler::now() + 100 * MILLI);
        }
    }

    fn set_latch(&mut self, number: usize, count: u32) {
        let name = format!("latch{number}");
        let latch = self.place.client().latch(&name);
        if !counters::sets(&name) {
            let latest = scheduler::now() + SETTING * SECOND;
            while !counters::is_set(&name) && scheduler::now() < latest {
                scheduler::sleep_until(scheduler::now() + 20 * MILLI);
            }
            if !counters::is_set(&name) {
                counters::note_set(&name, None);
            }
            return;
        }
        loop {
            let outcome = within("try_set", Some(self.command), || latch.try_set(count));
            self.note("try_set", &name, &outcome);
            match outcome {
                Ok(_) => return counters::note_set(&name, Some(count)),
                Err(error) => {
                    if error.is_ambiguous() {
                        counters::note_set(&name, None);
                    }
                    self.allow(&name, Some(error));
                    scheduler::sleep_until(scheduler::now() + 100 * MILLI);
                }
            }
        }
    }

    pub(crate) fn take(&mut self, want: &Want) {
        let name = self.semaphore(want.semaphore);
        let semaphore = Source::of(self.place.client(), &name);
        let semaphore = match want.lease {
            Some(lease) => semaphore.with_lease_time(Duration::from_millis(lease)),
            None => semaphore,
        };
        let outcome = self.wait_for_permits("acquire", &name, want, |wait| match wait {
            None => semaphore.acquire(want.permits).map(Some),
            Some(0) => semaphore.try_acquire(want.permits),
            Some(after) if want.is_interrupted => {
                let taken = semaphore.acquire_interruptibly(want.permits, &interrupt_after(after));
                taken.map(Some)
            }
            Some(wait) => semaphore.try_acquire_for(want.permits, Duration::from_millis(wait)),
        });
        match outcome {
            Ok(Some(permits)) => {
                events::count("permits taken");
                let renewed = want.lease.is_none().then_some(self.lease);
                self.permits.push(Held::new(&name, permits, renewed));
            }
            Ok(None) => {}
            Err(error) => self.allow(&name, Some(error)),
        }
    }

    /// Runs `call`, which waits for permits for at most this many ms, and checks that it overtakes no other thread.
    pub(crate) fn wait_for_permits<T: std::fmt::Debug>(
        &mut self,
        what: &str,
        name: &str,
        want: &Want,
        call: impl FnOnce(Option<u64>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if want.lease.is_some() {
            self.doubt(name, "a fixed lease");
        }
        // A thread with permits may wait for itself, and an unset semaphore is waited for.
        let may_wait = self.permits.is_empty() && counters::has_limit(name);
        let wait = want.wait.or_else(|| (!may_wait).then_some(300));
        let bound = wait.map(|wait| match wait {
            0 => self.command,
            _ if want.is_interrupted => (wait + 250) * MILLI + self.command,
            _ => (wait + 250) * MILLI,
        });
        scheduler::note(|| format!("{what} {name}: {want:?}"));
        let began = scheduler::now();
        let waits = rules::waits_for_some(name, want.permits);
        let outcome = within(what, bound, || call(wait));
        // A single attempt bypasses the waiters, and so does the last attempt of a wait at its timeout.
        let bypasses = wait.is_some_and(|wait| scheduler::now() >= began + wait * MILLI);
        let overtakes = waits.overtakes().filter(|_| !bypasses);
        if let (Ok(Some(_)), Some(flaw)) = (&outcome, overtakes) {
            violated(&flaw);
        }
        drop(waits);
        self.note(what, name, &outcome);
        outcome
    }

    /// Releases the permits that it acquired first.
    pub(crate) fn give_back(&mut self, how: End) {
        if self.permits.is_empty() {
            return;
        }
        let held = self.permits.remove(0);
        let name = held.name.clone();
        let Some(permits) = held.into_permits() else {
            return;
        };
        let bound = Some(self.command);
        let outcome = match how {
            End::Release => within("release", bound, || permits.release()),
            End::Drop => {
                within("the drop of permits", bound, || drop(permits));
                return;
            }
            End::Elsewhere => {
                let other = scheduler::spawn("other", None, move || {
                    within("release", bound, || permits.release())
                });
                match expect(other).join() {
                    Ok(outcome) => outcome,
                    Err(_) => violated("the release of permits has panicked"),
                }
            }
        };
        self.note("release", &name, &outcome);
        self.allow(&name, outcome.err());
    }

    pub(crate) fn count_down(&mut self, number: usize) {
        let name = format!("latch{number}");
        let latch = self.place.client().latch(&name);
        counters::count_down(&name);
        let outcome = within("count_down", Some(self.command), || latch.count_down());
        self.note("count_down", &name, &outcome);
        let told = outcome.as_ref().map(|left| *left);
        let told = told.map_err(redlatch_sim::Error::is_ambiguous);
        if let Some(flaw) = counters::counted_down(&name, told) {
            violated(&flaw);
        }
        events::count("counted down");
        self.allow(&name, outcome.err());
    }

    pub(crate) fn wait_for_latch(&mut self, number: usize, wait: u64) {
        let name = format!("latch{number}");
        let latch = self.place.client().latch(&name);
        let began = scheduler::now();
        let bound = match wait {
            0 => self.command,
            _ => (wait + 250) * MILLI,
        };
        let waits = rules::waits_for(&name);
        let outcome = within("wait_for", Some(bound), || {
            latch.wait_for(Duration::from_millis(wait))
        });
        drop(waits);
        self.note("wait_for", &name, &outcome);
        // A client with few connections may have had none free until its deadline.
        let told = outcome.as_ref().ok().copied();
        let told = told.filter(|passed| *passed || !self.plan.is_crowded());
        if let Some(flaw) = told.and_then(|passed| counters::passed(&name, began, passed)) {
            violated(&flaw);
        }
        if matches!(outcome, Ok(true)) {
            events::count("latch passed");
        }
        self.allow(&name, outcome.err());
    }
}

/// When all have ended, acquires all permits.
pub(crate) fn audit(plan: &Plan) {
    // The leases of dead clients have ended by then.
    scheduler::sleep_until(scheduler::now() + plan.longest_lease() * MILLI);
    let place = Place::open(plan);
    ids::give_all_back(place.client());
    for (name, permits) in counters::semaphores() {
        let semaphore = Source::of(place.client(), &name);
        if permits == 0 || matches!(semaphore.try_set(permits), Ok(true)) {
            continue;
        }
        let taken = semaphore.try_acquire_for(permits, Duration::from_secs(3));
        scheduler::note(|| format!("all {permits} of {name} = {taken:?}"));
        if !matches!(taken, Ok(Some(_))) {
            violated(&format!(
                "I12: nobody has permits of {name} any more, and {permits} cannot be had"
            ));
        }
    }
}

/// The world of a shape of counters, before its programs.
pub(crate) fn world(plan: &mut Plan, draw: &mut Rng) {
    let fault_modes = [
        FaultMode::Calm,
        FaultMode::Calm,
        FaultMode::Lossy,
        FaultMode::Slow,
        FaultMode::Stray,
        FaultMode::Partitioned,
        FaultMode::Restarting,
        FaultMode::Processes,
    ];
    plan.fault_mode = pick(draw, &fault_modes);
    plan.lease = pick(draw, &[1_000, 3_000, 10_000]);
    plan.command = pick(draw, &[500, 2_000]);
    plan.calm_at = draw.u64(1..=6) * SECOND;
    plan.pool = pick(draw, &[2, 32]);
    // Queued threads send their own requests after this time without a reply.
    plan.outage = pick(draw, &[10_000, 30_000]);
    plan.settle = 60 * SECOND + plan.longest_lease() * MILLI;
}

/// Cuts connections under leases that outlast the detection of the cut: grants of requests without a reply are
/// released before.
pub(crate) fn cuts(plan: &mut Plan, draw: &mut Rng) {
    plan.fault_mode = FaultMode::Lossy;
    plan.lease = pick(draw, &[10_000, 30_000]);
    plan.calm_at = draw.u64(1..4) * SECOND;
    plan.settle = SOON;
    plan.faults.cut = pick(draw, &[0.05, 0.15]);
    plan.faults.refuse = pick(draw, &[0.0, 0.3]);
    plan.faults.late = pick(draw, &[0.0, 0.1]);
    plan.faults.longest = 300 * MILLI;
}

/// Draws the faults: the server loses nothing, because nothing is promised otherwise.
pub(crate) fn befall(plan: &mut Plan, draw: &mut Rng) {
    plan.trouble(draw);
    plan.planned_faults.retain(|(_, blow)| {
        !matches!(
            blow,
            PlannedFault::Forget(..) | PlannedFault::Flush(_) | PlannedFault::Replace(..)
        )
    });
}

/// Programs of semaphores; those with ids are released by any thread.
pub(crate) fn permits(plan: &mut Plan, draw: &mut Rng, has_ids: bool) {
    world(plan, draw);
    let is_cut = draw.u8(..4) == 0;
    if is_cut {
        cuts(plan, draw);
    }
    let limits: Vec<u32> = (0..draw.usize(1..=2)).map(|_| draw.u32(1..=5)).collect();
    let (lease, is_calm) = (plan.lease, plan.fault_mode == FaultMode::Calm);
    people(plan, draw, 3, &|draw| {
        let sets = limits.iter().enumerate();
        let first = if has_ids { ids::FIRST } else { 0 };
        let mut ops: Vec<Op> = sets
            .map(|(number, count)| Op::Set(first + number, *count, false))
            .collect();
        for _ in 0..draw.usize(2..=8) {
            let number = draw.usize(..limits.len());
            let semaphore = first + number;
            let lease = match draw.u8(..8) {
                0 => Some(draw.u64(100..1_000)),
                1 => Some(lease * 2),
                _ => None,
            };
            let wait = match draw.u8(..6) {
                0 => Some(0),
                1 | 2 => None,
                _ => Some(draw.u64(1..=lease.unwrap_or(2_000))),
            };
            let pause = match draw.u8(..6) {
                0 => draw.u64(..=lease.unwrap_or(3_000)),
                1..=3 => draw.u64(..300),
                _ => draw.u64(..20),
            };
            if has_ids && draw.bool() {
                ops.push(id_op(draw, semaphore, lease, wait, is_calm));
                continue;
            }
            ops.push(match draw.u8(..12) {
                0..5 => Op::Take(Want {
                    semaphore,
                    permits: draw.u32(1..=limits[number]),
                    wait,
                    lease,
                    is_interrupted: draw.u8(..6) == 0,
                }),
                5..8 => Op::GiveBack(match draw.u8(..4) {
                    0 => End::Drop,
                    1 => End::Elsewhere,
                    _ => End::Release,
                }),
                _ => Op::Sleep(pause),
            });
        }
        ops
    });
    let threads = || plan.processes.iter().flat_map(|it| &it.threads);
    let mut ops = threads().flat_map(|thread| &thread.program);
    let endless = ops.any(|op| matches!(op, Op::TakeId(Want { lease: None, .. })));
    for thread in plan.processes.iter_mut().flat_map(|it| &mut it.threads) {
        // No thread may release it.
        for op in thread.program.iter_mut().filter(|_| endless) {
            if let Op::Take(want) | Op::TakeId(want) = op {
                want.wait = want.wait.or(Some(2_000));
            }
        }
        thread.leaves = draw.u8(..10) == 0;
    }
    if !is_cut {
        befall(plan, draw);
    }
}

/// Something that is done to permits that no handle owns.
fn id_op(
    draw: &mut Rng,
    semaphore: usize,
    lease: Option<u64>,
    wait: Option<u64>,
    is_calm: bool,
) -> Op {
    // A permit without a lease whose reply is lost would never be released.
    let lease = match draw.u8(..4) {
        0 if is_calm => None,
        1 => Some(draw.u64(100..3_000)),
        _ => Some(lease.unwrap_or(3_000)),
    };
    match draw.u8(..8) {
        0..4 => Op::TakeId(Want {
            semaphore,
            permits: 1,
            wait,
            lease,
            is_interrupted: false,
        }),
        _ => Op::GiveIdBack(draw.u8(..3) == 0),
    }
}

pub(crate) fn latches(plan: &mut Plan, draw: &mut Rng) {
    world(plan, draw);
    let counts: Vec<u32> = (0..draw.usize(1..=2)).map(|_| draw.u32(1..=6)).collect();
    people(plan, draw, 4, &|draw| {
        let sets = counts.iter().enumerate();
        let mut ops: Vec<Op> = sets
            .map(|(number, count)| Op::Set(number, *count, true))
            .collect();
        for _ in 0..draw.usize(1..=6) {
            let latch = draw.usize(..counts.len());
            ops.push(match draw.u8(..8) {
                0..3 => Op::CountDown(latch),
                3..6 => Op::WaitForLatch(latch, pick(draw, &[0, 100, 1_000, 4_000])),
                _ => Op::Sleep(pick(draw, &[5, 50, 500])),
            });
        }
        ops
    });
    befall(plan, draw);
}
