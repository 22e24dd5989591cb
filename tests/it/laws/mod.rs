//! The laws of the lock, each stated once and run on every store; the laws of re-entry not on token locks.
//!
//! They cover Redisson's tests of `RLock`; the list is at the end of this file.
#![allow(clippy::unwrap_used, reason = "a law that cannot be tried is broken")]

mod clients;
mod exclusion;
mod fences;
mod guarded;
mod holding;
mod leases;
mod losses;
mod operators;
mod owned;
mod spins;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvError;
use redlatch::{
    Builder, Client, Error, Interrupt, Lock, Loss, LossCause, Losses, NoLoss, RunError,
    current_thread_id,
};

use clients::*;
use exclusion::*;
use guarded::*;
use holding::*;
use leases::*;
use losses::*;
use waiting::*;

use crate::backends::{Backend, LEASE};
use crate::support::{elsewhere, eventually, ms};

type Hook = Box<dyn Fn(&Loss) + Send + Sync>;

/// The settings that laws need, under whatever name the backend has for them.
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
        // A server on a busy machine replies late, which is not what laws test.
        let mut builder = Client::builder()
            .command_timeout(Duration::from_secs(10))
            .connect_timeout(Duration::from_secs(5));
        if let Some(timeout) = self.watchdog_timeout {
            builder = builder.watchdog_timeout(timeout);
        }
        match self.on_lost {
            Some(hook) => builder.on_lost(hook),
            None => builder,
        }
    }
}

/// The slack of a busy machine.
const SLACK: Duration = ms(2500);

// A macro of the test binary, which lists the backends.
laws! {
    every {
        locks_and_unlocks_twice_in_a_row
        excludes_other_threads_and_other_clients
        a_wait_ends_between_its_timeout_and_the_slack
        an_unlock_wakes_a_waiter_of_another_client
        an_unlock_wakes_a_waiter_of_the_same_client
        an_interrupt_ends_the_wait_and_leaves_nothing
        an_interrupt_wakes_a_sleeper
        an_interrupt_that_was_raised_before_ends_the_wait_at_once
        a_guard_can_be_waited_for_interruptibly
        the_watchdog_renews_past_the_lease
        an_unlocked_lock_is_not_renewed
        a_fixed_lease_is_not_renewed_and_ends
        the_end_of_a_fixed_lease_is_reported
        a_foreign_unlock_is_refused
        a_force_unlock_notifies_the_old_holder
        a_force_unlock_notifies_the_holder_of_another_client
        a_guard_unlocks_when_its_thread_panics
        a_guard_unlocked_by_hand_reports_no_loss
        run_keeps_the_value_when_the_hold_is_lost
        run_unlocks_on_return_error_and_panic
        try_run_for_gives_up
        the_end_of_a_thread_ends_the_renewal
        a_forgotten_guard_is_renewed_until_its_thread_ends
        the_loss_arrives_on_the_channel_and_at_the_hook
        a_panic_in_the_hook_is_contained
        the_loss_channel_closes_after_an_unlock
        a_loss_is_reported_to_every_receiver
        a_receiver_that_outlives_its_guard_reports_unheard
        a_loss_found_by_the_unlock_is_reported
        a_shutdown_ends_every_wait_and_lets_holders_unlock
        dropping_the_last_handle_joins_the_threads
        a_lock_of_a_dead_client_is_free_after_its_lease
        many_threads_never_overlap
        many_clients_never_overlap
        many_threads_that_only_try_lock_never_overlap
        many_threads_on_few_names_all_acquire
        an_interrupted_try_is_not_renewed
    }
    reentrant {
        re_enters_and_counts
        a_nested_hold_is_renewed_until_its_last_unlock
        a_shorter_inner_lease_does_not_shorten_the_outer
        a_longer_inner_lease_ends_with_its_unlock
        a_long_level_counts_behind_a_short_one
        locking_after_a_loss_is_a_fresh_hold
        a_forced_unlock_notifies_a_fixed_lease_at_once
        a_stale_guard_cannot_release_a_newer_hold
        guards_may_be_dropped_in_any_order
        an_unlock_by_hand_leaves_the_levels_of_guards
        counts_are_per_thread
        the_remaining_lease_is_reported
        bad_input_is_refused_and_leaves_nothing
    }
    with_data {
        a_write_runs_while_the_lock_is_held
        a_write_without_the_lock_is_refused
        a_write_under_a_lost_lock_reports_the_loss
        the_first_command_that_fails_is_named
    }
    without_data {
        a_store_without_data_refuses_guarded_writes
    }
}

/// Waits until this many threads wait for the lock through its client.
#[track_caller]
pub(crate) fn until_queued(lock: &Lock, threads: usize) {
    #[cfg(feature = "test-util")]
    eventually(ms(5000), "they wait", || {
        redlatch::testing::queue_length(lock) == threads
    });
    #[cfg(not(feature = "test-util"))]
    {
        // A store without controls cannot be queried.
        let _ = (lock, threads);
        thread::sleep(ms(200));
    }
}

// Redisson's tests of RLock, and where their meaning stands here:
//
// testSubscriptionsPerConnection, testSinglePubSub        many_threads_on_few_names_all_acquire
// testLockIsNotRenewedAfterInterruptedTryLock             an_interrupted_try_is_not_renewed
// testRedisFailed                                         faults/transport
// testRemainTimeToLive, testRemainTimeToLive2             the_remaining_lease_is_reported
// testTryLockWait                                         a_wait_ends_between_its_timeout_and_the_slack
// testLockUninterruptibly                                 lock() takes no Interrupt
// testForceUnlock                                         a_force_unlock_tells_…
// testExpire                                              a_fixed_lease_is_not_renewed_and_ends
// testAutoExpire                                          a_lock_of_a_dead_client_is_free_after_its_lease
// testGetHoldCount, testReentrancy                        re_enters_and_counts
// testIsHeldByCurrentThread(OtherThread)                  counts_are_per_thread
// testIsLocked(OtherThread)                               excludes_other_threads_and_other_clients
// testUnlockFail                                          a_foreign_unlock_is_refused
// testLockUnlock                                          locks_and_unlocks_twice_in_a_row
// testConcurrencyTryLockUnLock                            many_threads_that_only_try_lock_never_overlap
// testConcurrency_SingleInstance                          many_threads_never_overlap
// testConcurrency(Loop)_MultiInstance                     many_clients_never_overlap
// testLockListener                                        the_loss_arrives_on_the_channel_and_at_the_hook
// testInCluster, testLockFailoverInCluster                tests/topologies
// testLockAfterTimeout                                    locking_after_a_loss_is_a_fresh_hold
// testLockReentrantRenew                                  a_nested_hold_is_renewed_until_its_last_unlock
