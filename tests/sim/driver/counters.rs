//! Semaphores and latches: the possible counts by requests and replies, and the permits of threads.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch_server_checks::Value;
use redlatch_sim::thread_holds::HoldView;
use redlatch_sim::{Losses, Permits};
use redlatch_world::network;
use redlatch_world::scheduler::{self, Nanos};

use crate::ids;
use crate::machine::{Redis, Simulated};
use crate::promptness::Observation;

/// The interval, in ms, in which a waiter polls where there are no permits.
const LONG: i64 = 1_000_000;

/// The count-downs of a latch.
#[derive(Clone, Debug, Default)]
struct Downs {
    /// Its initial count, once known.
    set: Option<u32>,
    has_setter: bool,
    /// It may have been set twice, so its count is unknown.
    is_unruly: bool,
    /// Acknowledged count-downs, and count-downs that may have run or may still run.
    certain: u32,
    possible: u32,
    /// The counts that were reported.
    told: BTreeSet<u32>,
    opened_at: Option<Nanos>,
}

/// Permits that a thread has.
struct Taken {
    name: String,
    visitor: String,
    process: usize,
    renewed: Option<Duration>,
    losses: Losses,
}

#[derive(Default)]
struct All {
    /// The total number of permits, free or acquired.
    sums: BTreeMap<String, u32>,
    latches: BTreeMap<String, Downs>,
    taken: BTreeMap<u64, Taken>,
    next: u64,
}

static ALL: Mutex<All> = Mutex::new(All {
    sums: BTreeMap::new(),
    latches: BTreeMap::new(),
    taken: BTreeMap::new(),
    next: 0,
});

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn is_semaphore(name: &str) -> bool {
    name.starts_with("semaphore") || has_ids(name)
}

/// Whether it is a semaphore with ids.
pub(crate) fn has_ids(name: &str) -> bool {
    name.starts_with(ids::KIND)
}

fn is_latch(name: &str) -> bool {
    name.starts_with("latch")
}

/// Whether it is a shared count.
pub(crate) fn is_counter(name: &str) -> bool {
    is_semaphore(name) || is_latch(name)
}

fn owners_of(semaphore: &str) -> String {
    match has_ids(semaphore) {
        true => format!("{{{semaphore}}}:timeout"),
        false => format!("redlatch_sc:{{{semaphore}}}"),
    }
}

/// The semaphore whose owners have this key.
pub(crate) fn semaphore_of(key: &str) -> Option<&str> {
    let owners = || key.strip_prefix("redlatch_sc:{")?.strip_suffix('}');
    let ids = || key.strip_prefix('{')?.strip_suffix("}:timeout");
    owners().or_else(|| ids().filter(|it| has_ids(it)))
}

/// An owner of permits of this semaphore as its visitor id has it.
pub(crate) fn owner_text(semaphore: &str, owner: &[u8]) -> String {
    match has_ids(semaphore) {
        true => owner.iter().map(|byte| format!("{byte:02x}")).collect(),
        false => String::from_utf8_lossy(owner).into_owned(),
    }
}

/// The owners of a visitor on the server: each id is one.
pub(crate) fn owners_in<'a>(semaphore: &str, visitor: &'a str) -> Vec<&'a str> {
    if !has_ids(semaphore) {
        return vec![visitor];
    }
    let starts = (0..visitor.len()).step_by(ids::LENGTH);
    starts
        .filter_map(|at| visitor.get(at..at + ids::LENGTH))
        .collect()
}

fn permits_of(visitor: &str) -> i64 {
    match visitor.split_once('*') {
        Some((permits, _)) => permits.parse().unwrap_or_default(),
        None => i64::try_from(visitor.len() / ids::LENGTH).unwrap_or_default(),
    }
}

/// Permits of a thread, which the checker inspects until they are dropped.
pub(crate) struct Held {
    number: u64,
    pub(crate) name: String,
    permits: Option<Permits>,
}

