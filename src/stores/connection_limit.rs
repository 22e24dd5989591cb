//! The permits to use connections: a counted number, for which callers wait until their own deadlines.
//!
//! A permit has no connection in it. Its holder reuses an idle connection or opens one, within its own deadline and
//! with its own typed error: there is neither a PING per request nor a hidden retry.
//!
//! `r2d2::Pool` is not used. Its thread would sleep in parking_lot's table for as long as the client lives, which a
//! forked child inherits; it cannot pick the connection that owes a caller an answer, nor close those that are idle; and
//! it takes 0.12 us for a check-out and its return, where the permit and the idle list take 0.02 us.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::sync::{Clock, Condvar, Mutex};
use crate::ground::time;

/// One that has waited so long gets the next permit. Before that, one that comes just then may be quicker: to wake a
/// thread takes longer than most requests.
const GOES_FIRST_AFTER: Duration = Duration::from_millis(10);

/// A wait for a permit leaves at least this much time for the reply, or half of what there is.
const REPLY_TIME: Duration = Duration::from_millis(100);

/// The most connections in use, as permits; without limit once it is closed: what is still unlocked then is not counted.
pub(super) struct ConnectionLimit(Arc<Shared>);

struct Shared {
    size: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: u32,
    /// Those who wait, in order of arrival. Where there is a free permit, the first of them has been woken.
    line: VecDeque<Arc<Waiter>>,
    is_closed: bool,
}

struct Waiter {
    wakes: Condvar,
    goes_first_at: Instant,
}

impl State {
    fn has_free(&self, size: u32) -> bool {
        self.is_closed || self.taken < size
    }

    fn wake_first(&self) {
        // To notify nobody costs a system call.
        if let Some(first) = self.line.front() {
            first.wakes.notify_one();
        }
    }
}

/// The right to use one connection, given back when it is dropped.
pub(super) struct Permit {
    counted_by: Option<Arc<Shared>>,
}

/// How long to wait for a connection where so much time is left: a request that is sent at the last moment is only in doubt.
pub(super) fn patience(left: Duration) -> Duration {
    left - (left / 5).max(REPLY_TIME.min(left / 2))
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
        }))
    }

    /// Takes a permit if one is free.
    pub(super) fn try_take(&self) -> Result<Permit, NoPermit> {
        let ConnectionLimit(shared) = self;
        let mut state = shared.state.lock();
        match state.has_free(shared.size) {
            true => Ok(shared.grant(&mut state)),
            false => Err(NoPermit { of: shared.size }),
        }
    }

    /// Takes a permit for a request that has to be over by `deadline`, waiting for one for most of that time.
    pub(super) fn take(&self, deadline: Instant) -> Result<Permit, NoPermit> {
        self.take_by(|now| now + patience(deadline.saturating_duration_since(now)))
    }

    /// Takes a permit, waiting for one until then.
    pub(super) fn take_until(&self, until: Instant) -> Result<Permit, NoPermit> {
        self.take_by(|_| until)
    }

    fn take_by(&self, until: impl FnOnce(Instant) -> Instant) -> Result<Permit, NoPermit> {
        let ConnectionLimit(shared) = self;
        let mut state = shared.state.lock();
        if state.has_free(shared.size) {
            return Ok(shared.grant(&mut state));
        }
        let now = time::now();
        let until = until(now);
        let waiter = Arc::new(Waiter {
            wakes: Condvar::default(),
            goes_first_at: now + GOES_FIRST_AFTER,
        });
        state.line.push_back(Arc::clone(&waiter));
        while !state.has_free(shared.size) && !Clock::look().has_passed(until) {
            state = waiter.wakes.wait(state, Some(until));
            if !state.line.iter().any(|it| Arc::ptr_eq(it, &waiter)) {
                return Ok(Permit {
                    counted_by: Some(Arc::clone(shared)),
                });
            }
        }
        state.line.retain(|it| !Arc::ptr_eq(it, &waiter));
        if !state.has_free(shared.size) {
            return Err(NoPermit { of: shared.size });
        }
        let permit = shared.grant(&mut state);
        shared.share_out(&state);
        Ok(permit)
    }

    /// Whether there are more permits than those that are taken and so `many` others.
    pub(super) fn has_free(&self, many: usize) -> bool {
        let taken = self.0.state.lock().taken as usize;
        taken + many < self.0.size as usize
    }

    /// Counts no more: a caller gets a permit at once from now on, and so does one that waits already.
    pub(super) fn close(&self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        for waiter in &state.line {
            waiter.wakes.notify_one();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.state.lock().is_closed
    }
}

