//! Locks that live in this process alone, under the same laws as those in Redis.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::clock::{BootInstant, Timeline};
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::ground::notify::{Notifier, Parker};
use crate::ground::sync::Mutex;
use crate::store::{
    Delivery, Facts, Granted, HealthWarning, Holding, InDoubt, Outcome, Refusal, Released, Renewal,
    Store, Subscription, resolve_each,
};
use crate::stores::quorum::node::{Node, Pending, Purpose};
use crate::stores::quorum::quarantine::{Identity, NodeHandle, Quarantined};

const NODE: &str = "in memory";

/// Fewer holds than these are not worth a look for those that have ended.
const LEAST_SWEPT: usize = 256;

/// The locks that several clients of one process share, as several processes share one server.
pub(crate) struct World {
    state: Mutex<State>,
    timeline: Timeline,
}

impl Default for World {
    fn default() -> World {
        World {
            state: Mutex::default(),
            timeline: Timeline::of_a_world(),
        }
    }
}

#[derive(Default)]
struct State {
    holds: HashMap<Arc<str>, Entry>,
    /// With so many holds it is time to look for those that have ended.
    sweep_at: usize,
    clients: Vec<Weak<Notifier>>,
    faults: Faults,
}

struct Entry {
    kind: Kind,
    visitor: VisitorId,
    count: u32,
    ends: BootInstant,
}

/// The faults that a test has asked for.
#[derive(Default)]
struct Faults {
    renewals_to_drop: u32,
    messages_to_lose: u32,
    answers_to_lose: u32,
    is_silent: bool,
}

impl Faults {
    /// Whether the answer to a request that was executed is lost.
    fn loses_the_answer(&mut self) -> bool {
        let is_lost = self.answers_to_lose > 0;
        self.answers_to_lose -= u32::from(is_lost);
        is_lost
    }
}

impl World {
    /// Runs `step` on the state as it stands now, expired holds gone; an error while the world is told to be silent.
    fn with<T>(
        &self,
        kind: Kind,
        lock: &Arc<str>,
        step: impl FnOnce(&mut State) -> T,
    ) -> Result<T> {
        let mut state = self.state.lock();
        if state.faults.is_silent {
            return Err(unreachable(lock, "a test told it to be silent"));
        }
        if state
            .holds
            .get(lock)
            .is_some_and(|entry| entry.ends <= self.timeline.now())
        {
            state.holds.remove(lock);
        }
        if state
            .holds
            .get(lock)
            .is_some_and(|entry| entry.kind != kind)
        {
            return Err(Error::WrongType {
                lock: Arc::clone(lock),
                node: NODE.into(),
                reason: "a lock of another kind".to_owned(),
            });
        }
        Ok(step(&mut state))
    }

    /// Runs `step` as [`World::with`] does; what it says is lost if a test wants that, and becomes `unknown`.
    fn ask<T>(
        &self,
        kind: Kind,
        lock: &Arc<str>,
        unknown: impl FnOnce() -> Result<T>,
        step: impl FnOnce(&mut State) -> T,
    ) -> Result<T> {
        let answer = self.with(kind, lock, |state| {
            let answer = step(state);
            (!state.faults.loses_the_answer()).then_some(answer)
        })?;
        answer.map_or_else(unknown, Ok)
    }

    /// Takes away the hold of the first of these names that has one, and returns whether one had.
    #[cfg(feature = "test-util")]
    pub(crate) fn expire(&self, names: [&str; 2]) -> bool {
        let mut state = self.state.lock();
        let now = self.timeline.now();
        let mut ended = names.iter().filter_map(|name| state.holds.remove(*name));
        ended.any(|entry| now < entry.ends)
    }

