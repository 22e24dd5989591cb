//! The permits to use connections: a counted number, for which callers wait until their own deadlines.
//!
//! A permit has no connection in it. Its holder reuses an idle connection or opens one, within its own deadline and
//! with its own typed error: there is neither a PING per request nor a hidden retry.
//!
//! `r2d2::Pool` is not used. Its thread would sleep in parking_lot's table for as long as the client lives, which a
//! forked child inherits; it cannot pick the connection that owes a caller an answer, nor close those that are idle; and
//! it takes 0.12 us for a check-out and its return, where the permit and the idle list take 0.02 us.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::sync::{Condvar, Mutex};
use crate::ground::time;

/// The most connections in use, as permits; without limit once it is closed: what is still unlocked then is not counted.
pub(super) struct ConnectionLimit(Arc<Shared>);

struct Shared {
    size: u32,
    state: Mutex<State>,
    given_back: Condvar,
}

#[derive(Default)]
struct State {
    taken: u32,
    waiting: u32,
    is_closed: bool,
}

/// The right to use one connection, given back when it is dropped.
pub(super) struct Permit {
    counted_by: Option<Arc<Shared>>,
}

/// How long to wait for a connection where so much time is left: a request that is sent at the last moment is only in doubt.
pub(super) fn patience(left: Duration) -> Duration {
    left * 4 / 5
}

/// None of so many permits became free in time.
#[derive(Debug)]
pub(super) struct NoPermit {
    pub(super) of: u32,
}

impl ConnectionLimit {
    pub(super) fn new(size: u32) -> ConnectionLimit {
        ConnectionLimit(Arc::new(Shared {
            size,
            state: Mutex::default(),
            given_back: Condvar::default(),
        }))
    }

    /// Takes a permit for a request that has to be over by `deadline`, waiting for one for most of that time.
    pub(super) fn take(&self, deadline: Instant) -> Result<Permit, NoPermit> {
        let ConnectionLimit(shared) = self;
        let mut state = shared.state.lock();
        let mut wait_until = None;
        while !state.is_closed && state.taken >= shared.size {
            let now = time::now();
            let left = deadline.saturating_duration_since(now);
            let wait_until = *wait_until.get_or_insert(now + patience(left));
            if now >= wait_until {
                return Err(NoPermit { of: shared.size });
            }
            state.waiting += 1;
            state = shared.given_back.wait(state, Some(wait_until));
            state.waiting -= 1;
        }
        let is_counted = !state.is_closed;
        state.taken += u32::from(is_counted);
        Ok(Permit {
            counted_by: is_counted.then(|| Arc::clone(shared)),
        })
    }

    /// Counts no more: a caller gets a permit at once from now on, and so does one that waits already.
    pub(super) fn close(&self) {
        self.0.state.lock().is_closed = true;
        self.0.given_back.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.state.lock().is_closed
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(shared) = &self.counted_by {
            let mut state = shared.state.lock();
            state.taken -= 1;
            // To notify nobody costs a system call.
            if state.waiting > 0 {
                shared.given_back.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    /// Far enough away to fail a test that waits for it.
    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_wait_ends_before_the_deadline() {
        let limit = ConnectionLimit::new(2);
        let _held = [limit.take(soon()), limit.take(soon())];
        let began = Instant::now();
        let refused = limit.take(began + Duration::from_millis(500));
        assert_eq!(refused.map(drop).map_err(|none| none.of), Err(2));
        let waited = began.elapsed();
        assert!(waited >= Duration::from_millis(400), "{waited:?}");
        assert!(limit.take(Instant::now()).is_err(), "without a wait");
    }

    #[test]
    fn a_permit_that_is_given_back_goes_to_one_that_waits() {
        let limit = ConnectionLimit::new(1);
        let held = limit.take(soon());
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| limit.take(later()).is_ok()))
                .collect();
            thread::sleep(Duration::from_millis(20));
            drop(held);
            for waiter in waiting {
                assert!(waiter.join().is_ok_and(|got| got));
            }
        });
        assert!(limit.take(soon()).is_ok());
    }

    #[test]
    fn nobody_waits_for_permits_that_are_closed() {
        let limit = ConnectionLimit::new(1);
        let _held = limit.take(soon());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| limit.take(later()).is_ok());
            thread::sleep(Duration::from_millis(20));
            limit.close();
            assert!(waiter.join().is_ok_and(|got| got));
        });
        let uncounted = [limit.take(soon()), limit.take(soon())];
        assert!(limit.is_closed() && uncounted.iter().all(Result::is_ok));
    }
}
