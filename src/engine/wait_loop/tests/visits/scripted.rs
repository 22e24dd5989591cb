//! A visitor whose answers a test gives.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::Client;
use crate::engine::client_inner::ClientInner;
use crate::engine::counters::class::Via;
use crate::engine::hold::{HandOffOffer, Hold, Lease};
use crate::engine::wait_loop::{self, Visit, WaitLimit};
use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::clock::PROCESS;
use crate::ground::error::{Error, Result};
use crate::ground::notify::Parker;
use crate::ground::time;
use crate::store::{Refusal, Store, Subscription};

/// The entry of one that is handed the lock, or let in by another one's answer.
pub(super) const HANDED: u32 = 100;
pub(super) const LET_IN: u32 = 200;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) type Answer = Result<ControlFlow<u32, Refusal>>;

pub(super) fn lock() -> LockId {
    LockId {
        kind: Kind::Reentrant,
        name: "orders".into(),
    }
}

pub(super) fn offer() -> HandOffOffer {
    HandOffOffer {
        thread: 1,
        liveness: Weak::new(),
        lease: Lease::Fixed(SECOND * 60),
    }
}

/// It is refused, and may ask again after so long.
pub(super) fn refused(after: Duration) -> Answer {
    Ok(ControlFlow::Continue(Refusal {
        retry_after: Some(after),
        ..Refusal::default()
    }))
}

pub(super) fn granted(entry: u32) -> Answer {
    Ok(ControlFlow::Break(entry))
}

pub(super) fn no_quorum() -> Error {
    Error::NoQuorum {
        lock: lock().name,
        granted: 1,
        refused: 0,
        unreachable: 2,
        needed: 2,
        nodes: vec![],
    }
}

pub(super) fn not_replicated() -> Error {
    Error::NotReplicated {
        lock: lock().name,
        node: "there".into(),
        acknowledged: 0,
        wanted: 1,
    }
}

/// A hold that may be handed over, for so long.
pub(super) fn hold(lease: Duration) -> Arc<Hold> {
    let claim = Claim {
        kind: Kind::Reentrant,
        name: lock().name,
        visitor: VisitorId::new("client", 1, 1),
        count: 0,
        lease,
        inside: None,
        queueing: Default::default(),
    };
    let lease = Lease::Fixed(lease);
    let sent = PROCESS.now();
    Arc::new(Hold::new(
        &claim,
        1,
        Weak::new(),
        Arc::default(),
        lease,
        sent,
    ))
}

/// A visitor with the answers to its questions, which does something before each.
pub(super) struct Scripted<'a> {
    pub(super) answers: VecDeque<Answer>,
    pub(super) does: Box<dyn FnMut(u32) + 'a>,
    pub(super) asked: Vec<Instant>,
    pub(super) follows: bool,
    /// It stands in the queue of its client while it waits.
    pub(super) queues: bool,
    /// Its client, which has the lock no longer once a hold that was handed over turns out to be over.
    pub(super) inner: Option<&'a ClientInner>,
    pub(super) came: Vec<Via>,
    pub(super) subscribed: Cell<u32>,
    pub(super) waits: u32,
    /// Is called behind each step.
    pub(super) looks: Box<dyn FnMut() + 'a>,
    pub(super) discarded: Cell<u32>,
}

impl<'a> Scripted<'a> {
    pub(super) fn of(answers: impl IntoIterator<Item = Answer>) -> Scripted<'a> {
        Scripted {
            answers: answers.into_iter().collect(),
            does: Box::new(|_| {}),
            asked: Vec::new(),
            follows: false,
            queues: true,
            inner: None,
            came: Vec::new(),
            subscribed: Default::default(),
            waits: 0,
            looks: Box::new(|| {}),
            discarded: Default::default(),
        }
    }

    /// Does something before the question of each number, counted from 1.
    pub(super) fn before(self, does: impl FnMut(u32) + 'a) -> Scripted<'a> {
        Scripted {
            does: Box::new(does),
            ..self
        }
    }
}

impl Visit for Scripted<'_> {
    type Entry = u32;

    fn attempt(&mut self, deadline: Instant) -> Answer {
        assert!(deadline > time::now());
        self.asked.push(time::now());
        (self.does)(self.asked.len() as u32);
        self.answers
            .pop_front()
            .unwrap_or_else(|| refused(SECOND * 60))
    }

    fn subscribe(&self, store: &dyn Store, lock: &LockId, parker: &Arc<Parker>) -> Subscription {
        self.subscribed.set(self.subscribed.get() + 1);
        store.subscribe(lock, None, 0, parker)
    }

    fn offer(&self) -> Option<HandOffOffer> {
        self.queues.then(offer)
    }

    fn accept(&self, hold: Arc<Hold>, _: Instant) -> Option<u32> {
        if hold.is_valid() {
            return Some(HANDED);
        }
        if let Some(inner) = self.inner {
            inner.wait_queues.freed(&lock(), None, None);
        }
        None
    }

    fn discard(&self, _: &Hold) {
        self.discarded.set(self.discarded.get() + 1);
    }

    fn waits(&mut self) {
        self.waits += 1;
    }

    fn still_waits(&mut self, _: Instant) {
        (self.looks)();
    }

    fn came(&mut self, via: Via) {
        self.came.push(via);
    }

    fn follow(&self) -> Option<u32> {
        self.follows.then_some(LET_IN)
    }
}

pub(super) fn wait(client: &Client, visit: &mut Scripted<'_>) -> Result<Option<u32>> {
    wait_loop::wait(
        client.inner(),
        &lock(),
        None,
        WaitLimit::forever(None),
        visit,
    )
}

/// Hands a hold to the first in the queue.
pub(super) fn hand_over(inner: &ClientInner, hold: Arc<Hold>) {
    let chosen = inner.wait_queues.choose(&lock(), None).unwrap();
    assert!(chosen.grant(hold, false).is_ok());
}
