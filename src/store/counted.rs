//! A store whose operations are counted.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::claim::{Claim, LockId, VisitorId};
use crate::ground::error::Result;
use crate::ground::notify::Parker;
use crate::ground::reply::Reply;
use crate::store::requests::{Answer, Requests, plain_end};
use crate::store::{
    ConditionAnswer, ConditionOp, ConnectionStats, CountOp, Facts, Granted, Guarded, HealthWarning,
    Holding, InDoubt, LockInfo, Outcome, Position, Refusal, Released, Renewal, Scope, Store,
    Subscription,
};

/// Passes every operation on to another store, and counts it.
pub(crate) struct Counted {
    store: Arc<dyn Store>,
    requests: Arc<Requests>,
}

impl Counted {
    pub(crate) fn new(store: Arc<dyn Store>, requests: Arc<Requests>) -> Counted {
        Counted { store, requests }
    }

    fn counting<T: Answer>(&self, operation: &'static str, ask: impl FnOnce() -> T) -> T {
        let began = self.requests.began();
        let answer = ask();
        self.requests.note(operation, began, answer.end());
        answer
    }

    fn counting_plain<T>(
        &self,
        operation: &'static str,
        ask: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let began = self.requests.began();
        let answer = ask();
        self.requests.note(operation, began, plain_end(&answer));
        answer
    }
}

impl Store for Counted {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        self.counting("acquire", || self.store.acquire(claim, deadline))
    }

    fn release(&self, claim: &Claim, keep: u32, deadline: Instant) -> Result<Outcome<Released>> {
        self.counting("release", || self.store.release(claim, keep, deadline))
    }

    fn release_quietly(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Released>> {
        self.counting("release", || self.store.release_quietly(claim, deadline))
    }

    fn hand_off(&self, from: &Claim, to: &Claim, deadline: Instant) -> Result<Outcome<Granted>> {
        self.counting("hand_off", || self.store.hand_off(from, to, deadline))
    }

    fn guarded(
        &self,
        work: &Guarded<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Vec<Reply>, Duration>> {
        self.counting("write", || self.store.guarded(work, deadline))
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        let began = self.requests.began();
        let outcomes = self.store.renew(claims, deadline);
        let ends = outcomes.iter().map(Answer::end);
        self.requests.note_all("renew", began, ends);
        outcomes
    }

    fn prepare_renewal(&self, lock: &LockId, deadline: Instant) {
        self.store.prepare_renewal(lock, deadline);
    }

    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        let began = self.requests.began();
        let outcomes = self.store.resolve(in_doubts, deadline);
        let ends = outcomes.iter().map(plain_end);
        self.requests.note_all("clear", began, ends);
        outcomes
    }

    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool> {
        self.counting_plain("force_unlock", || self.store.force_release(lock, deadline))
    }

    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding> {
        self.counting_plain("ask", || self.store.inspect(lock, visitor, deadline))
    }

    fn describe(&self, lock: &LockId, deadline: Instant) -> Result<LockInfo> {
        self.counting_plain("ask", || self.store.describe(lock, deadline))
    }

    fn survey(
        &self,
        scope: &Scope,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>> {
        self.counting_plain("ask", || self.store.survey(scope, position, deadline))
    }

    fn count(&self, op: &CountOp<'_>, deadline: Instant) -> Result<i64> {
        self.counting_plain("count", || self.store.count(op, deadline))
    }

    fn waiters(&self, lock: &LockId, deadline: Instant) -> Result<u32> {
        self.counting_plain("ask", || self.store.waiters(lock, deadline))
    }

    fn condition(
        &self,
        op: &ConditionOp<'_>,
        deadline: Instant,
    ) -> Result<Outcome<ConditionAnswer>> {
        self.counting("condition", || self.store.condition(op, deadline))
    }

    fn subscribe_place(&self, op: &ConditionOp<'_>, parker: &Arc<Parker>) -> Subscription {
        self.store.subscribe_place(op, parker)
    }

    fn subscribe(
        &self,
        lock: &LockId,
        place: Option<&VisitorId>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        self.store.subscribe(lock, place, source, parker)
    }

    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        self.counting_plain("check", || self.store.check(deadline))
    }

    fn facts(&self) -> &Facts {
        self.store.facts()
    }

    fn node(&self, lock: Option<&str>) -> Arc<str> {
        self.store.node(lock)
    }

    fn connections(&self) -> ConnectionStats {
        self.store.connections()
    }

    fn close(&self) {
        self.store.close();
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}
