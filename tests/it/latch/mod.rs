//! The laws of the count-down latch, on every store that has it.
//!
//! They cover Redisson's tests of `RCountDownLatch`; the list is at the end of this file.

mod faults;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Error, Interrupt, Latch};

use crate::backends::{Backend, Source};
use crate::invariants::SLACK;
use crate::support::{ms, timed};

/// A message wakes a waiter faster than this; without one it polls after a second.
const WAKE_UP: Duration = ms(700);

/// The latch in two processes.
fn latches(backend: &Backend) -> [Latch; 2] {
    [(); 2].map(|()| match backend.client() {
        Source::Client(client, _) => client.latch("import"),
        _ => panic!("this store has no latches"),
    })
}

/// Lets threads of both sides wait, calls `open`, and returns when they continued, relative to that.
fn woken(latches: &[Latch; 2], threads: usize, open: impl FnOnce()) -> Vec<Duration> {
    let (sender, through) = mpsc::channel();
    thread::scope(|scope| {
        for latch in latches.iter().cycle().take(threads) {
            let sender = sender.clone();
            scope.spawn(move || {
                latch.wait().unwrap();
                sender.send(Instant::now()).unwrap();
            });
        }
        drop(sender);
        // Long enough for all to subscribe, and for the query after the subscription.
        assert!(through.recv_timeout(ms(400)).is_err(), "it is shut");
        let opened = Instant::now();
        open();
        through.iter().map(|at| at.duration_since(opened)).collect()
    })
}

fn opens_for_all_at_once(backend: &Backend) {
    let latches = latches(backend);
    let [one, two] = &latches;
    assert!(one.try_set(2).unwrap());
    let woken = woken(&latches, 10, || {
        assert_eq!(two.count_down().unwrap(), 1);
        assert_eq!(one.count_down().unwrap(), 0);
    });
    assert_eq!(woken.len(), 10);
    assert!(woken.iter().all(|took| *took < WAKE_UP), "{woken:?}");
    assert_eq!(two.count().unwrap(), 0);
}

fn a_closed_latch_blocks_every_waiter(backend: &Backend) {
    let [one, two] = latches(backend);
    assert!(one.try_set(2).unwrap());
    one.count_down().unwrap();
    let (took, is_open) = timed(|| two.wait_for(ms(300)).unwrap());
    assert!(!is_open);
    assert!(took >= ms(300) && took < ms(300) + SLACK, "{took:?}");
    assert!(!two.wait_for(Duration::ZERO).unwrap());
    two.count_down().unwrap();
    assert!(one.wait_for(Duration::ZERO).unwrap());
}

fn counting_below_zero_changes_nothing(backend: &Backend) {
    let [one, two] = latches(backend);
    assert!(one.try_set(1).unwrap());
    for _ in 0..3 {
        assert_eq!(one.count_down().unwrap(), 0);
        assert_eq!(two.count().unwrap(), 0);
    }
    two.wait().unwrap();
    // No leftovers of the latch either.
    assert!(two.try_set(1).unwrap());
    assert_eq!(one.count().unwrap(), 1);
}

fn delete_opens(backend: &Backend) {
    let latches = latches(backend);
    let [one, two] = &latches;
    assert!(!one.delete().unwrap(), "there is none");
    assert!(one.try_set(5).unwrap());
    let woken = woken(&latches, 4, || assert!(two.delete().unwrap()));
    assert!(woken.iter().all(|took| *took < WAKE_UP), "{woken:?}");
    assert!(!two.delete().unwrap());
}

fn set_only_if_missing(backend: &Backend) {
    let [one, two] = latches(backend);
    assert_eq!(one.count().unwrap(), 0);
    assert!(one.try_set(2).unwrap());
    assert!(!one.try_set(3).unwrap() && !two.try_set(3).unwrap());
    assert_eq!(two.count().unwrap(), 2);
    one.count_down().unwrap();
    one.count_down().unwrap();
    assert!(two.try_set(3).unwrap());
    assert_eq!(one.count().unwrap(), 3);
}

fn an_unset_latch_is_open(backend: &Backend) {
    let [one, _] = latches(backend);
    one.wait().unwrap();
    assert!(one.wait_for(ms(1)).unwrap());
    assert_eq!(one.count().unwrap(), 0);
}

