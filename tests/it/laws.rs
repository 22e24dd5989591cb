//! The laws of the lock, each stated once and run on every store; those of re-entry not on token locks.
//!
//! Among them is the meaning of Redisson's tests of `RLock`; the list stands at the end of this file.
#![allow(clippy::unwrap_used, reason = "a law that cannot be tried is broken")]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvError;
use redlatch::{
    Builder, Client, Error, Interrupt, Lock, Loss, LossCause, Losses, NoLoss, RunError,
    current_thread_id,
};

use crate::backends::{Backend, LEASE};
use crate::support::{eventually, ms};

type Hook = Box<dyn Fn(&Loss) + Send + Sync>;

/// The settings that laws ask for, by whatever name the backend has them.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) watchdog_timeout: Option<Duration>,
    pub(crate) on_lost: Option<Hook>,
}

impl Settings {
    pub(crate) fn watchdog_timeout(mut self, timeout: Duration) -> Settings {
        self.watchdog_timeout = Some(timeout);
        self
    }

    pub(crate) fn on_lost(mut self, hook: impl Fn(&Loss) + Send + Sync + 'static) -> Settings {
        self.on_lost = Some(Box::new(hook));
        self
    }

    pub(crate) fn builder(self) -> Builder {
        let mut builder = Client::builder();
        if let Some(timeout) = self.watchdog_timeout {
            builder = builder.watchdog_timeout(timeout);
        }
        match self.on_lost {
            Some(hook) => builder.on_lost(hook),
            None => builder,
        }
    }
}

/// What a busy machine may add to any time.
const SLACK: Duration = ms(2500);

// A macro of the binary, which knows the places.
laws! {
    every {
        locks_and_unlocks_twice_in_a_row
        excludes_other_threads_and_other_clients
        a_wait_ends_between_its_time_and_the_slack
        an_unlock_wakes_a_waiter_of_another_client
        an_unlock_wakes_a_waiter_of_the_same_client
        an_interrupt_ends_the_wait_and_leaves_nothing
        an_interrupt_that_was_raised_before_ends_the_wait_at_once
        a_guard_can_be_waited_for_interruptibly
        the_watchdog_renews_past_the_lease
        an_unlocked_lock_is_not_renewed
        a_fixed_lease_is_not_renewed_and_ends
        the_end_of_a_fixed_lease_is_told
        a_foreign_unlock_is_refused
        a_force_unlock_tells_the_old_holder
        a_force_unlock_tells_the_holder_of_another_client
        a_guard_unlocks_when_its_thread_panics
        a_guard_that_was_unlocked_by_hand_has_lost_nothing
        run_keeps_the_value_when_the_hold_is_lost
        run_unlocks_on_return_error_and_panic
        try_run_for_gives_up
        the_end_of_a_thread_ends_the_renewal
        a_forgotten_guard_is_renewed_no_longer_than_its_thread_lives
        the_loss_arrives_on_the_channel_and_at_the_hook
        a_panic_in_the_hook_is_contained
        the_channel_closes_when_the_hold_ends_well
        a_loss_is_told_to_everybody_and_never_used_up
        a_channel_that_outlives_its_losses_tells_no_good_end
        a_loss_found_by_the_unlock_is_told_like_any_other
        a_shutdown_ends_every_wait_and_lets_holders_unlock
        dropping_the_last_handle_joins_the_threads
        what_a_dead_client_held_is_free_after_its_lease
        many_threads_never_overlap
        many_clients_never_overlap
        many_threads_that_only_try_never_overlap
        many_threads_on_a_few_names_all_get_through
        an_interrupted_try_is_not_renewed
    }
    reentrant {
        re_enters_and_counts
        a_nested_hold_is_renewed_until_its_last_unlock
        a_shorter_inner_lease_does_not_shorten_the_outer
        a_longer_inner_lease_ends_with_its_unlock
        a_long_level_counts_behind_a_short_one
        locking_after_a_loss_is_a_fresh_hold
        a_stale_guard_cannot_release_a_newer_hold
        guards_may_be_dropped_in_any_order
        an_unlock_by_hand_leaves_the_levels_of_guards_to_them
        counts_are_per_thread
        the_remaining_lease_is_told
        bad_input_is_refused_and_leaves_nothing
    }
}

fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

fn re_enters_and_counts(backend: &Backend) {
    let lock = backend.client().lock("orders");
    assert_eq!(lock.hold_count().unwrap(), 0);
    lock.lock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(lock.try_lock().unwrap());
    assert_eq!(lock.hold_count().unwrap(), 2);
    assert!(lock.try_lock_for(ms(50)).unwrap());
    assert_eq!(lock.hold_count().unwrap(), 3);
    lock.unlock().unwrap();
    lock.unlock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(!elsewhere(|| lock.try_lock().unwrap()), "one level is left");
    lock.unlock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 0);
    assert!(!lock.is_locked().unwrap());
}

