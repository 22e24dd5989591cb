//! Clients that end while their threads wait, or right after these gave up.

use std::thread;

use redlatch::{Client, Error, Interrupt, Lock};

use super::queue::Scene;
use crate::invariants::{SLACK, TIMEOUT};
use crate::support::{eventually, ms, timed};

const WAITERS: usize = 20;

/// A client that has the time to end on a busy machine.
fn patient(url: &str) -> (Client, Lock) {
    let client = Client::builder().command_timeout(SLACK * 4);
    let client = client.open(url).unwrap();
    let lock = client.fair_lock("tickets");
    (client, lock)
}

/// Has some threads wait until `end` ends their waits, which it is to do.
fn waits_end(scene: &Scene, lock: &Lock, interrupt: &Interrupt, end: impl FnOnce()) {
    thread::scope(|scope| {
        let waits = [(); WAITERS].map(|()| scope.spawn(|| lock.lock_interruptibly(interrupt)));
        eventually(SLACK * 2, "they wait", || scene.waiting().len() == WAITERS);
        end();
        for wait in waits {
            let error = wait.join().unwrap().unwrap_err();
            assert!(
                matches!(error, Error::Closed { .. } | Error::Interrupted { .. }),
                "{error}"
            );
        }
    });
}

#[test]
fn a_closed_client_leaves_no_queue_entries() {
    let scene = Scene::new();
    let (_holder, held) = scene.process();
    held.lock().unwrap();
    for is_interrupted in [false, true] {
        let (client, lock) = patient(&scene.server.url());
        let interrupt = Interrupt::new();
        waits_end(&scene, &lock, &interrupt, || {
            if is_interrupted {
                interrupt.raise();
            }
            client.shutdown();
        });
        // Nobody has asked for the lock since.
        assert_eq!(scene.waiting(), [""; 0], "interrupted: {is_interrupted}");
    }
    held.unlock().unwrap();
    scene.all_goes();
}

#[test]
fn a_silent_server_does_not_block_the_shutdown() {
    let scene = Scene::new();
    let (_holder, held) = scene.process();
    held.lock().unwrap();
    let (client, lock) = scene.process();
    waits_end(&scene, &lock, &Interrupt::new(), || {
        scene.server.freeze();
        let (took, ()) = timed(|| client.shutdown());
        scene.server.thaw();
        assert!(took < TIMEOUT + ms(250) + SLACK, "{took:?}");
    });
}
