//! Requests where there is no room for one more connection.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::mpsc;

use super::*;

fn no_file() -> CallError {
    let lack = std::io::Error::from(rustix::io::Errno::MFILE);
    CallError::not_sent(lack)
}

pub(super) fn full() -> CallError {
    CallError::Server("ERR max number of clients reached".into())
}

fn hung_up(kind: std::io::ErrorKind) -> CallError {
    CallError::not_sent(std::io::Error::from(kind))
}

/// What a request finds, on the only connection, while another one has that until it is told to go on; and whether it had to
/// be told.
fn beside_another(fault: CallError, deadline: Instant) -> (Result<(), CallError>, bool) {
    let scene = Scene::plain();
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(fault);
    let ((is_lent, lent), (go_on, told)) = (mpsc::channel(), mpsc::channel());
    let pool = &scene.pool;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pool.with(soon(), |_| {
                is_lent.send(()).unwrap();
                told.recv().unwrap();
                Ok(())
            })
        });
        lent.recv().unwrap();
        let second = scope.spawn(move || pool.with(deadline, |_| Ok(())));
        let patience = Instant::now() + Duration::from_millis(200);
        while !second.is_finished() && Instant::now() < patience {
            std::thread::yield_now();
        }
        let waits = !second.is_finished();
        go_on.send(()).unwrap();
        (second.join().unwrap(), waits)
    })
}

#[test]
fn one_that_finds_no_room_for_a_connection_waits_for_one_that_is_in_use() {
    // Servers hang up for want of room where they can say no word, and before they are asked.
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let hung_up = [
        BrokenPipe,
        ConnectionAborted,
        ConnectionReset,
        UnexpectedEof,
    ]
    .map(hung_up);
    for fault in [no_file(), full()].into_iter().chain(hung_up) {
        assert_eq!(beside_another(fault, soon()), (Ok(()), true));
    }
    // It says nothing of another fault.
    let refused = CallError::not_sent(std::io::Error::from(rustix::io::Errno::CONNREFUSED));
    let found = beside_another(refused.clone(), soon());
    assert_eq!(found, (Err(refused), false));
}

#[test]
fn it_waits_no_longer_than_its_own_time() {
    let began = Instant::now();
    let found = beside_another(no_file(), began + Duration::from_millis(200));
    assert_eq!(found, (Err(no_file()), false));
    assert!(began.elapsed() >= Duration::from_millis(80));
}

#[test]
fn where_none_is_in_use_there_is_nothing_to_wait_for() {
    let scene = Scene::plain();
    // One was in use.
    assert_eq!(scene.pool.with(soon(), |_| Ok(())), Ok(()));
    drop(scene.pool.take(soon()));
    for fault in [no_file(), hung_up(std::io::ErrorKind::UnexpectedEof)] {
        *scene.way.fault.lock() = Some(fault.clone());
        let began = Instant::now();
        assert_eq!(scene.pool.with(soon(), |_| Ok(())), Err(fault));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

/// Waits until so many do.
pub(super) fn waits(scene: &Scene, count: usize) {
    let patience = soon();
    while scene.pool.room.waiting() != count {
        assert!(Instant::now() < patience, "{}", scene.pool.room.waiting());
        std::thread::yield_now();
    }
}

#[test]
fn those_who_wait_come_in_their_order_and_a_renewal_first() {
    let scene = Scene::of(8, |_| None);
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(no_file());
    let (pool, (tell, told)) = (&scene.pool, mpsc::channel());
    let in_use = pool.take(soon()).unwrap();
    std::thread::scope(|scope| {
        for number in 1..=3 {
            let tell = tell.clone();
            scope.spawn(move || {
                let outcome = pool.with(soon(), |_| {
                    tell.send(number).unwrap();
                    Ok(())
                });
                assert_eq!(outcome, Ok(()));
            });
            waits(&scene, number);
        }
        let tell = tell.clone();
        scope.spawn(move || {
            let lent = pool.wait_for_room(true, (no_file(), None), soon()).unwrap();
            tell.send(0).unwrap();
            pool.keep(lent);
        });
        waits(&scene, 4);
        pool.keep(in_use);
    });
    let order: Vec<_> = told.try_iter().collect();
    assert_eq!(order, [0, 1, 2, 3]);
    assert_eq!(pool.room.look().1, None);
}

#[test]
fn none_fails_as_long_as_one_connection_goes_round() {
    let scene = Scene::of(8, |_| None);
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(no_file());
    let pool = &scene.pool;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    assert_eq!(pool.with(soon(), |_| Ok(())), Ok(()));
                }
            });
        }
    });
    assert_eq!(pool.idle(), 1);
}

#[test]
fn a_connection_that_is_being_made_is_waited_for() {
    let scene = Scene::plain();
    *scene.way.takes.lock() = Duration::from_millis(300);
    let pool = &scene.pool;
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(pool.with(soon(), |_| Ok(())), Ok(())));
        let patience = soon();
        while scene.way.tries.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < patience);
        }
        *scene.way.fault.lock() = Some(full());
        assert_eq!(pool.with(soon(), |_| Ok(())), Ok(()));
    });
    // Nobody else has tried to make one again and again.
    assert!(scene.way.tries.load(Ordering::Relaxed) < 20);
}

/// Has a request wait that gets a connection once there is room and this was done.
fn gets_one_once(scene: &Scene, done: impl FnOnce()) {
    std::thread::scope(|threads| {
        let second = threads.spawn(|| scene.pool.with(soon(), |_| Ok(())));
        waits(scene, 1);
        *scene.way.fault.lock() = None;
        done();
        assert_eq!(second.join().unwrap(), Ok(()));
    });
}