fn locks_and_unlocks_twice_in_a_row(backend: &Backend) {
    let lock = backend.client().lock("orders");
    for _ in 0..2 {
        lock.lock().unwrap();
        lock.unlock().unwrap();
    }
    assert!(!lock.is_locked().unwrap());
}

fn excludes_other_threads_and_other_clients(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    lock.lock().unwrap();
    assert!(!elsewhere(|| lock.try_lock().unwrap()));
    assert!(
        !other.try_lock().unwrap(),
        "the same thread, but another client"
    );
    assert!(other.is_locked().unwrap());
    assert!(!other.is_held_by_current_thread().unwrap());
    assert!(
        backend.client().lock("invoices").try_lock().unwrap(),
        "another name is another lock"
    );
    lock.unlock().unwrap();
    assert!(other.try_lock().unwrap());
    assert!(!lock.try_lock().unwrap());
    other.unlock().unwrap();
}

fn a_wait_ends_between_its_time_and_the_slack(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    lock.lock().unwrap();
    for wait in [ms(0), ms(1), ms(300)] {
        let start = Instant::now();
        assert!(!other.try_lock_for(wait).unwrap());
        assert!(
            start.elapsed() >= wait,
            "{:?} for {wait:?}",
            start.elapsed()
        );
        assert!(
            start.elapsed() < wait + SLACK,
            "{:?} for {wait:?}",
            start.elapsed()
        );
    }
    lock.unlock().unwrap();
}

fn an_unlock_wakes_a_waiter(holder: &Lock, waiter: &Lock) {
    holder.lock().unwrap();
    let (waited, freed) = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            waiter.lock().unwrap();
            let now = Instant::now();
            waiter.unlock().unwrap();
            now
        });
        thread::sleep(ms(300));
        let freed = Instant::now();
        holder.unlock().unwrap();
        (waiting.join().unwrap(), freed)
    });
    // A waiter that was not woken looks again after a second, or when a lease of a minute ends.
    assert!(
        waited.duration_since(freed) < ms(600),
        "{:?}",
        waited.duration_since(freed)
    );
}

fn an_unlock_wakes_a_waiter_of_another_client(backend: &Backend) {
    let minute = Duration::from_secs(60);
    let holder = backend.client().lock("orders").with_lease_time(minute);
    let waiter = backend.client().lock("orders").with_lease_time(minute);
    an_unlock_wakes_a_waiter(&holder, &waiter);
}

fn an_unlock_wakes_a_waiter_of_the_same_client(backend: &Backend) {
    let lock = backend
        .client()
        .lock("orders")
        .with_lease_time(Duration::from_secs(60));
    an_unlock_wakes_a_waiter(&lock, &lock);
}

fn an_interrupt_ends_the_wait_and_leaves_nothing(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    lock.lock().unwrap();
    let minute = Duration::from_secs(60);
    type Wait<'a> = &'a (dyn Fn(&Interrupt) -> Result<(), Error> + Sync);
    let waits: [Wait<'_>; 4] = [
        &|interrupt| other.lock_interruptibly(interrupt),
        &|interrupt| other.guard_interruptibly(interrupt).map(drop),
        &|interrupt| {
            let got = other.try_lock_for_interruptibly(minute, interrupt);
            got.map(drop)
        },
        &|interrupt| {
            let got = other.try_guard_for_interruptibly(minute, interrupt);
            got.map(drop)
        },
    ];
    for wait in waits {
        let interrupt = Interrupt::new();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&interrupt));
            thread::sleep(ms(150));
            let raised = Instant::now();
            interrupt.raise();
            let error = waiting.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Interrupted { .. }), "{error}");
            assert!(raised.elapsed() < SLACK);
        });
    }
    assert_eq!(lock.hold_count().unwrap(), 1);
    lock.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
    assert!(elsewhere(|| {
        let got = lock.try_lock().unwrap();
        lock.unlock().unwrap();
        got
    }));
}

fn an_interrupt_that_was_raised_before_ends_the_wait_at_once(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let interrupt = Interrupt::new();
    interrupt.raise();
    let error = lock.lock_interruptibly(&interrupt).unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }));
    let error = lock.guard_interruptibly(&interrupt).unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }));
    let error = lock
        .try_guard_for_interruptibly(ms(10), &interrupt)
        .unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }));
    assert!(!lock.is_locked().unwrap());
}

