//! A watchdog over a store that answers as a test says, on a clock that the test sets.

use std::collections::VecDeque;

use super::super::*;
use crate::engine::counters::Counters;
use crate::engine::hold::Lease;
use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::loss::Loss;
use crate::ground::notify::{Notifier, Parker};
use crate::store::{
    Facts, Granted, HealthWarning, Holding, Outcome, Refusal, Released, Renewal, Subscription,
};

pub(super) const COMMAND: Duration = Duration::from_secs(5);
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// Longer than a thread takes to hear of something, on a machine that is busy.
pub(super) const LONG: Duration = Duration::from_secs(5);

/// A call that renews: when it came, until when it may take, and the names of the locks.
type Renewed = (Instant, Instant, Vec<String>);

/// A store that renews and resolves, and nothing else.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) facts: Facts,
    pub(super) renewed: Mutex<Vec<Renewed>>,
    /// The answers to the next claims; behind them each is renewed.
    pub(super) answers: Mutex<VecDeque<Renewal>>,
    /// How long a renewal takes.
    pub(super) takes: Mutex<Duration>,
    pub(super) resolved: Mutex<Vec<String>>,
    /// Each clearing up waits for it.
    pub(super) gate: Mutex<()>,
    /// Until when a look at the settings may take, and how long before that it came.
    pub(super) checked: Mutex<Option<Duration>>,
}

impl Store for Answering {
    fn acquire(&self, _: &Claim, _: Instant) -> Result<Outcome<Granted, Refusal>> {
        unreachable!()
    }

    fn release(&self, _: &Claim, _: u32, _: Instant) -> Result<Outcome<Released>> {
        unreachable!()
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        let mut names: Vec<_> = claims.iter().map(|it| it.name.to_string()).collect();
        let answer = |_: &Claim| self.answers.lock().pop_front();
        let answers = claims.iter().map(answer);
        let answers = answers.map(|it| it.unwrap_or(Renewal::Renewed)).collect();
        sync::sleep(*self.takes.lock());
        names.sort();
        self.renewed.lock().push((time::now(), deadline, names));
        answers
    }

    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        assert!(deadline > time::now());
        let names = in_doubts.iter().map(|it| it.name.to_string());
        self.resolved.lock().extend(names);
        drop(self.gate.lock());
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
        _: &LockId,
        _: Option<&VisitorId>,
        _: u32,
        _: &Arc<Parker>,
    ) -> Subscription {
        unreachable!()
    }

    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        *self.checked.lock() = deadline.checked_duration_since(time::now());
        Ok(Vec::new())
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn node(&self, _: Option<&str>) -> Arc<str> {
        "all".into()
    }
}

/// A watchdog that runs, its store and the losses that its hook was told of.
pub(super) struct Scene {
    pub(super) watchdog: Watchdog,
    pub(super) store: Arc<Answering>,
    pub(super) losses: Arc<Mutex<Vec<String>>>,
    /// It lives as long as the thread that has the holds.
    pub(super) thread: Arc<()>,
}

impl Scene {
    pub(super) fn new() -> Scene {
        Scene::of(false)
    }

    pub(super) fn of(is_composite: bool) -> Scene {
        let store = Arc::new(Answering {
            facts: Facts {
                timeline: Timeline::of_a_world(),
                is_composite,
                ..Facts::of(String::new(), &Arc::<Notifier>::default())
            },
            renewed: Mutex::default(),
            answers: Mutex::default(),
            takes: Mutex::default(),
            resolved: Mutex::default(),
            gate: Mutex::default(),
            checked: Mutex::default(),
        });
        let losses = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&losses);
        let on_lost: OnLost = Arc::new(move |loss: &Loss| {
            told.lock().push(format!("{} {:?}", loss.lock, loss.cause));
        });
        let watchdog = Watchdog::new(
            Arc::<Answering>::clone(&store),
            Arc::default(),
            COMMAND,
            Arc::new(ClientState::new(&Arc::<Counters>::default())),
            Some(on_lost),
        );
        watchdog.follow(&store.facts.timeline);
        watchdog.ensure_running(&"orders".into()).unwrap();
        Scene {
            watchdog,
            store,
            losses,
            thread: Arc::default(),
        }
    }

    /// A hold that begins now.
    pub(super) fn begun(&self, kind: Kind, name: &str, lease: Lease) -> Arc<Hold> {
        let claim = Claim {
            kind,
            name: name.into(),
            visitor: kind.visitor("client", 1, 1),
            count: 0,
            lease: lease.duration(),
            inside: None,
            queueing: Default::default(),
        };
        let timeline = &self.store.facts.timeline;
        let client = Arc::clone(self.watchdog.client());
        let thread = Arc::downgrade(&self.thread);
        let hold = Hold::new(&claim, 1, thread, client, lease, timeline.now());
        Arc::new(hold.kept_by(timeline, None))
    }

    /// A hold that begins now, and is looked after.
    pub(super) fn watched(&self, name: &str, lease: Lease) -> Arc<Hold> {
        let hold = self.begun(Kind::Reentrant, name, lease);
        self.watchdog.watch(&hold);
        hold
    }

    pub(super) fn advance(&self, by: Duration) {
        self.store.facts.timeline.advance(by);
    }

    pub(super) fn renewed(&self) -> Vec<Vec<String>> {
        let renewed = self.store.renewed.lock();
        renewed.iter().map(|(_, _, names)| names.clone()).collect()
    }

    /// The names of the locks that were cleared up after by now, in order.
    pub(super) fn resolved(&self) -> Vec<String> {
        let last = self.begun(Kind::Reentrant, "last", Lease::Fixed(LEASE));
        self.watchdog.settle(last.in_doubt());
        let is_over = || {
            self.store
                .resolved
                .lock()
                .last()
                .is_some_and(|it| it == "last")
        };
        until(is_over);
        let mut resolved = self.store.resolved.lock().clone();
        resolved.pop();
        resolved
    }

    pub(super) fn stop(&self) {
        let deadline = time::now() + LONG;
        self.watchdog.stop(deadline, deadline);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(super) fn until(is_so: impl Fn() -> bool) {
    assert!(eventually(time::now() + LONG, is_so), "it does not come");
}
