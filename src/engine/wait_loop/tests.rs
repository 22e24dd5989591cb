//! Waits against a store that is silent.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;

use crate::engine::wait_loop::*;

/// Nobody queues here.
enum Alone {}

impl Queue<()> for Alone {
    fn turn(&self) -> Turn {
        match *self {}
    }

    fn take(&mut self) -> Option<()> {
        match *self {}
    }

    fn note_usable(&self) {
        match *self {}
    }

    fn note_news(&self) {
        match *self {}
    }

    fn note_trouble(&self) {
        match *self {}
    }

    fn last_news(&self) -> Option<Instant> {
        match *self {}
    }

    fn last_usable(&self) -> Option<Instant> {
        match *self {}
    }

    fn leave(self, _: bool) -> Option<()> {
        match self {}
    }
}

/// Waits for ever where no attempt gets an answer in its time, and checks when each began and how long it had.
fn wait_in_an_outage() {
    let lock: Arc<str> = "orders".into();
    let notifier = Arc::<Notifier>::default();
    let outage_timeout = Duration::from_millis(1300);
    let context = WaitContext {
        lock: &lock,
        notifier: &notifier,
        request: Duration::from_secs(1),
        outage_timeout,
        is_busy: false,
    };
    let end = Instant::now() + outage_timeout;
    // What a busy machine may add.
    let slack = Duration::from_millis(150);
    let attempt = |deadline: Instant| -> Result<Verdict<()>> {
        let begun = Instant::now();
        assert!(begun < end + slack, "{:?} late", begun - end);
        assert!(deadline <= end.max(begun) + GRACE, "{:?}", deadline - end);
        thread::sleep((deadline - begun).min(Duration::from_millis(100)));
        Err(Error::Unreachable {
            lock: Arc::clone(&lock),
            node: "there".into(),
            reason: "it is silent".to_owned(),
            source: None,
        })
    };
    let subscribe = |_: &Arc<Parker>| -> Subscription { unreachable!("it has no answer") };
    let outcome = wait::<(), Alone>(
        &context,
        WaitLimit::forever(None),
        attempt,
        subscribe,
        |_| None,
    );
    assert!(matches!(outcome, Err(Error::Unreachable { .. })));
    assert!(Instant::now() >= end);
}

#[test]
fn an_outage_ends_a_wait_without_a_deadline_in_time() {
    thread::scope(|scope| {
        let waits: Vec<_> = (0..20).map(|_| scope.spawn(wait_in_an_outage)).collect();
        for wait in waits {
            wait.join().unwrap();
        }
    });
}