fn a_guard_can_be_waited_for_interruptibly(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let interrupt = Interrupt::new();
    let guard = lock.guard_interruptibly(&interrupt).unwrap();
    let got = lock.try_guard_for_interruptibly(ms(10), &interrupt);
    match got {
        Ok(inner) => inner.unwrap().unlock().unwrap(),
        Err(error) => assert!(matches!(error, Error::NotReentrant { .. }), "{error}"),
    }
    let other = backend.client().lock("orders");
    let got = elsewhere(|| {
        let got = other.try_guard_for_interruptibly(ms(10), &interrupt);
        got.unwrap().is_some()
    });
    assert!(!got);
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

fn the_watchdog_renews_past_the_lease(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    let start = Instant::now();
    while start.elapsed() < LEASE * 3 {
        assert!(guard.is_valid(), "after {:?}", start.elapsed());
        assert!(lock.is_held_by_current_thread().unwrap());
        thread::sleep(ms(50));
    }
    assert!(guard.remaining_validity() > Duration::ZERO);
    guard.unlock().unwrap();
}

fn an_unlocked_lock_is_not_renewed(backend: &Backend) {
    let client = backend.client();
    client.lock("orders").lock().unwrap();
    client.lock("orders").unlock().unwrap();
    let fixed = backend.client().lock("orders").with_lease_time(LEASE);
    fixed.lock().unwrap();
    thread::sleep(LEASE + ms(200));
    assert!(!fixed.is_locked().unwrap(), "nobody may have renewed it");
}

fn a_nested_hold_is_renewed_until_its_last_unlock(backend: &Backend) {
    let lock = backend.client().lock("orders");
    lock.lock().unwrap();
    lock.lock().unwrap();
    lock.unlock().unwrap();
    thread::sleep(LEASE * 2);
    assert!(lock.is_valid());
    assert_eq!(lock.hold_count().unwrap(), 1);
    lock.unlock().unwrap();
    assert!(!lock.is_valid());
    // testLockReentrantRenew: the next holder is not harmed by what was renewed before.
    let other = backend.client().lock("orders");
    other.lock().unwrap();
    thread::sleep(LEASE * 2);
    assert!(other.is_valid());
    other.unlock().unwrap();
}

fn a_fixed_lease_is_not_renewed_and_ends(backend: &Backend) {
    let lock = backend.client().lock("orders").with_lease_time(ms(500));
    let other = backend.client().lock("orders");
    let start = Instant::now();
    lock.lock().unwrap();
    assert!(lock.is_valid());
    assert!(other.try_lock_for(Duration::from_secs(10)).unwrap());
    // A quorum gives back what it does not count on any more: 1 % and 2 ms before the end.
    let least = if backend.is_slow() { ms(493) } else { ms(500) };
    assert!(start.elapsed() >= least, "{:?}", start.elapsed());
    assert!(start.elapsed() < ms(500) + SLACK, "{:?}", start.elapsed());
    assert!(!lock.is_valid());
    let error = lock.unlock().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(other.is_valid(), "the late unlock did it no harm");
    other.unlock().unwrap();
    let error = lock.unlock().unwrap_err();
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
}

fn the_end_of_a_fixed_lease_is_told(backend: &Backend) {
    let lock = backend.client().lock("orders").with_lease_time(ms(300));
    let guard = lock.guard().unwrap();
    let loss = guard.lost().recv_timeout(ms(300) + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::LeaseEnded);
    assert_eq!(&*loss.lock, lock.name());
    assert_eq!(loss.thread, current_thread_id());
    assert!(!guard.is_valid());
    assert!(guard.unlock().unwrap_err().is_lost());
}

fn a_shorter_inner_lease_does_not_shorten_the_outer(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    let other = backend.client().lock("orders");
    lock.lock().unwrap();
    lock.with_lease_time(ms(100)).lock().unwrap();
    assert!(lock.remaining_lease().unwrap().unwrap() > ms(150));
    thread::sleep(ms(300));
    assert!(lock.is_valid());
    assert!(!other.try_lock().unwrap());
    lock.unlock().unwrap();
    thread::sleep(LEASE);
    assert!(lock.is_valid());
    assert!(!other.try_lock().unwrap());
    lock.unlock().unwrap();

    let long = client.lock("long").with_lease_time(Duration::from_secs(60));
    long.lock().unwrap();
    // The watchdog of the inner one must not shorten it either.
    client.lock("long").lock().unwrap();
    thread::sleep(LEASE);
    assert!(long.remaining_lease().unwrap().unwrap() > Duration::from_secs(50));
    long.unlock().unwrap();
    assert!(long.remaining_lease().unwrap().unwrap() > Duration::from_secs(50));
    long.unlock().unwrap();
}

fn a_long_level_counts_behind_a_short_one(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let short = lock.with_lease_time(ms(5_000));
    let outer = short.guard().unwrap();
    short.guard().unwrap().unlock().unwrap();
    let inner = lock.with_lease_time(Duration::from_secs(60)).guard();
    let inner = inner.unwrap();
    assert!(inner.remaining_validity() > Duration::from_secs(50));
    inner.unlock().unwrap();
    outer.unlock().unwrap();
}

fn a_longer_inner_lease_ends_with_its_unlock(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders").with_lease_time(ms(800));
    lock.lock().unwrap();
    let long = lock.with_lease_time(Duration::from_secs(60));
    long.lock().unwrap();
    assert!(lock.remaining_lease().unwrap().unwrap() > Duration::from_secs(50));
    long.unlock().unwrap();
    assert!(lock.remaining_lease().unwrap().unwrap() <= ms(800));
    assert!(lock.is_valid());
    thread::sleep(ms(850));
    assert!(!lock.is_valid());
    assert!(!lock.is_locked().unwrap());

    // If the outer lease is over when the inner one is unlocked, the hold is over with it.
    lock.lock().unwrap();
    let guard = long.guard().unwrap();
    thread::sleep(ms(850));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    assert!(!lock.is_valid());
    assert!(!lock.is_locked().unwrap());
    assert!(lock.unlock().unwrap_err().is_lost());
}

fn a_foreign_unlock_is_refused(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let error = lock.unlock().unwrap_err();
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
    lock.lock().unwrap();
    let error = elsewhere(|| lock.unlock().unwrap_err());
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
    assert!(error.to_string().contains("orders"), "{error}");
    let error = backend.client().lock("orders").unlock().unwrap_err();
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
    assert!(lock.is_held_by_current_thread().unwrap());
    lock.unlock().unwrap();
}

fn a_force_unlock_tells_the_old_holder(backend: &Backend) {
    let client = backend.client_with(Settings::default());
    let lock = client.lock("orders");
    assert!(!lock.force_unlock().unwrap(), "nobody held it");
    let fixed = lock.with_lease_time(Duration::from_secs(60));
    for held in [&lock, &fixed] {
        let guard = held.guard().unwrap();
        assert!(elsewhere(|| held.force_unlock().unwrap()));
        // The lease is 30 s or more: only asking at once tells it this early.
        let loss = guard.lost().recv_timeout(SLACK).unwrap();
        assert_eq!(loss.cause, LossCause::Gone);
        assert!(!guard.is_valid());
        assert!(!held.is_locked().unwrap());
        assert!(guard.unlock().unwrap_err().is_lost());
    }
}

fn a_force_unlock_tells_the_holder_of_another_client(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    let guard = lock.guard().unwrap();
    assert!(other.force_unlock().unwrap());
    let holder = other.guard().unwrap();
    let loss = guard.lost().recv_timeout(LEASE + SLACK).unwrap();
    // A renewal may ask between the two, when nobody has it.
    let taken = LossCause::HeldBy(holder.visitor().to_string());
    assert!([LossCause::Gone, taken].contains(&loss.cause), "{loss}");
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(holder.is_valid());
    holder.unlock().unwrap();
}

fn locking_after_a_loss_is_a_fresh_hold(backend: &Backend) {
    let lock = backend.client().lock("orders");
    lock.lock().unwrap();
    lock.lock().unwrap();
    let other = backend.client();
    assert!(other.lock("orders").force_unlock().unwrap());
    // It finds out by trying to enter, or was told before.
    lock.lock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(lock.is_valid());
    lock.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
    for _ in 0..2 {
        assert!(
            lock.unlock().unwrap_err().is_lost(),
            "the older levels stay lost"
        );
    }
    assert!(matches!(lock.unlock().unwrap_err(), Error::NotHeld { .. }));
}

fn a_stale_guard_cannot_release_a_newer_hold(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let stale = lock.guard().unwrap();
    assert!(backend.client().lock("orders").force_unlock().unwrap());
    let fresh = lock.guard().unwrap();
    assert!(!stale.is_valid());
    drop(stale);
    assert!(fresh.is_valid());
    assert_eq!(lock.hold_count().unwrap(), 1);
    fresh.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

fn guards_may_be_dropped_in_any_order(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let outer = lock.guard().unwrap();
    let inner = lock.try_guard().unwrap().unwrap();
    assert_eq!(outer.visitor(), inner.visitor());
    drop(outer);
    assert!(inner.is_valid());
    assert_eq!(lock.hold_count().unwrap(), 1);
    drop(inner);
    assert!(!lock.is_locked().unwrap());
    assert!(lock.try_guard_for(ms(10)).unwrap().is_some());
}

fn a_guard_that_was_unlocked_by_hand_has_lost_nothing(backend: &Backend) {
    let losses = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&losses);
    let client = backend.client_with(Settings::default().on_lost(move |_| {
        told.fetch_add(1, Ordering::SeqCst);
    }));
    let lock = client.lock("orders");
    for is_dropped in [false, true] {
        let guard = lock.guard().unwrap();
        let lost = guard.lost();
        lock.unlock().unwrap();
        assert!(!guard.is_valid());
        if is_dropped {
            drop(guard);
        } else {
            let error = guard.unlock().unwrap_err();
            assert!(matches!(error, Error::NotHeld { .. }), "{error}");
        }
        assert!(lost.recv().is_err(), "it ended well");
        assert!(!lock.is_locked().unwrap());
        // Nor does it touch the next hold.
        let guard = lock.guard().unwrap();
        lock.unlock().unwrap();
        let next = lock.guard().unwrap();
        drop(guard);
        assert!(next.is_valid());
        next.unlock().unwrap();
    }
    client.shutdown();
    assert_eq!(losses.load(Ordering::SeqCst), 0);
}

fn an_unlock_by_hand_leaves_the_levels_of_guards_to_them(backend: &Backend) {
    let lock = backend.client().lock("orders");
    lock.lock().unwrap();
    let guard = lock.guard().unwrap();
    lock.unlock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
    // Two guards, and one unlock by hand: the outer one still has its level.
    let outer = lock.guard().unwrap();
    let inner = lock.guard().unwrap();
    lock.unlock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(matches!(inner.unlock(), Err(Error::NotHeld { .. })));
    assert!(outer.is_valid());
    assert_eq!(lock.hold_count().unwrap(), 1);
    outer.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

fn a_guard_unlocks_when_its_thread_panics(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let thread = thread::spawn({
        let lock = lock.clone();
        move || {
            let _guard = lock.guard().unwrap();
            std::panic::panic_any("as planned");
        }
    });
    assert!(thread.join().is_err());
    assert!(!lock.is_locked().unwrap());
}

fn run_keeps_the_value_when_the_hold_is_lost(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    let error = lock
        .run(|guard| {
            assert!(other.force_unlock().unwrap());
            guard.lost().recv_timeout(LEASE + SLACK).unwrap();
            assert!(!guard.is_valid());
            "value"
        })
        .unwrap_err();
    assert!(error.error().is_lost(), "{error}");
    assert_eq!(error.into_value(), Some("value"));
}

fn run_unlocks_on_return_error_and_panic(backend: &Backend) {
    let lock = backend.client().lock("orders");
    assert_eq!(lock.run(|_| 42).unwrap(), 42);
    let inner: Result<(), &str> = lock.run(|_| Err("refused")).unwrap();
    assert_eq!(inner, Err("refused"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        lock.run(|_| std::panic::panic_any("as planned"))
    }));
    assert!(panicked.is_err());
    assert!(!lock.is_locked().unwrap());
}

fn try_run_for_gives_up(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    assert_eq!(lock.try_run_for(ms(10), |_| 1).unwrap(), Some(1));
    lock.lock().unwrap();
    assert_eq!(other.try_run_for(ms(100), |_| 1).unwrap(), None);
    let error = backend
        .client()
        .lock("")
        .try_run_for(ms(10), |_| 1)
        .unwrap_err();
    assert!(matches!(error, RunError::NotRun(Error::InvalidName { .. })));
    lock.unlock().unwrap();
}

fn the_end_of_a_thread_ends_the_renewal(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    let (sender, losses) = mpsc::channel::<Loss>();
    thread::spawn({
        let lock = lock.clone();
        move || {
            lock.lock().unwrap();
            let lost = lock.lost().unwrap();
            thread::spawn(move || sender.send(lost.recv().unwrap()));
        }
    })
    .join()
    .unwrap();
    let start = Instant::now();
    assert!(lock.is_locked().unwrap());
    assert!(lock.try_lock_for(LEASE + SLACK).unwrap());
    assert!(
        start.elapsed() > LEASE / 3,
        "it is not freed under the feet of the others"
    );
    lock.unlock().unwrap();
    assert_eq!(
        losses.recv_timeout(SLACK).unwrap().cause,
        LossCause::ThreadEnded
    );
}

fn a_forgotten_guard_is_renewed_no_longer_than_its_thread_lives(backend: &Backend) {
    let lock = backend.client().lock("orders");
    elsewhere(|| {
        std::mem::forget(lock.guard().unwrap());
        thread::sleep(LEASE + ms(300));
        assert!(lock.is_valid(), "it is renewed");
    });
    assert!(lock.try_lock_for(LEASE + SLACK).unwrap());
    lock.unlock().unwrap();
}

fn counts_are_per_thread(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let here = current_thread_id();
    lock.lock().unwrap();
    lock.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(lock.hold_count().unwrap(), 0);
            assert!(!lock.is_held_by_current_thread().unwrap());
            assert!(!lock.is_valid());
            assert!(lock.is_locked().unwrap());
            assert!(lock.is_held_by_thread(here).unwrap());
            assert!(!lock.is_held_by_thread(current_thread_id()).unwrap());
        });
    });
    assert!(!lock.is_held_by_thread(u64::MAX).unwrap());
    assert!(lock.is_held_by_current_thread().unwrap());
    lock.unlock().unwrap();
    lock.unlock().unwrap();
    assert!(!lock.is_held_by_thread(here).unwrap());
}