impl Shared {
    /// Grants a permit that is free.
    fn grant(self: &Arc<Shared>, state: &mut State) -> Permit {
        let is_counted = !state.is_closed;
        state.taken += u32::from(is_counted);
        Permit {
            counted_by: is_counted.then(|| Arc::clone(self)),
        }
    }

    /// Wakes the next one if there is a permit for it as well.
    fn share_out(&self, state: &State) {
        if state.has_free(self.size) {
            state.wake_first();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(shared) = &self.counted_by else {
            return;
        };
        let mut state = shared.state.lock();
        let first = state.line.front();
        if first.is_some_and(|first| Clock::look().has_passed(first.goes_first_at)) {
            // It counts as taken all the time, so that nobody can be quicker.
            if let Some(first) = state.line.pop_front() {
                first.wakes.notify_one();
            }
        } else {
            state.taken -= 1;
        }
        shared.share_out(&state);
    }
}

#[cfg(all(test, not(redlatch_shuttle)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
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

    /// A wait that ends a little before is begun again, and again, for ever less time.
    #[test]
    fn a_wait_until_a_time_ends_no_earlier() {
        let limit = ConnectionLimit::new(1);
        let held = limit.take(soon());
        let until = soon();
        assert!(limit.take_until(until).is_err());
        assert!(Instant::now() >= until);
        assert!(limit.try_take().is_err() && !limit.has_free(0));
        drop(held);
        assert!(limit.has_free(0) && !limit.has_free(1));
        assert!(limit.try_take().is_ok());
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

    /// A thread that comes back at once is quicker than one that has to be woken, but not for ever.
    #[test]
    fn one_that_waits_is_not_overtaken_for_long() {
        let limit = ConnectionLimit::new(1);
        let is_over = AtomicBool::new(false);
        let held = limit.take(soon());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        drop(limit.take(later()));
                    }
                });
            }
            drop(held);
            let mut waits: Vec<_> = (0..20)
                .map(|_| {
                    let began = Instant::now();
                    drop(limit.take(later()));
                    began.elapsed()
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            waits.sort();
            assert!(waits[10] < Duration::from_millis(500), "{waits:?}");
        });
    }

    fn waits_for_one<'s>(
        scope: &'s thread::Scope<'s, '_>,
        limit: &'s ConnectionLimit,
    ) -> thread::ScopedJoinHandle<'s, Permit> {
        let before = limit.0.state.lock().line.len();
        let waits = scope.spawn(|| limit.take(later()).unwrap());
        while limit.0.state.lock().line.len() == before {
            thread::yield_now();
        }
        waits
    }

    #[test]
    fn one_that_waited_long_is_given_the_next_permit_and_nobody_is_quicker() {
        let limit = ConnectionLimit::new(1);
        for _ in 0..20 {
            let held = limit.take(soon());
            thread::scope(|scope| {
                let waiting = [(); 2].map(|()| waits_for_one(scope, &limit));
                thread::sleep(GOES_FIRST_AFTER);
                drop(held);
                for one in waiting {
                    assert!(limit.take(Instant::now()).is_err());
                    drop(one.join());
                }
            });
        }
        assert_eq!(limit.0.state.lock().taken, 0);
    }

    #[test]
    fn all_that_is_free_is_taken_by_those_who_wait() {
        let limit = ConnectionLimit::new(3);
        let held = [(); 3].map(|()| limit.take(soon()));
        thread::scope(|scope| {
            let waiting = [(); 3].map(|()| waits_for_one(scope, &limit));
            // Before one of them is awake.
            drop(held);
            for one in waiting {
                assert!(one.join().unwrap().counted_by.is_some());
            }
        });
        assert_eq!(limit.0.state.lock().taken, 0);
    }
}
