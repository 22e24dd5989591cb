//! A client of a store that answers as a test says.
#![allow(
    clippy::unwrap_used,
    clippy::unreachable,
    reason = "a test that cannot go on has failed"
)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::client_inner::{ClientInner, KeyPrefix, Timeouts};
use crate::engine::counters::CountSettings;
use crate::engine::hold::Lease;
use crate::engine::owner::LockKey;
use crate::engine::raw_lock::RawLock;
use crate::engine::watchdog::eventually;
use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::notify::{Notifier, Parker};
use crate::ground::reply::Reply;
use crate::ground::sync::{self, Mutex};
use crate::ground::time;
use crate::store::{
    ConditionAnswer, ConditionOp, ConditionStep, CountOp, CountStep, Delivery, Facts, Granted,
    Guarded, HealthWarning, Holding, InDoubt, Outcome, Refusal, Released, Renewal, Store,
    Subscription,
};

pub(super) const LEASE: Duration = Duration::from_secs(60);
pub(super) const COMMAND: Duration = Duration::from_secs(5);

/// Longer than a thread takes to hear of something, on a machine that is busy.
pub(super) const LONG: Duration = Duration::from_secs(5);

pub(super) type Answers<T> = Mutex<VecDeque<T>>;
type Effect = Box<dyn FnOnce() + Send>;

/// The requests that came, and the answers to the next ones. Behind them each is done.
pub(super) struct Answering {
    pub(super) facts: Facts,
    pub(super) claims: Mutex<Vec<Claim>>,
    pub(super) acquires: Answers<Result<Outcome<Granted, Refusal>>>,
    /// Each claim, and how many levels stay.
    pub(super) released: Mutex<Vec<(Claim, u32)>>,
    pub(super) releases: Answers<Result<Outcome<Released>>>,
    /// Without an answer here a hand-off changes nothing.
    pub(super) hand_offs: Answers<Result<Outcome<Granted>>>,
    pub(super) writes: Answers<Result<Outcome<Vec<Reply>, Duration>>>,
    pub(super) counts: Answers<Result<i64>>,
    pub(super) counted: Mutex<Vec<CountStep>>,
    /// Without an answer here one that waits on a condition is signalled at once.
    pub(super) conditions: Answers<Result<Outcome<ConditionAnswer>>>,
    pub(super) steps: Mutex<Vec<&'static str>>,
    /// The visitors that were cleared up after.
    pub(super) resolved: Mutex<Vec<String>>,
    /// Of the places on conditions among them, whether their threads may have been told of a signal.
    pub(super) told: Mutex<Vec<bool>>,
    /// The places that messages were to go to.
    pub(super) places: Mutex<Vec<Option<VisitorId>>>,
    /// It happens while the next request is under way.
    pub(super) meanwhile: Mutex<Option<Effect>>,
    /// How often renewals were prepared.
    pub(super) prepared: Mutex<u32>,
    pub(super) found: Mutex<Vec<HealthWarning>>,
    /// How often it was closed.
    pub(super) closed: Mutex<u32>,
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answering")
    }
}

impl Answering {
    fn happens(&self) {
        let meanwhile = self.meanwhile.lock().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
    }
}

impl Store for Answering {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        assert!(deadline > time::now());
        let sent = self.facts.timeline.now();
        self.claims.lock().push(claim.clone());
        self.happens();
        let answer = self.acquires.lock().pop_front();
        answer.unwrap_or_else(|| Ok(Outcome::Done(Granted::at(sent))))
    }

    fn release(&self, claim: &Claim, keep: u32, _: Instant) -> Result<Outcome<Released>> {
        self.released.lock().push((claim.clone(), keep));
        self.happens();
        let answer = self.releases.lock().pop_front();
        answer.unwrap_or_else(|| Ok(Outcome::Done(Released::default())))
    }

    fn hand_off(&self, from: &Claim, _: &Claim, _: Instant) -> Result<Outcome<Granted>> {
        self.happens();
        let answer = self.hand_offs.lock().pop_front();
        answer.unwrap_or_else(|| Err(unsupported(&from.name)))
    }

    fn guarded(&self, _: &Guarded<'_>, _: Instant) -> Result<Outcome<Vec<Reply>, Duration>> {
        self.happens();
        let answer = self.writes.lock().pop_front();
        answer.unwrap_or_else(|| Ok(Outcome::Done(vec![Reply::Int(1)])))
    }

    fn count(&self, op: &CountOp<'_>, _: Instant) -> Result<i64> {
        self.counted.lock().push(op.step);
        self.counts.lock().pop_front().unwrap_or(Ok(0))
    }

    fn condition(&self, op: &ConditionOp<'_>, _: Instant) -> Result<Outcome<ConditionAnswer>> {
        self.steps.lock().push(op.step.name());
        self.happens();
        let answer = match op.step {
            ConditionStep::Enlist(_) => ConditionAnswer::Waits,
            ConditionStep::Look => ConditionAnswer::Woken,
            ConditionStep::Leave => ConditionAnswer::Left,
            ConditionStep::Signal(most) => ConditionAnswer::Signalled(most),
        };
        let given = self.conditions.lock().pop_front();
        given.unwrap_or(Ok(Outcome::Done(answer)))
    }

    fn renew(&self, claims: &[Claim], _: Instant) -> Vec<Renewal> {
        claims.iter().map(|_| Renewal::Renewed).collect()
    }

    fn prepare_renewal(&self, _: &LockId, _: Instant) {
        *self.prepared.lock() += 1;
    }

    fn resolve(&self, in_doubts: &mut [&mut InDoubt], _: Instant) -> Vec<Result<bool>> {
        let places = in_doubts.iter().filter_map(|it| it.place.as_ref());
        self.told.lock().extend(places.map(|it| it.was_told));
        // Last, for tests wait for it.
        let visitors = in_doubts.iter().map(|it| it.visitor.to_string());
        self.resolved.lock().extend(visitors);
        in_doubts.iter().map(|_| Ok(true)).collect()
    }

    fn force_release(&self, _: &LockId, _: Instant) -> Result<bool> {
        unreachable!()
    }

    fn inspect(&self, _: &LockId, _: Option<&VisitorId>, _: Instant) -> Result<Holding> {
        unreachable!()
    }

    fn subscribe(
        &self,
        lock: &LockId,
        place: Option<&VisitorId>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        self.places.lock().push(place.cloned());
        let registration = self.facts.notifier.join(source, &lock.name, parker);
        Subscription::of(registration, Delivery::Live)
    }

    fn check(&self, _: Instant) -> Result<Vec<HealthWarning>> {
        Ok(self.found.lock().clone())
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn node(&self, _: Option<&str>) -> Arc<str> {
        "all".into()
    }

    fn close(&self) {
        *self.closed.lock() += 1;
    }
}