fn the_remaining_lease_is_told(backend: &Backend) {
    let lock = backend.client().lock("orders");
    assert_eq!(lock.remaining_lease().unwrap(), None);
    let ten = lock.with_lease_time(Duration::from_secs(10));
    for _ in 0..3 {
        ten.lock().unwrap();
    }
    ten.unlock().unwrap();
    ten.unlock().unwrap();
    let left = ten.remaining_lease().unwrap().unwrap();
    assert!(
        left > Duration::from_secs(7) && left <= Duration::from_secs(10),
        "{left:?}"
    );
    ten.unlock().unwrap();
    assert_eq!(lock.remaining_lease().unwrap(), None);
    lock.lock().unwrap();
    assert!(
        backend
            .client()
            .lock("orders")
            .remaining_lease()
            .unwrap()
            .unwrap()
            <= LEASE
    );
    lock.unlock().unwrap();
}

fn the_loss_arrives_on_the_channel_and_at_the_hook(backend: &Backend) {
    let (sender, told) = mpsc::channel();
    let client = backend.client_with(Settings::default().watchdog_timeout(LEASE).on_lost(
        move |loss| {
            sender.send(loss.clone()).unwrap();
        },
    ));
    let lock = client.lock("orders");
    lock.lock().unwrap();
    let (first, second) = (lock.lost().unwrap(), lock.lost().unwrap());
    backend.client().lock("orders").force_unlock().unwrap();
    let loss = told.recv_timeout(LEASE + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::Gone);
    assert_eq!(first.recv_timeout(SLACK).unwrap(), loss);
    assert_eq!(second.recv_timeout(SLACK).unwrap(), loss);
    assert!(
        lock.lost().unwrap().try_recv().is_ok(),
        "who asks later is told too"
    );
    let Err(Error::Lost { cause, visitor, .. }) = lock.unlock() else {
        panic!("it was lost")
    };
    assert_eq!((cause, visitor), (loss.cause, loss.visitor));
    assert!(
        told.recv_timeout(ms(100)).is_err(),
        "each loss is told once"
    );
    assert!(matches!(lock.lost(), Err(Error::NotHeld { .. })));
}

