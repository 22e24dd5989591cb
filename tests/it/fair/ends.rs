//! Clients that close while their threads wait, or right after these gave up.

use std::thread;

use redlatch::{Client, Error, Interrupt, Lock};

use super::queue::Fixture;
use crate::invariants::{SLACK, TIMEOUT};
use crate::support::{eventually, ms, timed};

const WAITERS: usize = 20;

/// A client with enough time to close on a busy machine.
fn patient(url: &str) -> (Client, Lock) {
    let client = Client::builder().command_timeout(SLACK * 4);
    let client = client.open(url).unwrap();
    let lock = client.fair_lock("tickets");
    (client, lock)
}

/// Starts some waiting threads; `end` has to end their waits.
fn waits_end(fixture: &Fixture, lock: &Lock, interrupt: &Interrupt, end: impl FnOnce()) {
    thread::scope(|scope| {
        let waits = [(); WAITERS].map(|()| scope.spawn(|| lock.lock_interruptibly(interrupt)));
        eventually(SLACK * 2, "they wait", || {
            fixture.waiting().len() == WAITERS
        });
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
    let fixture = Fixture::new();
    let (_holder, held) = fixture.process();
    held.lock().unwrap();
    for is_interrupted in [false, true] {
        let (client, lock) = patient(&fixture.server.url());
        let interrupt = Interrupt::new();
        waits_end(&fixture, &lock, &interrupt, || {
            if is_interrupted {
                interrupt.raise();
            }
            client.shutdown();
        });
        // No thread has tried to acquire since.
        assert_eq!(fixture.waiting(), [""; 0], "interrupted: {is_interrupted}");
    }
    held.unlock().unwrap();
    fixture.all_goes();
}

#[test]
fn a_silent_server_does_not_block_the_shutdown() {
    let fixture = Fixture::new();
    let (_holder, held) = fixture.process();
    held.lock().unwrap();
    let (client, lock) = fixture.process();
    waits_end(&fixture, &lock, &Interrupt::new(), || {
        fixture.server.freeze();
        let (took, ()) = timed(|| client.shutdown());
        fixture.server.thaw();
        assert!(took < TIMEOUT + ms(250) + SLACK, "{took:?}");
    });
}
