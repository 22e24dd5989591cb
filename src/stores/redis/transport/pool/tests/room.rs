//! Requests where there is no room for one more connection.

use std::sync::mpsc;

use super::*;

fn no_file() -> CallError {
    let lack = std::io::Error::from(rustix::io::Errno::MFILE);
    CallError::not_sent(lack)
}

fn full() -> CallError {
    CallError::Server("ERR max number of clients reached".into())
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
    for fault in [no_file(), full()] {
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
    let found = beside_another(no_file(), began + Duration::from_millis(100));
    assert_eq!(found, (Err(no_file()), false));
    assert!(began.elapsed() >= Duration::from_millis(80));
}

#[test]
fn where_none_is_in_use_there_is_nothing_to_wait_for() {
    let scene = Scene::plain();
    // One was in use.
    assert_eq!(scene.pool.with(soon(), |_| Ok(())), Ok(()));
    drop(scene.pool.take());
    *scene.way.fault.lock() = Some(no_file());
    let began = Instant::now();
    assert_eq!(scene.pool.with(soon(), |_| Ok(())), Err(no_file()));
    assert!(began.elapsed() < Duration::from_secs(5));
}