fn a_panic_in_the_hook_is_contained(backend: &Backend) {
    let calls = Arc::new(AtomicU32::new(0));
    let client = backend.client_with(Settings::default().watchdog_timeout(LEASE).on_lost({
        let calls = Arc::clone(&calls);
        move |_| {
            if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                std::panic::panic_any("as planned");
            }
        }
    }));
    for expected in 1..=2 {
        let lock = client.lock("orders").with_lease_time(ms(50));
        lock.lock().unwrap();
        eventually(SLACK, "the hook is called", || {
            calls.load(Ordering::SeqCst) == expected
        });
        assert!(lock.unlock().unwrap_err().is_lost());
    }
    // Neither the renewal thread nor anything else was harmed.
    let guard = client.lock("orders").guard().unwrap();
    thread::sleep(LEASE * 2);
    assert!(guard.is_valid());
}

fn the_channel_closes_when_the_hold_ends_well(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    guard.unlock().unwrap();
    assert_eq!(lost.recv_timeout(SLACK), Err(NoLoss::Ended));
    assert_eq!(lost.recv(), Err(NoLoss::Ended));
    assert_eq!(lost.clone().try_recv(), Err(NoLoss::Ended));
    assert!(lost.as_receiver().recv().is_err());
    assert!(!lost.is_valid());
}

