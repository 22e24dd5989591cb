//! Properties of the semaphore with ids beyond the laws of both.

use std::thread;
use std::time::Duration;

use redlatch::{Error, LossCause, PermitId, PermitSemaphore};

use super::{WAKE_UP, client, none, semaphore_laws, semaphores, woken};
use crate::backends::{Backend, LEASE};
use crate::invariants::SLACK;
use crate::support::{eventually, ms, timed};

fn any_client_can_release_an_id(backend: &Backend) {
    let [one, two] = semaphores::<PermitSemaphore>(backend, 2);
    let id = one.acquire_id(None).unwrap();
    assert_eq!(one.lease_of(&id).unwrap(), Some(Duration::MAX));
    assert_eq!((two.available().unwrap(), two.acquired().unwrap()), (1, 1));
    let told = PermitId::parse(&id.to_string().to_ascii_uppercase()).unwrap();
    assert_eq!(told, id);
    // The id is unknown to another semaphore.
    let other = client(backend).permit_semaphore("letters");
    assert!(other.try_set(1).unwrap());
    assert!(!other.release_id(&id).unwrap() && other.lease_of(&id).unwrap().is_none());
    assert!(two.release_id(&told).unwrap());
    assert!(!one.release_id(&id).unwrap(), "a release twice gives once");
    assert_eq!((one.available().unwrap(), one.acquired().unwrap()), (2, 0));
    // It wakes the waiters.
    let both = [one, two];
    let ids = [(); 2].map(|()| both[0].acquire_id(None).unwrap());
    let took = woken(&both, 2, 1, || {
        ids.iter()
            .for_each(|id| assert!(both[1].release_id(id).unwrap()));
    });
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
}

fn an_id_ends_with_its_lease(backend: &Backend) {
    let [one, two] = semaphores::<PermitSemaphore>(backend, 1);
    let id = one.acquire_id(Some(LEASE)).unwrap();
    assert!(two.try_acquire_id_for(None, ms(0)).unwrap().is_none());
    let left = two.lease_of(&id).unwrap().unwrap();
    assert!(left > LEASE / 2 && left <= LEASE, "{left:?}");
    let (took, next) = timed(|| two.acquire_id(Some(Duration::from_secs(60))).unwrap());
    assert!(took < LEASE + ms(1100) + SLACK, "{took:?}");
    assert!(!one.release_id(&id).unwrap() && !one.set_lease(&id, None).unwrap());
    assert_eq!(one.acquired().unwrap(), 1);
    // A new lease ends it earlier.
    assert!(one.set_lease(&next, Some(ms(50))).unwrap());
    thread::sleep(ms(100));
    assert_eq!((one.available().unwrap(), one.acquired().unwrap()), (1, 0));
    assert!(one.lease_of(&next).unwrap().is_none());
    // Or later.
    let id = one.acquire_id(Some(ms(300))).unwrap();
    assert!(two.set_lease(&id, None).unwrap());
    thread::sleep(ms(400));
    none(two.try_acquire(1).unwrap());
    assert!(two.release_id(&id).unwrap());
}

fn a_permit_released_by_another_client_is_lost(backend: &Backend) {
    let [one, two] = semaphores::<PermitSemaphore>(backend, 3);
    let taken = one.acquire(2).unwrap();
    let ids = taken.ids();
    assert!(two.release_id(&ids[0]).unwrap());
    let loss = taken.lost().recv_timeout(LEASE + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::Gone);
    assert!(taken.release().unwrap_err().is_lost());
    // The other permit ends with its lease, or is released by its id.
    two.release_id(&ids[1]).unwrap();
    assert_eq!(two.available().unwrap(), 3);
}

fn forgotten_permits_end_with_their_leases(backend: &Backend) {
    let [one, two] = semaphores::<PermitSemaphore>(backend, 2);
    let taken = one.with_lease_time(LEASE).acquire(2).unwrap();
    let ids = taken.ids();
    taken.forget().unwrap();
    assert!(two.release_id(&ids[1]).unwrap());
    assert_eq!(two.available().unwrap(), 1);
    thread::sleep(LEASE + ms(100));
    assert_eq!(two.available().unwrap(), 2);
    assert!(!two.release_id(&ids[0]).unwrap());
}

fn the_number_of_permits_can_be_set_again(backend: &Backend) {
    let [one, two] = semaphores::<PermitSemaphore>(backend, 3);
    let taken = one.acquire(2).unwrap();
    two.set(5).unwrap();
    assert_eq!(one.available().unwrap(), 3);
    two.set(1).unwrap();
    assert_eq!(one.available().unwrap(), -1);
    taken.release().unwrap();
    assert_eq!(one.available().unwrap(), 1);
    assert!(two.delete().unwrap());
    two.set(2).unwrap();
    assert_eq!(one.available().unwrap(), 2);
}

fn an_id_ends_with_its_semaphore(backend: &Backend) {
    let [one, two] = [(); 2].map(|()| client(backend).permit_semaphore("mail"));
    assert!(one.try_set_for(2, ms(600)).unwrap());
    let id = one.acquire_id(None).unwrap();
    assert!(two.set_lease(&id, Some(Duration::from_secs(60))).unwrap());
    let left = two.lease_of(&id).unwrap().unwrap();
    assert!(left <= ms(600), "{left:?}");
    eventually(SLACK, "the semaphore ends", || two.try_set(2).unwrap());
    assert!(!two.release_id(&id).unwrap() && two.lease_of(&id).unwrap().is_none());
}

fn bad_ids_and_numbers_are_refused(backend: &Backend) {
    let [one, _] = semaphores::<PermitSemaphore>(backend, 2_000);
    for error in [
        one.acquire(1_001).unwrap_err(),
        one.set(u32::MAX).unwrap_err(),
    ] {
        assert!(matches!(error, Error::InvalidPermits { .. }), "{error}");
    }
    let taken = one.try_acquire(1_000).unwrap().unwrap();
    assert_eq!(taken.ids().len(), 1_000);
    let id = PermitId::parse(&"0f".repeat(16)).unwrap();
    for lease in [Duration::ZERO, Duration::MAX] {
        for error in [
            one.acquire_id(Some(lease)).unwrap_err(),
            one.set_lease(&id, Some(lease)).unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidLease { .. }), "{error}");
        }
    }
    assert!(!one.set_lease(&id, None).unwrap());
    for text in ["", "0f", &"0g".repeat(16), &"0f".repeat(17)] {
        assert!(PermitId::parse(text).is_none(), "{text}");
    }
}

semaphore_laws! {
    any_client_can_release_an_id
    an_id_ends_with_its_lease
    a_permit_released_by_another_client_is_lost
    forgotten_permits_end_with_their_leases
    the_number_of_permits_can_be_set_again
    an_id_ends_with_its_semaphore
    bad_ids_and_numbers_are_refused
}