    /// Sets the clock ahead, by which leases end, waits are over, and renewals fall due.
    #[cfg(feature = "test-util")]
    pub(crate) fn advance(&self, by: Duration) {
        self.timeline.advance(by);
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn lose_answers(&self, count: u32) {
        self.state.lock().faults.answers_to_lose = count;
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn drop_renewals(&self, count: u32) {
        self.state.lock().faults.renewals_to_drop = count;
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn lose_messages(&self, count: u32) {
        self.state.lock().faults.messages_to_lose = count;
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.state.lock().faults.is_silent = is_silent;
    }
}

impl State {
    /// The hold of `visitor`, or why there is none.
    fn hold_of(&mut self, name: &str, visitor: &VisitorId) -> Result<&mut Entry, LossCause> {
        match self.holds.get_mut(name) {
            Some(entry) if entry.visitor == *visitor => Ok(entry),
            Some(entry) => Err(LossCause::HeldBy(entry.visitor.to_string())),
            None => Err(LossCause::Gone),
        }
    }

    fn put(&mut self, name: &Arc<str>, entry: Entry, now: BootInstant) {
        // Amortised: until the next time they have to double.
        if self.holds.len() >= self.sweep_at {
            self.holds.retain(|_, entry| now < entry.ends);
            self.sweep_at = (self.holds.len() * 2).max(LEAST_SWEPT);
            self.holds.shrink_to(self.sweep_at);
        }
        self.holds.insert(Arc::clone(name), entry);
    }

    fn free(&mut self, name: &str) {
        self.holds.remove(name);
        if self.faults.messages_to_lose > 0 {
            self.faults.messages_to_lose -= 1;
            return;
        }
        // One waiter of each client, as one message wakes one waiter of each process.
        self.clients.retain(|client| client.strong_count() > 0);
        for client in self.clients.iter().filter_map(Weak::upgrade) {
            client.release(name);
        }
    }
}

/// One client's view of a world.
pub(crate) struct Memory {
    world: Arc<World>,
    facts: Facts,
}

impl Memory {
    pub(crate) fn new(world: Arc<World>) -> Memory {
        let notifier = Arc::new(Notifier::default());
        world.state.lock().clients.push(Arc::downgrade(&notifier));
        let area = format!("world {:p}", Arc::as_ptr(&world));
        let facts = Facts {
            timeline: world.timeline.clone(),
            ..Facts::of(area, &notifier)
        };
        Memory { world, facts }
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }
}

impl Memory {
    /// Begins a hold of `count` levels if the lock is free.
    fn put(&self, claim: &Claim, count: u32) -> Result<Outcome<Granted, Refusal>> {
        let sent = self.world.timeline.now();
        self.world.ask(
            claim.kind,
            &claim.name,
            || self.attempt_unknown(claim),
            |state| match state.holds.get(&claim.name) {
                Some(entry) => Outcome::Refused(Refusal {
                    retry_after: Some(sent.until(entry.ends)),
                    holder: Some(entry.visitor.as_str().into()),
                    ..Refusal::default()
                }),
                None => {
                    let entry = Entry {
                        kind: claim.kind,
                        visitor: claim.visitor.clone(),
                        count,
                        ends: sent + claim.lease,
                    };
                    state.put(&claim.name, entry, sent);
                    Outcome::Done(Granted::at(sent))
                }
            },
        )
    }

    /// Enters a hold once more.
    fn enter(&self, claim: &Claim) -> Result<Outcome<Granted, Refusal>> {
        let sent = self.world.timeline.now();
        self.ask_held(
            claim,
            || self.attempt_unknown(claim),
            Outcome::Gone,
            |state| match state.hold_of(&claim.name, &claim.visitor) {
                Ok(entry) => {
                    entry.count = claim.count.saturating_add(1);
                    entry.ends = sent + claim.lease;
                    Outcome::Done(Granted::at(sent))
                }
                Err(cause) => Outcome::Gone(cause),
            },
        )
    }

    fn attempt_unknown(&self, claim: &Claim) -> Result<Outcome<Granted, Refusal>> {
        Ok(Outcome::unknown(
            claim.in_doubt(0),
            no_answer(&claim.name, Some(&claim.visitor), "acquire"),
        ))
    }

    /// As [`World::ask`] of a visitor that had a hold: where another kind of lock is now, that hold is gone.
    fn ask_held<T>(
        &self,
        claim: &Claim,
        unknown: impl FnOnce() -> Result<T>,
        gone: impl FnOnce(LossCause) -> T,
        step: impl FnOnce(&mut State) -> T,
    ) -> Result<T> {
        match self.world.ask(claim.kind, &claim.name, unknown, step) {
            Err(Error::WrongType { reason, .. }) => Ok(gone(LossCause::HeldBy(reason))),
            answer => answer,
        }
    }

    fn release_level(&self, claim: &Claim, keep: u32) -> Result<Outcome<Released>> {
        let sent = self.world.timeline.now();
        self.ask_held(
            claim,
            || self.release_unknown(claim),
            Outcome::Gone,
            |state| match state.hold_of(&claim.name, &claim.visitor) {
                Ok(entry) => {
                    entry.count = keep;
                    entry.ends = sent + claim.lease;
                    Outcome::Done(Released::default())
                }
                Err(cause) => Outcome::Gone(cause),
            },
        )
    }

    fn release_unknown(&self, claim: &Claim) -> Result<Outcome<Released>> {
        Ok(Outcome::unknown(
            claim.in_doubt(0),
            no_answer(&claim.name, Some(&claim.visitor), "release"),
        ))
    }

    fn others_wait(&self, state: &State, name: &str) -> bool {
        let others = state.clients.iter().filter_map(Weak::upgrade);
        let mut others = others.filter(|client| !Arc::ptr_eq(client, &self.facts.notifier));
        others.any(|client| client.has_waiters(name))
    }
}

impl Store for Memory {
    fn acquire(&self, claim: &Claim, _deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        if claim.count == 0 {
            self.put(claim, 1)
        } else {
            self.enter(claim)
        }
    }

    fn renew(&self, claims: &[Claim], _deadline: Instant) -> Vec<Renewal> {
        let renew = |claim: &Claim| {
            let sent = self.world.timeline.now();
            self.world.with(claim.kind, &claim.name, |state| {
                if state.faults.renewals_to_drop > 0 {
                    state.faults.renewals_to_drop -= 1;
                    return Renewal::Unknown("a test dropped this renewal".to_owned());
                }
                match state.hold_of(&claim.name, &claim.visitor) {
                    Ok(entry) => {
                        entry.ends = sent + claim.lease;
                        Renewal::Renewed
                    }
                    Err(cause) => Renewal::Lost(cause),
                }
            })
        };
        claims
            .iter()
            .map(|claim| {
                renew(claim).unwrap_or_else(|error| match error {
                    Error::WrongType { reason, .. } => Renewal::Lost(LossCause::HeldBy(reason)),
                    error => Renewal::Unknown(error.to_string()),
                })
            })
            .collect()
    }

    fn release(&self, claim: &Claim, keep: u32, _deadline: Instant) -> Result<Outcome<Released>> {
        if keep > 0 {
            return self.release_level(claim, keep);
        }
        self.ask_held(
            claim,
            || self.release_unknown(claim),
            Outcome::Gone,
            |state| match state.hold_of(&claim.name, &claim.visitor) {
                Ok(_) => {
                    state.free(&claim.name);
                    let others_wait = self.others_wait(state, &claim.name);
                    Outcome::Done(Released {
                        others_wait,
                        leftover: None,
                    })
                }
                Err(cause) => Outcome::Gone(cause),
            },
        )
    }

    fn hand_off(&self, from: &Claim, to: &Claim, _deadline: Instant) -> Result<Outcome<Granted>> {
        let sent = self.world.timeline.now();
        let unknown = || {
            Ok(Outcome::Unknown {
                in_doubt: from.in_doubt(0),
                successor: Some(Box::new(to.in_doubt(0))),
                error: no_answer(&from.name, Some(&from.visitor), "hand-over"),
            })
        };
        self.ask_held(from, unknown, Outcome::Gone, |state| {
            match state.hold_of(&from.name, &from.visitor) {
                Ok(entry) => {
                    *entry = Entry {
                        kind: to.kind,
                        visitor: to.visitor.clone(),
                        count: 1,
                        ends: sent + to.lease,
                    };
                    let others_wait =
                        state
                            .clients
                            .iter()
                            .filter_map(Weak::upgrade)
                            .any(|client| {
                                !Arc::ptr_eq(&client, &self.facts.notifier)
                                    && client.has_waiters(&from.name)
                            });
                    Outcome::Done(Granted {
                        sent,
                        fence: None,
                        others_wait,
                        leftover: None,
                    })
                }
                Err(cause) => Outcome::Gone(cause),
            }
        })
    }

    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        resolve_each(in_doubts, deadline, |in_doubt| {
            self.world.with(in_doubt.kind, &in_doubt.name, |state| {
                if state.hold_of(&in_doubt.name, &in_doubt.visitor).is_ok() {
                    state.free(&in_doubt.name);
                }
                true
            })
        })
    }

    fn force_release(&self, lock: &LockId, _deadline: Instant) -> Result<bool> {
        let LockId { kind, name } = lock;
        let unknown = || Err(no_answer(name, None, "forced release"));
        self.world.ask(*kind, name, unknown, |state| {
            let was_held = state.holds.contains_key(name);
            if was_held {
                state.free(name);
            }
            was_held
        })
    }

    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        _deadline: Instant,
    ) -> Result<Holding> {
        let LockId { kind, name } = lock;
        // A question changes nothing, so an answer that does not come leaves nothing unknown.
        let unknown = || Err(unreachable(name, "a test lost its answer"));
        self.world
            .ask(*kind, name, unknown, |state| match state.holds.get(name) {
                Some(entry) => Holding {
                    is_locked: true,
                    count: if visitor == Some(&entry.visitor) {
                        entry.count
                    } else {
                        0
                    },
                    remaining: {
                        let left = self.world.timeline.now().until(entry.ends);
                        Some(left.max(Duration::from_millis(1)))
                    },
                },
                None => Holding::default(),
            })
    }

    fn subscribe(&self, lock: &LockId, source: u32, parker: &Arc<Parker>) -> Subscription {
        Subscription {
            registration: self.facts.notifier.join_as(source, &lock.name, parker),
            delivery: Delivery::Live,
            jitter: Duration::ZERO,
            keep: None,
        }
    }

    fn check(&self, _deadline: Instant) -> Result<Vec<HealthWarning>> {
        Ok(Vec::new())
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn close(&self) {}

    fn node(&self, _lock: Option<&str>) -> Arc<str> {
        NODE.into()
    }
}

impl Memory {
    /// Whether `handle` has a vote, in an error of the lock if it has none.
    fn admit(&self, lock: &Arc<str>, handle: &NodeHandle) -> Result<()> {
        handle
            .admit(&self.identity())
            .map_err(|abstention| Error::Unavailable {
                lock: Arc::clone(lock),
                node: NODE.into(),
                reason: abstention.to_string(),
            })
    }

    fn identity(&self) -> Identity {
        let now = BootInstant::now();
        Identity {
            run: self.facts.area.as_str().into(),
            history: "".into(),
            has_followed: false,
            follows: false,
            is_in_cluster: false,
            age: None,
            remembers: true,
            asked: now,
            told: now,
        }
    }
}

impl Node for Memory {
    fn store(&self) -> &dyn Store {
        self
    }

    fn connect(
        &self,
        handle: &NodeHandle,
        _purpose: Purpose<'_>,
        _deadline: Instant,
    ) -> Result<Result<(), Quarantined>> {
        Ok(handle.admit(&self.identity()))
    }

    fn send_acquire<'a>(
        &'a self,
        claim: &'a Claim,
        restored: bool,
        handle: &'a NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Result<Outcome<Granted, Refusal>>> {
        Pending::Ready(self.admit(&claim.name, handle).and_then(|()| {
            if restored {
                self.put(claim, claim.count)
            } else {
                self.acquire(claim, deadline)
            }
        }))
    }

    fn send_renew<'a>(
        &'a self,
        claims: &'a [Claim],
        handle: &NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Vec<Renewal>> {
        Pending::Ready(match self.admit(&"".into(), handle) {
            Ok(()) => self.renew(claims, deadline),
            Err(error) => vec![Renewal::Unknown(error.to_string()); claims.len()],
        })
    }
}

fn unreachable(lock: &Arc<str>, reason: &str) -> Error {
    Error::Unreachable {
        lock: Arc::clone(lock),
        node: NODE.into(),
        reason: reason.to_owned(),
        source: None,
    }
}

fn no_answer(lock: &Arc<str>, visitor: Option<&VisitorId>, operation: &'static str) -> Error {
    Error::Unknown {
        lock: Arc::clone(lock),
        node: NODE.into(),
        operation,
        visitor: visitor.cloned(),
        reason: "a test lost its answer".to_owned(),
        source: None,
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}