/// Waits at the channel as `select!` does.
fn selected(losses: &Losses) -> Result<Loss, RecvError> {
    crossbeam_channel::select! {
        recv(losses.as_receiver()) -> loss => loss,
        default(LEASE + SLACK) => panic!("nothing is told"),
    }
}

fn a_loss_is_told_to_everybody_and_never_used_up(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let guard = lock.guard().unwrap();
    let losses = guard.lost();
    assert_eq!(losses.try_recv(), Err(NoLoss::NotYet));
    assert_eq!(losses.recv_timeout(ms(1)), Err(NoLoss::NotYet));
    assert!(losses.is_valid() && losses.as_receiver().try_recv().is_err());
    let (again, its_own) = (losses.clone(), lock.lost().unwrap());
    thread::scope(|scope| {
        let listeners = [
            scope.spawn(|| losses.recv().unwrap()),
            scope.spawn(|| losses.recv_timeout(LEASE + SLACK).unwrap()),
            scope.spawn(|| selected(&losses).unwrap()),
            scope.spawn(|| selected(&again).unwrap()),
            scope.spawn(|| again.clone().recv().unwrap()),
            scope.spawn(|| selected(&its_own.clone()).unwrap()),
        ];
        thread::sleep(ms(50));
        assert!(lock.force_unlock().unwrap());
        for listener in listeners {
            let loss = listener.join().unwrap();
            assert_eq!(loss.cause, LossCause::Gone);
            assert_eq!(loss.visitor, *guard.visitor());
        }
    });
    // It was taken everywhere, and is there once more; nobody takes it for a good end.
    for losses in [&losses, &again, &its_own, &guard.lost()] {
        assert!(!losses.is_valid());
        assert_eq!(losses.recv().unwrap().cause, LossCause::Gone);
        assert!(selected(losses).is_ok() && selected(losses).is_ok());
        assert_eq!(losses.try_recv().unwrap().cause, LossCause::Gone);
    }
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(losses.recv().is_ok() && selected(&losses).is_ok());
}

