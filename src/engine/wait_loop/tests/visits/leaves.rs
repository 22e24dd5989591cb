//! One that leaves the queue takes with it what it was handed.

use super::*;
use crate::engine::wait_loop::{Sleeper, Wait};

/// The outcome of a wait that leaves with this one, where it was handed `handed` at the last moment or let in, and how many
/// holds it gave back.
fn left(outcome: Result<Option<u32>>, handed: Option<Duration>, follows: bool) -> (String, u32) {
    let client = Client::in_memory();
    let inner = client.inner();
    let lock = lock();
    let mut visit = Scripted::of([]);
    visit.follows = follows;
    let mut sleeper = Sleeper::new(&*inner.store, &lock, false, WaitLimit::forever(None));
    let node = inner.wait_queues.join(&lock, sleeper.parker(), offer());
    if let Some(lease) = handed {
        hand_over(inner, hold(lease));
    } else if follows {
        node.let_in(u64::MAX);
    }
    let wait = Wait {
        inner,
        lock: &lock,
        visit: &mut visit,
        node: Some(node),
        sleeper,
        #[cfg(feature = "test-util")]
        unqueued: None,
        woken_by: Via::Free,
    };
    let outcome = match wait.leave(outcome) {
        Ok(entry) => format!("{entry:?}"),
        Err(error) => error.kind().to_owned(),
    };
    (outcome, visit.discarded.get())
}

#[test]
fn one_that_leaves_takes_what_it_was_handed_at_the_last_moment() {
    let interrupted = || Err(Error::Interrupted { lock: lock().name });
    let valid = Some(SECOND * 60);
    let over = Some(Duration::ZERO);
    let handed = format!("{:?}", Some(HANDED));
    let let_in = format!("{:?}", Some(LET_IN));
    assert_eq!(left(Ok(None), None, false), ("None".to_owned(), 0));
    assert_eq!(left(Ok(None), valid, false), (handed.clone(), 0));
    assert_eq!(left(interrupted(), valid, false), (handed, 0));
    assert_eq!(left(Ok(None), over, false), ("None".to_owned(), 0));
    assert!(
        left(interrupted(), over, false)
            .0
            .starts_with("interrupted")
    );
    assert_eq!(
        left(Ok(Some(3)), valid, false),
        ("Some(3)".to_owned(), 1),
        "it has one"
    );
    assert_eq!(left(interrupted(), None, true), (let_in, 0));
    assert_eq!(left(Ok(Some(3)), None, true), ("Some(3)".to_owned(), 0));
}