impl Held {
    pub(crate) fn new(name: &str, permits: Permits, renewed: Option<Duration>) -> Held {
        let taken = Taken {
            name: name.to_owned(),
            visitor: permits.visitor().as_str().to_owned(),
            process: scheduler::process(),
            renewed,
            losses: permits.lost(),
        };
        scheduler::note_news();
        let mut all = all();
        all.next += 1;
        let number = all.next;
        all.taken.insert(number, taken);
        Held {
            number,
            name: name.to_owned(),
            permits: Some(permits),
        }
    }

    /// The permits, from now on without checks.
    pub(crate) fn into_permits(mut self) -> Option<Permits> {
        self.permits.take()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Before they are released.
        let taken = all().taken.remove(&self.number);
        scheduler::note_news();
        drop(taken);
    }
}

/// Records that a semaphore is set to this many permits, as all its users do.
pub(crate) fn note_limit(name: &str, permits: u32) {
    all().sums.entry(name.to_owned()).or_insert(permits);
}

pub(crate) fn has_limit(name: &str) -> bool {
    all().sums.contains_key(name)
}

/// Whether the caller is the thread that sets a latch.
pub(crate) fn sets(name: &str) -> bool {
    let mut all = all();
    let downs = all.latches.entry(name.to_owned()).or_default();
    !std::mem::replace(&mut downs.has_setter, true)
}

/// Notes that a latch was set; `None` if it may have been, and may be again.
pub(crate) fn note_set(name: &str, count: Option<u32>) {
    let mut all = all();
    let downs = all.latches.entry(name.to_owned()).or_default();
    downs.set = downs.set.or(count);
    downs.is_unruly |= count.is_none();
}

pub(crate) fn is_set(name: &str) -> bool {
    all().latches.get(name).is_some_and(|it| it.set.is_some())
}

/// Records that a count-down is about to be sent.
pub(crate) fn count_down(name: &str) {
    let mut all = all();
    all.latches.entry(name.to_owned()).or_default().possible += 1;
}

/// Records the outcome of a count-down: the reported count, or whether it may have run.
pub(crate) fn counted_down(name: &str, told: Result<u32, bool>) -> Option<String> {
    let mut all = all();
    let downs = all.latches.entry(name.to_owned()).or_default();
    match told {
        Err(true) => return None,
        Err(false) => downs.possible -= 1,
        Ok(left) => {
            downs.possible -= 1;
            downs.certain += 1;
            if left > 0 && !downs.told.insert(left) && !downs.is_unruly {
                return Some(format!(
                    "I13: two count-downs of {name} were told that {left} are left"
                ));
            }
        }
    }
    None
}

/// Whether a wait that began then may have ended now.
pub(crate) fn passed(name: &str, began: Nanos, has_passed: bool) -> Option<String> {
    let all = all();
    let downs = all.latches.get(name)?;
    let set = downs.set.filter(|_| !downs.is_unruly)?;
    if has_passed && set > downs.certain + downs.possible {
        let (certain, possible) = (downs.certain, downs.possible);
        return Some(format!(
            "I13: a wait for {name} has ended, of which {certain} or {possible} more of {set} were counted"
        ));
    }
    let was_open = downs.opened_at.is_some_and(|at| at < began);
    (was_open && !has_passed).then(|| format!("I13: a wait for {name}, which is open, was refused"))
}

/// The count under a key, and the owners of acquired permits with the ms left of their leases.
fn counts(server: &Redis, name: &str) -> (Option<i64>, Vec<(String, i64)>) {
    let now = network::time_of(server.place);
    let machine = server.glimpse();
    let count = match machine.server.look(now, name) {
        Some((Value::String(text), _)) => String::from_utf8_lossy(text).parse().ok(),
        _ => None,
    };
    (count, owners(&machine, now, name))
}

fn owners(machine: &Simulated, now: i64, name: &str) -> Vec<(String, i64)> {
    match machine.server.look(now, &owners_of(name)) {
        Some((Value::Sorted(owners), _)) => owners
            .iter()
            .map(|(owner, ends)| (owner_text(name, owner), ends.whole() - now / 1_000))
            .collect(),
        _ => Vec::new(),
    }
}

/// Owners of permits of this semaphore, with the ms left of their unexpired leases.
pub(crate) fn living_owners(machine: &Simulated, now: i64, name: &str) -> Vec<(String, i64)> {
    let mut owners = owners(machine, now, name);
    owners.retain(|(_, left)| *left > 0);
    owners
}

