//! Whose turn it is: readers and writers that wait for each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::ReadWriteLock;

use super::{WAKE_UP, client, is_free, locks};
use crate::backends::Backend;
use crate::invariants::SLACK;
use crate::support::{elsewhere, ms, timed};

/// Runs `work` while so many threads of both processes take a side for `hold` each time, without a pause.
fn beside<T: Send>(
    both: &[ReadWriteLock; 2],
    [readers, writers]: [usize; 2],
    hold: Duration,
    work: impl FnOnce() -> T + Send,
) -> T {
    let is_over = AtomicBool::new(false);
    let sides = (0..readers + writers).map(|number| {
        let lock = &both[number % 2];
        match number < readers {
            true => lock.read(),
            false => lock.write(),
        }
    });
    thread::scope(|scope| {
        for (number, side) in sides.enumerate() {
            let is_over = &is_over;
            scope.spawn(move || {
                // So that they overlap.
                thread::sleep(ms(7) * u32::try_from(number).unwrap());
                while !is_over.load(Ordering::SeqCst) {
                    side.run(|_| thread::sleep(hold)).unwrap();
                }
            });
        }
        thread::sleep(ms(200));
        let done = work();
        is_over.store(true, Ordering::SeqCst);
        done
    })
}

fn a_writer_is_not_starved(backend: &Backend) {
    let both = locks(backend);
    for lock in &both {
        let (took, taken) = beside(&both, [6, 0], ms(30), || {
            timed(|| elsewhere(|| lock.write().try_lock_for(Duration::from_secs(10)).unwrap()))
        });
        assert!(taken && took < ms(600) + SLACK, "{took:?}");
        // Its thread is over; so is its hold.
        lock.write().force_unlock().unwrap();
    }
}

/// Its client listens already, so that it stands in line before it asks.
fn a_writer_that_comes_again_is_not_starved(backend: &Backend) {
    const TIMES: u32 = 20;
    let both = locks(backend);
    let (took, ()) = beside(&both, [6, 0], ms(5), || {
        timed(|| (0..TIMES).for_each(|_| both[0].write().run(|_| thread::sleep(ms(1))).unwrap()))
    });
    assert!(took < ms(200) * TIMES, "{took:?}");
}

fn a_reader_is_not_starved(backend: &Backend) {
    let both = locks(backend);
    for writers in [1, 3] {
        let (took, ()) = beside(&both, [0, writers], ms(20), || {
            timed(|| {
                for lock in &both {
                    lock.read().run(|_| ()).unwrap();
                }
            })
        });
        assert!(took < ms(800) + SLACK, "{took:?} beside {writers}");
    }
}

fn a_reader_leaves_the_lock_to_a_writer_that_waits(backend: &Backend) {
    let both = locks(backend);
    let reading = both[0].read().guard().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| both[1].write().try_lock_for(ms(900)).unwrap());
        thread::sleep(ms(300));
        for lock in &both {
            assert!(!is_free(&lock.read()), "it is the writer's turn");
            assert!(is_free(&lock.prefer_readers().read()), "whoever waits");
        }
        // Never a re-entry.
        both[0].read().lock().unwrap();
        both[0].read().unlock().unwrap();
        assert!(!waits.join().unwrap());
    });
    // The writer has given up, and readers come in again at once.
    let (took, ()) = timed(|| elsewhere(|| both[0].read().run(|_| ()).unwrap()));
    assert!(took < WAKE_UP, "{took:?}");
    reading.unlock().unwrap();
}

fn those_who_were_turned_away_come_behind_one_writer(backend: &Backend) {
    let both = locks(backend);
    let reading = both[0].read().guard().unwrap();
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let writing = both[1].write().guard().unwrap();
            barrier.wait();
            thread::sleep(ms(200));
            writing.unlock().unwrap();
        });
        thread::sleep(ms(300));
        let reads = scope.spawn(|| timed(|| both[1].read().run(|_| ()).unwrap()).0);
        thread::sleep(ms(100));
        reading.unlock().unwrap();
        barrier.wait();
        // Another writer waits, and is behind.
        let second = scope.spawn(|| both[0].write().run(|_| thread::sleep(ms(900))).unwrap());
        let took = reads.join().unwrap();
        assert!(took < ms(300) + WAKE_UP, "{took:?}");
        first.join().unwrap();
        second.join().unwrap();
    });
}