pub(super) struct Scene {
    pub(super) store: Arc<Answering>,
    pub(super) inner: Arc<ClientInner>,
}

impl Scene {
    pub(super) fn new() -> Scene {
        Scene::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut Facts)) -> Scene {
        let mut facts = Facts::of(String::new(), &Arc::<Notifier>::default());
        facts.timeline = crate::ground::clock::Timeline::of_a_world();
        change(&mut facts);
        let store = Arc::new(Answering {
            facts,
            claims: Mutex::default(),
            acquires: Mutex::default(),
            released: Mutex::default(),
            releases: Mutex::default(),
            hand_offs: Mutex::default(),
            writes: Mutex::default(),
            counts: Mutex::default(),
            counted: Mutex::default(),
            conditions: Mutex::default(),
            steps: Mutex::default(),
            resolved: Mutex::default(),
            told: Mutex::default(),
            places: Mutex::default(),
            meanwhile: Mutex::default(),
            prepared: Mutex::default(),
            found: Mutex::default(),
            closed: Mutex::default(),
        });
        let timeouts = Timeouts {
            watchdog_timeout: LEASE,
            command_timeout: COMMAND,
            outage_timeout: COMMAND / 10,
        };
        let inner = ClientInner::new(
            "client".into(),
            Arc::<Answering>::clone(&store),
            timeouts,
            KeyPrefix {
                text: "app:".to_owned(),
                is_once: false,
            },
            None,
            CountSettings::default(),
        );
        Scene {
            store,
            inner: Arc::new(inner),
        }
    }

    pub(super) fn lock(&self, kind: Kind, lease: Lease) -> RawLock {
        RawLock {
            inner: Arc::clone(&self.inner),
            key: LockKey {
                client: self.inner.number,
                lock: LockId {
                    kind,
                    name: "orders".into(),
                },
            },
            lease,
            polling: None,
            class: Default::default(),
            flaw: None,
            parts: None,
            permits: None,
            prefers_readers: false,
        }
    }

    /// The answers to the next questions for a lock.
    pub(super) fn answer(
        &self,
        answers: impl IntoIterator<Item = Result<Outcome<Granted, Refusal>>>,
    ) {
        self.store.acquires.lock().extend(answers);
    }

    /// A grant of now.
    pub(super) fn granted(&self) -> Granted {
        Granted::at(self.store.facts.timeline.now())
    }

    pub(super) fn meanwhile(&self, effect: impl FnOnce() + Send + 'static) {
        *self.store.meanwhile.lock() = Some(Box::new(effect));
    }

    /// Does something while the request behind the next one is under way.
    pub(super) fn meanwhile_second(&self, effect: impl FnOnce() + Send + 'static) {
        let store = Arc::downgrade(&self.store);
        self.meanwhile(move || {
            if let Some(store) = store.upgrade() {
                *store.meanwhile.lock() = Some(Box::new(effect));
            }
        });
    }

    /// The visitors that were cleared up after by now.
    pub(super) fn resolved(&self) -> Vec<String> {
        let last = in_doubt("last", 1);
        let name = last.visitor.to_string();
        self.inner.watchdog.settle(last);
        until(|| self.store.resolved.lock().contains(&name));
        let mut resolved = std::mem::take(&mut *self.store.resolved.lock());
        resolved.retain(|it| *it != name);
        resolved
    }
}

pub(super) fn until(is_so: impl Fn() -> bool) {
    assert!(eventually(time::now() + LONG, is_so), "it does not come");
}

pub(super) fn in_doubt(client: &str, number: u64) -> InDoubt {
    let visitor = VisitorId::new(client, 1, number);
    InDoubt::of(Kind::Reentrant, &"orders".into(), &visitor, LEASE)
}

pub(super) fn unsupported(lock: &Arc<str>) -> Error {
    Error::Unsupported {
        lock: Arc::clone(lock),
        reason: "it is not done here".to_owned(),
    }
}

pub(super) fn silent() -> Error {
    Error::unknown(&"orders".into(), "there", "acquire", None, "it is silent")
}

/// It is refused, and may ask again at once.
pub(super) fn refused() -> Refusal {
    Refusal {
        retry_after: Some(Duration::ZERO),
        ..Refusal::default()
    }
}

pub(super) fn no_answer<D, R>(client: &str) -> Result<Outcome<D, R>> {
    Ok(Outcome::unknown(in_doubt(client, 1), silent()))
}

pub(super) fn pause(span: Duration) {
    sync::sleep(span);
}