/// For how long, in ms, a request for `wanted` permits is refused; `None` if it is not.
pub(crate) fn refused(name: &str, server: &Redis, wanted: u32) -> Option<i64> {
    let (count, owners) = counts(server, name);
    if is_latch(name) {
        return count.map(|_| LONG);
    }
    let back = owners.iter().filter(|(_, left)| *left <= 0);
    let back: i64 = back.map(|(owner, _)| permits_of(owner)).sum();
    let next = owners.iter().map(|(_, left)| *left).filter(|it| *it > 0);
    let is_enough = count.is_some_and(|free| free + back >= i64::from(wanted));
    (!is_enough).then(|| next.min().unwrap_or(LONG))
}

/// The permits that threads consider held; `None` while one of them is busy.
pub(crate) fn observations(server: &Redis) -> Option<Vec<Observation>> {
    let all = all();
    let living = all.taken.values();
    let living = living.filter(|taken| !scheduler::is_killed(taken.process));
    let observations = living.map(|taken| {
        // A mutex that is locked unwinds the checker, which cannot wait.
        let look = || (taken.losses.is_valid(), taken.losses.try_recv().ok());
        let seen = scheduler::on_clock_of(taken.process, || catch_unwind(AssertUnwindSafe(look)));
        let (is_valid, loss) = seen.ok()?;
        let left = server.look(&taken.name, &taken.visitor);
        let left = left.and_then(|(_, left)| u64::try_from(left).ok());
        let hold = HoldView {
            name: taken.name.clone(),
            is_token: false,
            visitor: taken.visitor.clone(),
            is_held: loss.is_none(),
            is_lost: loss.is_some(),
            is_valid,
            remaining: Duration::from_millis(left.filter(|_| is_valid).unwrap_or_default()),
            count: 1,
            fence: None,
            renewed: taken.renewed,
            cause: loss.map(|loss| loss.cause),
        };
        let process = taken.process;
        Some(Observation { process, hold })
    });
    observations.collect()
}

/// Whether more permits are valid than exist.
pub(crate) fn too_many<'a>(valid: impl Iterator<Item = &'a HoldView>) -> Option<String> {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    for hold in valid.filter(|hold| is_semaphore(&hold.name)) {
        *counts.entry(&*hold.name).or_default() += permits_of(&hold.visitor);
    }
    let all = all();
    let most = |name: &str| all.sums.get(name).map_or(0, |sum| i64::from(*sum));
    let over = counts.iter().find(|(name, valid)| **valid > most(name));
    over.map(|(name, valid)| {
        let most = most(name);
        format!("I12: {valid} permits of {name} are valid, and there are {most}")
    })
}

/// Whether the semaphore or latch has an impossible count.
pub(crate) fn flaw(server: &Redis) -> Option<String> {
    let mut all = all();
    for (name, sum) in &all.sums {
        let (Some(free), owners) = counts(server, name) else {
            continue;
        };
        let taken: i64 = owners.iter().map(|(owner, _)| permits_of(owner)).sum();
        if free + taken != i64::from(*sum) {
            return Some(format!(
                "I12: {free} permits of {name} are free and {taken} taken, which are not {sum}"
            ));
        }
    }
    for (name, downs) in &mut all.latches {
        let Some(set) = downs.set.filter(|_| !downs.is_unruly) else {
            continue;
        };
        let count = counts(server, name).0.unwrap_or_default();
        if count == 0 {
            downs.opened_at.get_or_insert_with(scheduler::now);
        }
        let most = i64::from(set.saturating_sub(downs.certain));
        let least = i64::from(set.saturating_sub(downs.certain + downs.possible));
        if !(least..=most).contains(&count) {
            let (certain, possible) = (downs.certain, downs.possible);
            return Some(format!(
                "I13: {name} is at {count}, of which {certain} or {possible} more of {set} were counted"
            ));
        }
    }
    None
}

/// The semaphores, with the permits that each of them has.
pub(crate) fn semaphores() -> Vec<(String, u32)> {
    let sums = &all().sums;
    sums.iter()
        .map(|(name, sum)| (name.clone(), *sum))
        .collect()
}