fn writers_come_by_arrival_over_processes(backend: &Backend) {
    let [one, _] = locks(backend);
    let reading = one.read().guard().unwrap();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..5 {
            let (lock, order) = (client(backend).read_write_lock("prices"), &order);
            let (begins, begun) = mpsc::channel();
            scope.spawn(move || {
                begins.send(()).unwrap();
                let writes = |_: &redlatch::Guard| {
                    order.lock().unwrap().push(number);
                    thread::sleep(ms(20));
                };
                lock.write().run(writes).unwrap();
            });
            begun.recv().unwrap();
            thread::sleep(ms(150));
        }
        reading.unlock().unwrap();
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4]);
}

fn one_that_only_tries_overtakes_nobody(backend: &Backend) {
    let both = locks(backend);
    let reading = both[0].read().guard().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let began = Instant::now();
            both[1].write().run(|_| thread::sleep(ms(100))).unwrap();
            began.elapsed()
        });
        thread::sleep(ms(300));
        reading.unlock().unwrap();
        // It polls, and yet comes behind the writer that waits.
        let polls = || {
            let taken = both[0].write().try_lock().unwrap();
            taken.then(|| both[0].write().unlock().unwrap()).is_some()
        };
        let began = Instant::now();
        assert!(!elsewhere(polls), "the turn of the other");
        while !elsewhere(polls) {}
        assert!(began.elapsed() >= ms(100), "before the other");
        assert!(waits.join().unwrap() < ms(400) + WAKE_UP);
    });
}

/// Writers wait for no more than those who were turned away.
#[test]
fn a_writer_comes_as_soon_as_those_who_were_turned_away_have_been_in() {
    let [one, other] = &locks(&Backend::memory());
    let mut took = [(); 21].map(|()| {
        thread::scope(|scope| {
            let writing = one.write().guard().unwrap();
            let reads = scope.spawn(|| {
                other.read().run(|_| ()).unwrap();
                Instant::now()
            });
            thread::sleep(ms(20));
            let writes = scope.spawn(|| one.write().run(|_| Instant::now()).unwrap());
            thread::sleep(ms(20));
            writing.unlock().unwrap();
            let [left, came] = [reads.join().unwrap(), writes.join().unwrap()];
            came.saturating_duration_since(left)
        })
    });
    took.sort();
    assert!(took[took.len() / 2] < ms(10), "{took:?}");
}

/// Threads that ask at once stand in one line, and none of them takes a place in the store before it is first there.
fn those_of_one_client_are_not_in_each_others_way(backend: &Backend) {
    let both = locks(backend);
    for _ in 0..4 {
        let (reading, barrier) = (both[0].read().guard().unwrap(), Barrier::new(7));
        thread::scope(|scope| {
            let waits = [0, 0, 0, 1, 1, 1].map(|process| {
                let (lock, barrier) = (&both[process], &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    lock.write().run(|_| ()).unwrap();
                })
            });
            barrier.wait();
            thread::sleep(ms(300));
            let (took, ()) = timed(|| {
                reading.unlock().unwrap();
                waits.into_iter().for_each(|wait| wait.join().unwrap());
            });
            assert!(took < ms(1500), "{took:?}");
        });
    }
}

crate::read_write::side_laws! {
    those_of_one_client_are_not_in_each_others_way
    writers_come_by_arrival_over_processes
    one_that_only_tries_overtakes_nobody
    a_writer_is_not_starved
    a_writer_that_comes_again_is_not_starved
    a_reader_is_not_starved
    a_reader_leaves_the_lock_to_a_writer_that_waits
    those_who_were_turned_away_come_behind_one_writer
}