fn a_channel_that_outlives_its_losses_tells_no_good_end(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let guard = lock.guard().unwrap();
    let channel = guard.lost().as_receiver().clone();
    assert_eq!(channel.recv().unwrap().cause, LossCause::Unheard);
    guard.unlock().unwrap();
}

fn a_loss_found_by_the_unlock_is_told_like_any_other(backend: &Backend) {
    let (sender, told) = mpsc::channel();
    let client = backend.client_with(Settings::default().on_lost(move |loss| {
        sender.send(loss.clone()).unwrap();
    }));
    let guard = client.lock("orders").guard().unwrap();
    let lost = guard.lost();
    // The next renewal is ten seconds away.
    assert!(backend.client().lock("orders").force_unlock().unwrap());
    let error = guard.unlock().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(lost.recv_timeout(SLACK).unwrap().cause, LossCause::Gone);
    assert_eq!(told.recv_timeout(SLACK).unwrap().cause, LossCause::Gone);
}

fn a_shutdown_ends_every_wait_and_lets_holders_unlock(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    let lost = lock.lost().unwrap();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..20).map(|_| scope.spawn(|| lock.lock())).collect();
        thread::sleep(ms(200));
        let start = Instant::now();
        client.shutdown();
        for waiter in waiting {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Closed { .. }), "{error}");
        }
        assert!(start.elapsed() < SLACK);
    });
    assert_eq!(lost.try_recv().unwrap().cause, LossCause::Closed);
    assert!(lock.is_valid(), "its lease has not ended");
    lock.unlock().unwrap();
    assert!(!backend.client().lock("orders").is_locked().unwrap());
    assert!(matches!(lock.try_lock(), Err(Error::Closed { .. })));
    client.shutdown();
}

fn dropping_the_last_handle_joins_the_threads(backend: &Backend) {
    let alive = Arc::new(());
    let hook = Arc::clone(&alive);
    let client = backend.client_with(Settings::default().on_lost(move |_| {
        let _ = &hook;
    }));
    let lock = client.lock("orders");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    drop(client);
    if !backend.is_one_process() {
        assert!(
            Arc::strong_count(&alive) > 1,
            "the lock keeps the client alive"
        );
        drop(lock);
        assert_eq!(Arc::strong_count(&alive), 1, "all threads have ended");
    }
}

fn what_a_dead_client_held_is_free_after_its_lease(backend: &Backend) {
    let client = backend.client();
    client.lock("orders").lock().unwrap();
    client.shutdown();
    let other = backend.client().lock("orders");
    assert!(!other.try_lock().unwrap());
    assert!(other.try_lock_for(LEASE + SLACK).unwrap());
    other.unlock().unwrap();
}

fn bad_input_is_refused_and_leaves_nothing(backend: &Backend) {
    let client = backend.client();
    let long = "x".repeat(513);
    for name in ["", long.as_str(), "a\nb", "a\u{7f}b", "x{y", "p}q", "x{}y"] {
        let lock = client.lock(name);
        let error = lock.lock().unwrap_err();
        assert!(
            matches!(error, Error::InvalidName { .. }),
            "{name:?}: {error}"
        );
        assert!(matches!(lock.unlock(), Err(Error::InvalidName { .. })));
        assert!(matches!(lock.is_locked(), Err(Error::InvalidName { .. })));
        assert!(matches!(
            lock.force_unlock(),
            Err(Error::InvalidName { .. })
        ));
        assert!(matches!(lock.hold_count(), Err(Error::InvalidName { .. })));
    }
    let lock = client.lock("orders");
    let day = Duration::from_secs(24 * 60 * 60);
    for lease in [Duration::ZERO, ms(9), day * 366, Duration::MAX] {
        let error = lock.with_lease_time(lease).lock().unwrap_err();
        assert!(matches!(error, Error::InvalidLease { .. }), "{error}");
        assert!(error.to_string().contains("orders"), "{error}");
    }
    for wait in [Duration::MAX, Duration::from_secs(u64::MAX)] {
        let error = lock.try_lock_for(wait).unwrap_err();
        assert!(matches!(error, Error::InvalidWait { .. }), "{error}");
    }
    assert!(!lock.is_locked().unwrap());
    for lease in [ms(10), day * 365] {
        lock.with_lease_time(lease).lock().unwrap();
        lock.force_unlock().unwrap();
    }
    for builder in [
        Client::builder().watchdog_timeout(Duration::ZERO),
        Client::builder().watchdog_timeout(Duration::MAX),
        Client::builder().command_timeout(Duration::ZERO),
        Client::builder().command_timeout(Duration::MAX),
        Client::builder().connect_timeout(Duration::ZERO),
        Client::builder().outage_timeout(Duration::MAX),
        Client::builder().pool_size(0),
        Client::builder().pool_size(u32::MAX),
    ] {
        let error = builder.in_memory().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    }
}

