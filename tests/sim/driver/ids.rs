//! Permits with ids that no handle owns: the known state of each, and operations of threads.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch_sim::{
    Client, Error, Interrupt, PermitId, PermitSemaphore, Permits, Result, Semaphore,
};
use redlatch_world::events;
use redlatch_world::scheduler::{self, MILLI, Nanos};

use crate::counter_programs::Want;
use crate::counters;
use crate::process::within;
use crate::run::{expect, violated};
use crate::worker::Worker;

/// How the names of these semaphores begin.
pub(crate) const KIND: &str = "ids";

/// The number of digits of an id.
pub(crate) const LENGTH: usize = 32;

/// The numbers of these semaphores in programs begin here.
pub(crate) const FIRST: usize = 10;

/// A permit that no handle owns.
#[derive(Clone)]
struct UnownedPermit {
    name: String,
    id: PermitId,
    /// The earliest and the latest end of its lease.
    ends: (Nanos, Nanos),
    /// It was requested to be released.
    is_back: bool,
    /// A request without a reply may have changed it, or may still do so.
    is_unsure: bool,
    is_in_use: bool,
}

impl UnownedPermit {
    fn new(name: &str, id: PermitId, ends: (Nanos, Nanos)) -> UnownedPermit {
        UnownedPermit {
            name: name.to_owned(),
            id,
            ends,
            is_back: false,
            is_unsure: false,
            is_in_use: false,
        }
    }
}

static ALL: Mutex<Vec<UnownedPermit>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<UnownedPermit>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bounds of the end of a lease of this many ms that began between two moments, for clocks with drift.
fn ends(began: Nanos, answered: Nanos, lease: Option<u64>) -> (Nanos, Nanos) {
    let Some(lease) = lease.map(|lease| lease * MILLI) else {
        return (Nanos::MAX, Nanos::MAX);
    };
    let slack = lease / 100 + 5 * MILLI;
    (began + lease - slack.min(lease), answered + lease + slack)
}

/// Whether a program has the id, and has not released it.
pub(crate) fn is_known(visitor: &str) -> bool {
    let all = all();
    let mut living = all.iter().filter(|it| !it.is_back);
    living.any(|it| it.id.as_str() == visitor)
}

/// A semaphore of either kind.
pub(crate) enum Source {
    Plain(Semaphore),
    WithIds(PermitSemaphore),
}

/// Calls a method that both kinds have.
macro_rules! on {
    ($source:expr, $method:ident($($argument:expr),*)) => {
        match $source {
            Source::Plain(semaphore) => semaphore.$method($($argument),*),
            Source::WithIds(semaphore) => semaphore.$method($($argument),*),
        }
    };
}

impl Source {
    pub(crate) fn of(client: &Client, name: &str) -> Source {
        match counters::has_ids(name) {
            true => Source::WithIds(client.permit_semaphore(name)),
            false => Source::Plain(client.semaphore(name)),
        }
    }

    pub(crate) fn with_lease_time(&self, lease: Duration) -> Source {
        match self {
            Source::Plain(semaphore) => Source::Plain(semaphore.with_lease_time(lease)),
            Source::WithIds(semaphore) => Source::WithIds(semaphore.with_lease_time(lease)),
        }
    }

    pub(crate) fn try_set(&self, permits: u32) -> Result<bool> {
        on!(self, try_set(permits))
    }

    pub(crate) fn acquire(&self, permits: u32) -> Result<Permits> {
        on!(self, acquire(permits))
    }

    pub(crate) fn acquire_interruptibly(&self, permits: u32, by: &Interrupt) -> Result<Permits> {
        on!(self, acquire_interruptibly(permits, by))
    }

    pub(crate) fn try_acquire(&self, permits: u32) -> Result<Option<Permits>> {
        on!(self, try_acquire(permits))
    }

    pub(crate) fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>> {
        on!(self, try_acquire_for(permits, wait))
    }
}