#[test]
fn where_one_is_closed_there_is_room_for_another() {
    let scene = Scene::plain();
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(full());
    let pool = &scene.pool;
    let in_use = pool.take(soon()).unwrap();
    gets_one_once(&scene, || drop(in_use));
    // None else was in use, so that all of the time was for that.
    let by = scene.way.by.lock().unwrap();
    assert!(by > Instant::now() + Duration::from_secs(15));
    // Where a client is shut down all are closed.
    let in_use = pool.take(soon()).unwrap();
    *scene.way.fault.lock() = Some(full());
    pool.close();
    gets_one_once(&scene, || pool.keep(in_use));
}

#[test]
fn room_that_others_have_made_is_found() {
    let scene = Scene::plain();
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(full());
    let _in_use = scene.pool.take(soon()).unwrap();
    gets_one_once(&scene, || ());
}

#[test]
fn a_connection_that_owes_an_answer_is_waited_for() {
    let answer = Box::new(Says::Reply(Value::Int(1)));
    let late = Says::Later(Duration::from_millis(300), answer);
    let scene = Scene::of(8, move |request| request.is("PING").then(|| late.clone()));
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(full());
    let mut owing = scene.pool.take(soon()).unwrap();
    owing.ask(PING, soon()).unwrap();
    scene.pool.check_in_unread(owing, 1, None, None, soon());
    assert_eq!(scene.pool.with(soon(), |_| Ok(())), Ok(()));
    assert_eq!((scene.pool.idle(), scene.pool.late()), (1, 0));
}

#[test]
fn those_who_find_no_permit_beside_others_that_wait_for_room_are_told_of_that() {
    let scene = Scene::of(1, |_| None);
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(no_file());
    let pool = &scene.pool;
    let in_use = pool.take(soon()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(pool.with(soon(), |_| Ok(())), Ok(())));
        waits(&scene, 1);
        assert_eq!(pool.with(Instant::now(), |_| Ok(())), Err(no_file()));
        pool.keep(in_use);
    });
    assert_eq!(pool.with(soon(), |_| Ok(())), Ok(()));
}

/// Requests of 10 ms, one after the other, on so many threads for so long; how many there were.
fn busy(scene: &Scene, threads: usize, span: Duration) -> usize {
    let count = AtomicU64::new(0);
    let until = Instant::now() + span;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while Instant::now() < until {
                    let outcome = scene.pool.with(soon(), |_| {
                        std::thread::sleep(Duration::from_millis(10));
                        Ok(())
                    });
                    assert_eq!(outcome, Ok(()));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    usize::try_from(count.into_inner()).unwrap()
}

#[test]
fn room_that_others_have_made_is_found_however_busy_the_line_is() {
    let scene = Scene::plain();
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(full());
    std::thread::scope(|threads| {
        let busy = threads.spawn(|| busy(&scene, 6, Duration::from_millis(2_000)));
        std::thread::sleep(Duration::from_millis(500));
        let tries = scene.way.tries.load(Ordering::Relaxed);
        // A few at the beginning, and then ten in a second.
        assert!(tries < 6 + 10, "{tries}");
        // The only one goes from hand to hand.
        assert!(scene.pool.idle() <= 1);
        *scene.way.fault.lock() = None;
        busy.join().unwrap();
    });
    assert!(scene.pool.idle() >= 5, "{}", scene.pool.idle());
}

#[test]
fn a_try_that_stalls_keeps_nobody_from_what_comes_back() {
    let scene = Scene::plain();
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(full());
    std::thread::scope(|threads| {
        let busy = threads.spawn(|| busy(&scene, 6, Duration::from_millis(2_000)));
        waits(&scene, 4);
        *scene.way.takes.lock() = Duration::from_millis(1_000);
        *scene.way.fault.lock() = None;
        let count = busy.join().unwrap();
        let by = scene.way.by.lock().unwrap();
        assert!(by < Instant::now() + Duration::from_secs(10), "half of it");
        // One after the other they would be four.
        assert!(count > 50, "{count}");
    });
}

#[test]
fn a_wait_costs_no_work() {
    let scene = Scene::plain();
    scene.keep(&[false]);
    *scene.way.fault.lock() = Some(full());
    let _in_use = scene.pool.take(soon()).unwrap();
    let worked = || {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(
            spent.tv_sec.unsigned_abs(),
            u32::try_from(spent.tv_nsec).unwrap(),
        )
    };
    let (before, began) = (worked(), Instant::now());
    let by = began + Duration::from_millis(1_000);
    assert_eq!(scene.pool.with(by, |_| Ok(())), Err(full()));
    let (work, took) = (worked() - before, began.elapsed());
    assert!(took >= Duration::from_millis(700), "{took:?}");
    assert!(work < Duration::from_millis(200), "{work:?}");
}

#[test]
fn a_renewal_takes_what_comes_back_and_tries_nothing_unless_that_is_all() {
    let scene = Scene::plain();
    scene.keep(&[false]);
    let (pool, tries) = (&scene.pool, &scene.way.tries);
    let in_use = pool.take(soon()).unwrap();
    let before = tries.load(Ordering::Relaxed);
    let renews = || pool.wait_for_room(true, (full(), None), soon()).unwrap();
    std::thread::scope(|threads| {
        let renewing = threads.spawn(renews);
        waits(&scene, 1);
        std::thread::sleep(Duration::from_millis(250));
        assert_eq!(tries.load(Ordering::Relaxed), before);
        pool.keep(in_use);
        // It is closed then.
        drop(renewing.join().unwrap());
    });
    drop(renews());
    assert_eq!(tries.load(Ordering::Relaxed), before + 1);
}
