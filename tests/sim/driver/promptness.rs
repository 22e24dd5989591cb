//! Time rules of holds: an end is reported at once, renewals are not late, and keys without an owner are freed soon.

use std::collections::{BTreeMap, BTreeSet};

use redlatch_sim::thread_holds::HoldView;
use redlatch_world::scheduler::{self, MILLI, Nanos};

use crate::counters;
use crate::ids;
use crate::machine::{Redis, is_excused};

/// A hold that the checker sees, and the process that considers it held.
pub(crate) struct Observation {
    pub(crate) process: usize,
    pub(crate) hold: HoldView,
}

/// Since when a condition holds, and how long the process had been kept from running by then.
#[derive(Clone, Copy, Debug)]
struct Since {
    at: Nanos,
    lag: Nanos,
}

/// The validity of a hold when it was last set.
#[derive(Clone, Copy, Debug)]
struct Validity {
    ends: Nanos,
    set: Since,
    /// Whether it has had one level all the time.
    is_plain: bool,
}

#[derive(Default)]
pub(crate) struct Promptness {
    /// By visitor, holds whose validity has ended without a report.
    ended: BTreeMap<String, Since>,
    validities: BTreeMap<String, Validity>,
    /// Keys without an owner, by server, name and visitor.
    ownerless: BTreeMap<(usize, String, String), Since>,
    looked_at: Nanos,
    /// Visitors whose threads left their holds to their leases.
    left: BTreeSet<String>,
}

/// The end of a validity is reported within this time.
const TOLD: Nanos = 100 * MILLI;

/// The keys are checked this often.
const LOOK: Nanos = 50 * MILLI;

impl Since {
    fn now(process: usize) -> Since {
        Since {
            at: scheduler::now(),
            lag: scheduler::lag(process),
        }
    }

    /// The elapsed time, not counting the time for which the process was kept from running.
    fn passed(self, process: usize) -> Nanos {
        let kept = scheduler::lag(process) - self.lag;
        (scheduler::now() - self.at).saturating_sub(kept)
    }
}

impl Promptness {
    /// When something may change by time alone; `None` for never.
    pub(crate) fn looks_again_in(
        &self,
        observations: &[Observation],
        looks_for_owners: bool,
    ) -> Option<Nanos> {
        let holds = observations.iter().map(|observation| &observation.hold);
        let of_holds = holds.filter(|hold| hold.is_held).map(|hold| {
            let late = hold.renewed.unwrap_or_default() / 4;
            hold.remaining.saturating_sub(late)
        });
        let of_holds = of_holds.min().map(scheduler::nanos);
        let since = scheduler::now() - self.looked_at;
        // Right after a check the present state is unknown.
        let is_open = looks_for_owners && (since > 0 || !self.ownerless.is_empty());
        let of_owners = is_open.then(|| LOOK.saturating_sub(since));
        of_holds.into_iter().chain(of_owners).min()
    }

    /// Leaves the holds of a thread to their leases.
    pub(crate) fn leave(&mut self, visitors: impl IntoIterator<Item = String>) {
        self.left.extend(visitors);
    }

    /// Whether the end of each hold is reported soon.
    pub(crate) fn told(&mut self, observations: &[Observation]) -> Option<String> {
        for Observation { process, hold } in observations {
            if !hold.is_held || hold.is_valid || self.left.contains(&hold.visitor) {
                self.ended.remove(&hold.visitor);
                continue;
            }
            let now = || Since::now(*process);
            let since = *self.ended.entry(hold.visitor.clone()).or_insert_with(now);
            if since.passed(*process) > TOLD {
                let (name, visitor) = (&hold.name, &hold.visitor);
                return Some(format!(
                    "I6: the hold {visitor} of {name} has ended, and its loss is not told"
                ));
            }
        }
        None
    }

    /// Whether each hold is renewed in time, unless renewals are blocked.
    pub(crate) fn renewed(&mut self, observations: &[Observation]) -> Option<String> {
        for Observation { process, hold } in observations {
            let Some(lease) = hold.renewed.filter(|_| hold.is_held && hold.is_valid) else {
                continue;
            };
            let ends = scheduler::now() + scheduler::nanos(hold.remaining);
            let now = Since::now(*process);
            let validity = self
                .validities
                .entry(hold.visitor.clone())
                .or_insert(Validity {
                    ends,
                    set: now,
                    is_plain: true,
                });
            validity.is_plain &= hold.count == 1;
            // The clocks of processes run at other rates.
            if ends.abs_diff(validity.ends) > 5 * MILLI {
                (validity.ends, validity.set) = (ends, now);
            }
            let is_kept = scheduler::lag(*process) != validity.set.lag;
            if validity.is_plain && !is_kept && hold.remaining < lease / 4 {
                let (name, visitor, left) = (&hold.name, &hold.visitor, hold.remaining);
                return Some(format!(
                    "I9: the hold {visitor} of {name} ends in {left:?} and is not renewed"
                ));
            }
        }
        None
    }

    /// Whether a key outlives for long all holds and calls that need it.
    pub(crate) fn owned(
        &mut self,
        observations: &[Observation],
        servers: &[Redis],
        processes: usize,
        patience: Nanos,
    ) -> Option<String> {
        let now = scheduler::now();
        if now < self.looked_at + LOOK {
            return None;
        }
        self.looked_at = now;
        let held: BTreeSet<&str> = observations
            .iter()
            .filter(|observation| observation.hold.is_held)
            .flat_map(|observation| {
                counters::owners_in(&observation.hold.name, &observation.hold.visitor)
            })
            .collect();
        // The owner is unknown, so it may be in any process that is kept from running.
        let lag = (1..=processes).map(scheduler::lag).sum();
        let mut ownerless = BTreeMap::new();
        for (number, server) in servers.iter().enumerate() {
            for (name, visitor) in server.standing() {
                let is_left = self.left.contains(&visitor) || is_excused(&visitor);
                let is_left = is_left || ids::is_known(&visitor);
                if is_left || held.contains(&*visitor) {
                    continue;
                }
                let key = (number, name, visitor);
                let since = self.ownerless.get(&key).copied();
                let since = since.unwrap_or(Since { at: now, lag });
                let passed = (now - since.at).saturating_sub(lag - since.lag);
                if passed > patience {
                    let (_, name, visitor) = key;
                    return Some(format!(
                        "I8: nobody counts on {name} of {visitor} for {} ms, and it stands at s{number}",
                        passed / MILLI
                    ));
                }
                ownerless.insert(key, since);
            }
        }
        self.ownerless = ownerless;
        None
    }
}