/// Lets every thread of `locks` run its critical section `rounds` times, and finds two of them inside at once.
fn hammer(locks: Vec<Lock>, rounds: u32, enter: impl Fn(&Lock) + Sync) {
    let inside = AtomicBool::new(false);
    let sum = AtomicI64::new(0);
    let barrier = Barrier::new(locks.len());
    let expected = i64::from(rounds) * i64::try_from(locks.len()).unwrap();
    thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..rounds {
                    enter(lock);
                    assert!(!inside.swap(true, Ordering::SeqCst), "two at once");
                    let seen = sum.load(Ordering::SeqCst);
                    thread::yield_now();
                    sum.store(seen + 1, Ordering::SeqCst);
                    assert!(inside.swap(false, Ordering::SeqCst));
                    lock.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(sum.load(Ordering::SeqCst), expected);
    assert!(!locks[0].is_locked().unwrap());
}

fn many_threads_never_overlap(backend: &Backend) {
    // The watchdog's lease is the default one: on a busy machine 64 threads take their time.
    let client = backend.client_with(Settings::default());
    // A quorum hands nothing over within the process, so each round costs all of them a race.
    let rounds = if backend.is_slow() { 40 } else { 200 };
    hammer(vec![client.lock("orders"); 64], rounds, |lock| {
        lock.lock().unwrap()
    });
}

fn many_clients_never_overlap(backend: &Backend) {
    let clients: Vec<_> = (0..16)
        .map(|_| backend.client_with(Settings::default()))
        .collect();
    let locks = clients.iter().map(|client| client.lock("orders")).collect();
    hammer(locks, 50, |lock| lock.lock().unwrap());
}

fn many_threads_that_only_try_never_overlap(backend: &Backend) {
    let client = backend.client_with(Settings::default());
    hammer(vec![client.lock("orders"); 16], 50, |lock| {
        while !lock.try_lock().unwrap() {
            thread::yield_now();
        }
    });
}

fn many_threads_on_a_few_names_all_get_through(backend: &Backend) {
    let client = backend.client_with(Settings::default());
    let names = ["a", "b", "c", "d", "e"];
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        for thread in 0..32 {
            let (client, done) = (&client, &done);
            scope.spawn(move || {
                for round in 0..40 {
                    let lock = client.lock(names[(thread + round) % names.len()]);
                    assert!(lock.try_lock_for(Duration::from_secs(60)).unwrap());
                    lock.unlock().unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 32 * 40);
    for name in names {
        assert!(!client.lock(name).is_locked().unwrap());
    }
}

fn an_interrupted_try_is_not_renewed(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    for _ in 0..20 {
        let interrupt = Interrupt::new();
        elsewhere(|| {
            thread::scope(|scope| {
                scope.spawn(|| interrupt.raise());
                // It may win or be interrupted; in neither case does anything outlive it.
                match lock.try_lock_for_interruptibly(ms(500), &interrupt) {
                    Ok(true) => lock.unlock().unwrap(),
                    Ok(false) => panic!("nobody else wants it"),
                    Err(error) => assert!(matches!(error, Error::Interrupted { .. }), "{error}"),
                }
            });
        });
        assert!(!lock.is_locked().unwrap());
    }
}

// Redisson's tests of RLock, and where their meaning stands here:
//
// testSubscriptionsPerConnection, testSinglePubSub        many_threads_on_a_few_names_all_get_through
// testLockIsNotRenewedAfterInterruptedTryLock             an_interrupted_try_is_not_renewed
// testRedisFailed                                         faults/transport  
// testRemainTimeToLive, testRemainTimeToLive2             the_remaining_lease_is_told
// testTryLockWait                                         a_wait_ends_between_its_time_and_the_slack
// testLockUninterruptibly                                 lock() takes no Interrupt
// testForceUnlock                                         a_force_unlock_tells_…
// testExpire                                              a_fixed_lease_is_not_renewed_and_ends
// testAutoExpire                                          what_a_dead_client_held_is_free_after_its_lease
// testGetHoldCount, testReentrancy                        re_enters_and_counts
// testIsHeldByCurrentThread(OtherThread)                  counts_are_per_thread
// testIsLocked(OtherThread)                               excludes_other_threads_and_other_clients
// testUnlockFail                                          a_foreign_unlock_is_refused
// testLockUnlock                                          locks_and_unlocks_twice_in_a_row
// testConcurrencyTryLockUnLock                            many_threads_that_only_try_never_overlap
// testConcurrency_SingleInstance                          many_threads_never_overlap
// testConcurrency(Loop)_MultiInstance                     many_clients_never_overlap
// testLockListener                                        the_loss_arrives_on_the_channel_and_at_the_hook
// testInCluster, testLockFailoverInCluster                tests/topologies
// testLockAfterTimeout                                    locking_after_a_loss_is_a_fresh_hold
// testLockReentrantRenew                                  a_nested_hold_is_renewed_until_its_last_unlock
