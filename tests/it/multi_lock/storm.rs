//! Many waiters of overlapping MultiLocks, one member of which is held: they do not keep each other busy.

use std::thread;
use std::time::Instant;

use redlatch::{Client, MultiLock};

use crate::invariants::subscriptions;
use crate::support::{RedisServer, elsewhere, eventually, ms};

const WAITERS: i64 = 4;

/// A regression test: each attempt acquired and released the free member, which woke all others, 2,700 attempts in a
/// second.
#[test]
fn waiters_for_several_locks_poll_rarely() {
    let server = RedisServer::start();
    let lock = |name| Client::open(&server.url()).unwrap().lock(name);
    for (held, free) in [("a", "b"), ("b", "a")] {
        let busy = lock(held);
        busy.lock().unwrap();
        thread::scope(|scope| {
            let waiting = (0..WAITERS).map(|_| {
                let both = MultiLock::of(&[lock("a"), lock("b")]).unwrap();
                scope.spawn(move || both.lock().and_then(|()| both.unlock()))
            });
            let waiting: Vec<_> = waiting.collect();
            eventually(ms(10_000), "all of them listen", || {
                [held, free]
                    .iter()
                    .all(|name| subscriptions(&server, name) == WAITERS)
            });
            // The attempts after the subscriptions are over.
            thread::sleep(ms(500));
            let (before, began) = (server.eval_count(), Instant::now());
            thread::sleep(ms(2000));
            let sent = server.eval_count() - before;
            // Each waiter polls once a second with one request, plus one to release a member that it acquired.
            let looks = began.elapsed().as_secs() + 2;
            assert!(
                sent <= looks * WAITERS as u64 * 3,
                "{sent} requests, {held} held"
            );
            let other = lock(free);
            assert!(elsewhere(
                || other.try_lock().unwrap() && other.unlock().is_ok()
            ));
            busy.unlock().unwrap();
            for waiting in waiting {
                waiting.join().unwrap().unwrap();
            }
        });
    }
}
