//! Fairness between waiting readers and writers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use redlatch::ReadWriteLock;

use super::{WAKE_UP, client, is_free, locks};
use crate::backends::Backend;
use crate::invariants::SLACK;
use crate::support::{elsewhere, ms, timed};

/// Runs `work` while this many threads of both processes acquire a side for `hold` each time, without a pause.
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
        // Its thread has ended, and so has its hold.
        lock.write().force_unlock().unwrap();
    }
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

fn a_reader_leaves_the_lock_to_a_waiting_writer(backend: &Backend) {
    let both = locks(backend);
    let reading = both[0].read().guard().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| both[1].write().try_lock_for(ms(3000)).unwrap());
        thread::sleep(ms(1000));
        for lock in &both {
            assert!(!is_free(&lock.read()), "it is the writer's turn");
            assert!(is_free(&lock.prefer_readers().read()), "whoever waits");
        }
        // Never a re-entry.
        both[0].read().lock().unwrap();
        both[0].read().unlock().unwrap();
        assert!(!waits.join().unwrap());
    });
    // The writer has given up, and readers enter again at once.
    let (took, ()) = timed(|| elsewhere(|| both[0].read().run(|_| ()).unwrap()));
    assert!(took < WAKE_UP, "{took:?}");
    reading.unlock().unwrap();
}

fn refused_readers_follow_a_single_writer(backend: &Backend) {
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
        // Another writer waits, after the first one.
        let second = scope.spawn(|| both[0].write().run(|_| thread::sleep(ms(900))).unwrap());
        let took = reads.join().unwrap();
        assert!(took < ms(300) + WAKE_UP, "{took:?}");
        first.join().unwrap();
        second.join().unwrap();
    });
}

fn writers_come_by_arrival_over_clients(backend: &Backend) {
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

laws! {
    kind {
        writers_come_by_arrival_over_clients
        a_writer_is_not_starved
        a_reader_is_not_starved
        a_reader_leaves_the_lock_to_a_waiting_writer
        refused_readers_follow_a_single_writer
    }
}
