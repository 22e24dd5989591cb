//! Many threads and clients on one lock, and on a few.

use super::*;

/// Lets every thread of `locks` run its critical section `rounds` times, and detects two threads inside at once.
pub(super) fn hammer<H>(
    locks: Vec<Lock>,
    rounds: u32,
    enter: impl Fn(&Lock) -> H + Sync,
    leave: impl Fn(&Lock, H) + Sync,
) {
    let inside = AtomicBool::new(false);
    let sum = AtomicI64::new(0);
    let barrier = Barrier::new(locks.len());
    let expected = i64::from(rounds) * i64::try_from(locks.len()).unwrap();
    thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..rounds {
                    let held = enter(lock);
                    assert!(!inside.swap(true, Ordering::SeqCst), "two at once");
                    let seen = sum.load(Ordering::SeqCst);
                    thread::yield_now();
                    sum.store(seen + 1, Ordering::SeqCst);
                    assert!(inside.swap(false, Ordering::SeqCst));
                    leave(lock, held);
                }
            });
        }
    });
    assert_eq!(sum.load(Ordering::SeqCst), expected);
    assert!(!locks[0].is_locked().unwrap());
}

fn enter(lock: &Lock) {
    lock.lock().unwrap();
}

fn leave(lock: &Lock, (): ()) {
    lock.unlock().unwrap();
}

pub(super) fn many_threads_never_overlap(backend: &Backend) {
    // The watchdog's lease is the default, because 64 threads are slow on a busy machine.
    let client = backend.client_with(Settings::default());
    // A quorum has no hand-off within the process, so each round is a race of all threads.
    let rounds = match backend.is_slow() {
        true => 40,
        false if crate::support::is_long() => 200,
        false => 60,
    };
    hammer(vec![client.lock("orders"); 64], rounds, enter, leave);
}

pub(super) fn many_clients_never_overlap(backend: &Backend) {
    let clients: Vec<_> = (0..16)
        .map(|_| backend.client_with(Settings::default()))
        .collect();
    let locks = clients.iter().map(|client| client.lock("orders")).collect();
    hammer(locks, 50, enter, leave);
}

pub(super) fn many_threads_that_only_try_lock_never_overlap(backend: &Backend) {
    let client = backend.client_with(Settings::default());
    let enter = |lock: &Lock| {
        while !lock.try_lock().unwrap() {
            thread::yield_now();
        }
    };
    hammer(vec![client.lock("orders"); 16], 50, enter, leave);
}

pub(super) fn many_threads_on_few_names_all_acquire(backend: &Backend) {
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
