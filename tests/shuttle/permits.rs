//! Permits to use connections, which go round among more threads than there are of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use shuttle::thread;

use super::connection_limit::ConnectionLimit;
use crate::ground::sync;
use crate::{explore, finds};

const SIZE: u32 = 2;

/// Patient threads must all get one, whatever impatient ones do between them, and never are there more than so many.
fn patient_and_impatient() {
    let limit = Arc::new(ConnectionLimit::new(SIZE));
    let taken = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = [true, true, true, false, false]
        .into_iter()
        .enumerate()
        .map(|(rank, is_patient)| {
            let (limit, taken) = (Arc::clone(&limit), Arc::clone(&taken));
            thread::spawn(move || {
                for _ in 0..2 {
                    let deadline = match is_patient {
                        true => sync::far(rank as u64),
                        false => sync::near(),
                    };
                    let permit = limit.take(deadline);
                    assert!(permit.is_ok() || !is_patient);
                    if permit.is_ok() {
                        assert!(taken.fetch_add(1, Ordering::Relaxed) < SIZE);
                        thread::yield_now();
                        taken.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let all = [(); SIZE as usize].map(|()| limit.take(sync::near()));
    assert!(all.iter().all(Result::is_ok), "none is lost");
    assert!(
        limit.take(sync::near()).is_err(),
        "and none is one too many"
    );
}

/// The end reaches those who wait, among permits that come back.
fn everybody_ends() {
    let limit = Arc::new(ConnectionLimit::new(1));
    let threads: Vec<_> = (0..3)
        .map(|rank| {
            let limit = Arc::clone(&limit);
            thread::spawn(move || {
                let permit = limit.take(sync::far(rank));
                assert!(permit.is_ok());
                thread::yield_now();
                if rank == 0 {
                    // One that never comes back.
                    std::mem::forget(permit);
                    limit.close();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn no_permit_is_lost_and_nobody_waits_beside_a_free_one() {
    explore(patient_and_impatient);
    finds("a free permit is kept quiet", patient_and_impatient);
}

#[test]
fn the_end_reaches_all_who_wait_for_a_permit() {
    explore(everybody_ends);
}
