//! Properties of the semaphore without ids beyond the laws of both.

use std::thread;

use redlatch::{Error, Semaphore};

use super::{none, semaphore_laws, semaphores};
use crate::backends::{Backend, LEASE};
use crate::support::ms;

fn a_drain_ends_a_reduction(backend: &Backend) {
    let [one, two] = semaphores::<Semaphore>(backend, 3);
    let taken = one.acquire(3).unwrap();
    two.add_permits(-2).unwrap();
    // As in `java.util.concurrent`: draining sets a negative count to zero.
    assert_eq!(two.drain().unwrap(), -2);
    taken.release().unwrap();
    assert_eq!(one.available().unwrap(), 3);
}

fn forgotten_permits_can_be_released_by_any_client(backend: &Backend) {
    let [one, two] = semaphores::<Semaphore>(backend, 2);
    let short = one.with_lease_time(LEASE);
    let taken = short.acquire(2).unwrap();
    taken.forget().unwrap();
    assert_eq!(two.available().unwrap(), 0);
    thread::sleep(LEASE + ms(100));
    none(two.try_acquire(1).unwrap());
    two.add_permits(2).unwrap();
    assert_eq!(one.available().unwrap(), 2);
    // Lost permits belong to no thread.
    let taken = one.acquire(1).unwrap();
    assert!(two.delete().unwrap());
    assert!(taken.forget().unwrap_err().is_lost());
}

fn drained_permits_have_no_owner(backend: &Backend) {
    let [one, two] = semaphores::<Semaphore>(backend, 4);
    let taken = one.acquire(1).unwrap();
    assert_eq!(two.drain().unwrap(), 3);
    assert_eq!(two.drain().unwrap(), 0);
    none(one.try_acquire(1).unwrap());
    taken.release().unwrap();
    assert_eq!(one.available().unwrap(), 1);
    two.add_permits(3).unwrap();
    assert_eq!(one.available().unwrap(), 4);
}

fn permits_are_added_only_to_a_set_semaphore(backend: &Backend) {
    let [one, two] = semaphores::<Semaphore>(backend, 2_147_483_640);
    let error = one.add_permits_if_exists(8).unwrap_err();
    assert!(matches!(error, Error::InvalidPermits { .. }), "{error}");
    assert!(two.add_permits_if_exists(-1000).unwrap());
    assert_eq!(one.drain().unwrap(), 2_147_482_640);
    assert!(two.delete().unwrap());
    assert!(!two.add_permits_if_exists(1).unwrap());
    assert_eq!(one.drain().unwrap(), 0);
}

semaphore_laws! {
    a_drain_ends_a_reduction
    forgotten_permits_can_be_released_by_any_client
    drained_permits_have_no_owner
    permits_are_added_only_to_a_set_semaphore
}