impl Worker {
    /// Acquires a permit that no handle owns.
    pub(crate) fn take_id(&mut self, want: &Want) {
        let name = self.semaphore(want.semaphore);
        let semaphore = self.place.client().permit_semaphore(&name);
        self.doubt(&name, "a fixed lease");
        let lease = want.lease.map(Duration::from_millis);
        let began = scheduler::now();
        let outcome = self.wait_for_permits("acquire_id", &name, want, |wait| match wait {
            None => semaphore.acquire_id(lease).map(Some),
            Some(wait) => semaphore.try_acquire_id_for(lease, Duration::from_millis(wait)),
        });
        match outcome {
            Ok(Some(id)) => {
                events::count("permit id taken");
                let ends = ends(began, scheduler::now(), want.lease);
                all().push(UnownedPermit::new(&name, id, ends));
                scheduler::note_news();
            }
            Ok(None) => {}
            Err(error) => self.allow(&name, Some(error)),
        }
    }

    /// Some id of any process that is not in use.
    fn an_id(&self) -> Option<(usize, UnownedPermit)> {
        let mut all = all();
        // Released ids are tried again occasionally.
        let at = all.iter().position(|it| !it.is_in_use && !it.is_back);
        let at = at.or_else(|| all.iter().position(|it| !it.is_in_use))?;
        all[at].is_in_use = true;
        Some((at, all[at].clone()))
    }

    /// Releases a permit of any thread; with `twice` two requests at once, of which exactly one succeeds.
    pub(crate) fn give_id_back(&mut self, twice: bool) {
        let Some((at, mut loose)) = self.an_id() else {
            return;
        };
        let bound = Some(self.command);
        let semaphore = self.place.client().permit_semaphore(&loose.name);
        let began = scheduler::now();
        let other = twice.then(|| {
            let (semaphore, id) = (semaphore.clone(), loose.id.clone());
            expect(scheduler::spawn("other", None, move || {
                within("release_id", bound, || semaphore.release_id(&id))
            }))
        });
        let mut outcomes = vec![within("release_id", bound, || {
            semaphore.release_id(&loose.id)
        })];
        if let Some(other) = other {
            match other.join() {
                Ok(outcome) => outcomes.push(outcome),
                Err(_) => violated("the release of a permit has panicked"),
            }
        }
        self.note("release_id", &loose.name, &outcomes);
        let trues = outcomes.iter().filter(|it| matches!(it, Ok(true))).count();
        if trues + usize::from(loose.is_back) > 1 {
            violated(&format!("I16: the permit {} is given back twice", loose.id));
        }
        let is_known = outcomes.iter().all(Result::is_ok) && !loose.is_unsure;
        judge_id(&loose, trues == 1, is_known, began);
        loose.is_back |= trues > 0;
        self.settle_id(at, loose, outcomes);
    }

    fn settle_id(&mut self, at: usize, mut loose: UnownedPermit, outcomes: Vec<Result<bool>>) {
        let name = loose.name.clone();
        let errors: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
        loose.is_unsure |= errors.iter().any(Error::is_ambiguous);
        loose.is_in_use = false;
        all()[at] = loose;
        scheduler::note_news();
        for error in errors {
            self.allow(&name, Some(error));
        }
    }
}

/// Whether a permit existed, from the reply to a request that began then.
fn judge_id(loose: &UnownedPermit, was_there: bool, is_known: bool, began: Nanos) {
    let (id, name, now) = (&loose.id, &loose.name, scheduler::now());
    let is_over = began > loose.ends.1;
    if was_there && (loose.is_back || is_over) && !loose.is_unsure {
        violated(&format!(
            "I16: the permit {id} of {name} is there, and had ended"
        ));
    }
    if !was_there && is_known && !loose.is_back && now < loose.ends.0 {
        violated(&format!(
            "I16: the permit {id} of {name} is not there, and had not ended"
        ));
    }
}

/// Releases all known permits.
pub(crate) fn give_all_back(client: &Client) {
    let left: Vec<UnownedPermit> = all().iter().filter(|it| !it.is_back).cloned().collect();
    for loose in left {
        let semaphore = client.permit_semaphore(&loose.name);
        let outcome = semaphore.release_id(&loose.id);
        scheduler::note(|| format!("release_id {} = {outcome:?}", loose.id));
    }
}