fn an_interrupt_and_a_shutdown_end_the_wait(backend: &Backend) {
    let [one, _] = latches(backend);
    assert!(one.try_set(1).unwrap());
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let waits = scope.spawn(|| one.wait_interruptibly(&interrupt));
        thread::sleep(ms(100));
        interrupt.raise();
        let ended = waits.join().unwrap();
        assert!(matches!(ended, Err(Error::Interrupted { .. })), "{ended:?}");
    });
    let Source::Client(client, _) = backend.client() else {
        panic!("this store has no latches");
    };
    let latch = client.latch("import");
    thread::scope(|scope| {
        let waits = scope.spawn(|| latch.wait());
        thread::sleep(ms(100));
        client.shutdown();
        let ended = waits.join().unwrap();
        assert!(matches!(ended, Err(Error::Closed { .. })), "{ended:?}");
    });
}

fn bad_input_is_refused_and_changes_nothing(backend: &Backend) {
    let Source::Client(client, _) = backend.client() else {
        panic!("this store has no latches");
    };
    let latch = client.latch("import");
    for count in [0, 2_147_483_648, u32::MAX] {
        match latch.try_set(count) {
            Err(Error::InvalidPermits { name, permits, .. }) => {
                assert_eq!(*name, *latch.name());
                assert_eq!(permits, i64::from(count));
            }
            other => panic!("{count}: {other:?}"),
        }
    }
    assert!(latch.try_set(2_147_483_647).unwrap(), "nothing was set");
    assert_eq!(latch.count().unwrap(), 2_147_483_647);
    assert!(matches!(
        latch.wait_for(Duration::MAX),
        Err(Error::InvalidWait { .. })
    ));
    for name in ["", "{shop}:import", "a}b", "a\nb"] {
        let latch = client.latch(name);
        for error in [
            latch.try_set(1).unwrap_err(),
            latch.count_down().unwrap_err(),
            latch.count().unwrap_err(),
            latch.wait().unwrap_err(),
            latch.delete().unwrap_err(),
        ] {
            assert!(
                matches!(error, Error::InvalidName { .. }),
                "{name}: {error}"
            );
        }
    }
}

fn a_lock_of_the_same_name_is_no_latch(backend: &Backend) {
    let Source::Client(client, _) = backend.client() else {
        panic!("this store has no latches");
    };
    let (lock, latch) = (client.lock("import"), client.latch("import"));
    lock.lock().unwrap();
    for error in [
        latch.try_set(1).unwrap_err(),
        latch.count_down().unwrap_err(),
        latch.wait().unwrap_err(),
    ] {
        assert!(matches!(error, Error::WrongType { .. }), "{error}");
    }
    lock.unlock().unwrap();
    assert!(latch.try_set(1).unwrap());
    let error = lock.try_lock().unwrap_err();
    assert!(matches!(error, Error::WrongType { .. }), "{error}");
    assert_eq!(latch.count().unwrap(), 1);
}

laws! {
    kind {
        opens_for_all_at_once
        a_closed_latch_blocks_every_waiter
        counting_below_zero_changes_nothing
        delete_opens
        set_only_if_missing
        an_unset_latch_is_open
        an_interrupt_and_a_shutdown_end_the_wait
        bad_input_is_refused_and_changes_nothing
        a_lock_of_the_same_name_is_no_latch
    }
}

#[cfg(feature = "test-util")]
#[test]
fn a_lost_reply_is_reported() {
    use redlatch::testing::Controls;

    let client = redlatch::Client::in_memory();
    let latch = client.latch("import");
    latch.try_set(3).unwrap();
    Controls::of(&client).lose_answers(1);
    let error = latch.count_down().unwrap_err();
    assert!(error.is_ambiguous() && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("count-down"), "{error}");
    assert_eq!(latch.count().unwrap(), 2);
    Controls::of(&client).lose_answers(1);
    let error = latch.count().unwrap_err();
    assert!(!error.is_ambiguous() && error.is_retryable(), "{error}");
    // A waiter that misses the message polls.
    thread::scope(|scope| {
        let waits = scope.spawn(|| timed(|| latch.wait().unwrap()).0);
        thread::sleep(ms(200));
        Controls::of(&client).lose_messages(1);
        latch.delete().unwrap();
        assert!(waits.join().unwrap() < ms(1300) + SLACK);
    });
}

// Redisson's tests of RCountDownLatch, and where their meaning stands here:
//
// testAwaitTimeout, testAwaitTimeoutFail       a_closed_latch_blocks_every_waiter
// testMultiAwait, testSingleCountDownAwait_…   opens_for_all_at_once
// testOnZeroMessageAllListenersExecuted        opens_for_all_at_once
// testCountDown                                counting_below_zero_changes_nothing
// testDelete, testDeleteFailed                 delete_opens
// testTrySetCount, testCount                   set_only_if_missing
