//! A read-write lock whose requests and messages are lost, doubled and late, and whose holders die.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlatch::{Client, ReadWriteLock};

use super::{WAKE_UP, is_free};
use crate::invariants::{Class, RW_ACQUIRE, RW_RELEASE, SLACK, fails, quick, sha, teach};
use crate::support::proxy::Rule;
use crate::support::{End, Fault, Proxy, RedisServer, eventually, ms, timed};

/// A lock behind a proxy, and the server itself.
pub(super) struct Scene {
    _client: Client,
    pub(super) lock: ReadWriteLock,
    pub(super) proxy: Proxy,
    pub(super) server: RedisServer,
}

impl Scene {
    pub(super) fn new() -> Scene {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let client = quick().open(&proxy.url()).unwrap();
        Scene {
            lock: client.read_write_lock("prices"),
            _client: client,
            proxy,
            server,
        }
    }

    /// The lock of another process.
    pub(super) fn other(&self, watchdog_timeout: Duration) -> (Client, ReadWriteLock) {
        let builder = quick().watchdog_timeout(watchdog_timeout);
        let client = builder.open(&self.server.url()).unwrap();
        let lock = client.read_write_lock("prices");
        (client, lock)
    }

    pub(super) fn next(&self, times: usize, script: &str, fault: Fault) -> Rule {
        self.proxy.next(times, Some(sha(script).as_bytes()), fault)
    }

    /// Nothing is left but notes on those who waited, long before a lease of half a minute ends.
    #[track_caller]
    pub(super) fn all_goes(&self) {
        eventually(ms(9000), "nothing is left", || {
            let notes = self.server.int(&["EXISTS", "redlatch_rw:{prices}"]);
            self.server.int(&["DBSIZE"]) == notes
        });
    }
}

pub(super) const LOST: [Fault; 4] = [
    Fault::SwallowReply(End::Reset),
    Fault::SwallowReply(End::Silent),
    Fault::SwallowRequest(End::Reset),
    Fault::DuplicateRequest,
];

#[test]
fn copies_and_lost_requests_leave_no_hold_and_lose_none() {
    let scene = Scene::new();
    for fault in LOST {
        for side in [scene.lock.read(), scene.lock.write()] {
            let rule = scene.next(1, RW_ACQUIRE, fault);
            assert!(side.try_lock_for(Duration::from_secs(20)).unwrap());
            assert_eq!(rule.hits(), 1, "{fault:?}");
            assert!(side.is_valid());
            assert_eq!(side.hold_count().unwrap(), 1);
            let rule = scene.next(1, RW_RELEASE, fault);
            side.unlock().unwrap();
            assert_eq!(rule.hits(), 1, "{fault:?}");
            scene.all_goes();
        }
    }
}

#[test]
fn a_request_without_any_answer_is_unknown_and_is_undone() {
    let scene = Scene::new();
    let silent = Fault::SwallowReply(End::Silent);
    for side in [scene.lock.read(), scene.lock.write()] {
        scene.next(usize::MAX, RW_ACQUIRE, silent);
        fails(side.try_lock(), Class::Unknown);
        scene.proxy.heal();
        scene.all_goes();
        side.lock().unwrap();
        scene.next(usize::MAX, RW_RELEASE, silent);
        fails(side.unlock(), Class::Unknown);
        scene.proxy.heal();
        scene.all_goes();
    }
}

#[test]
fn a_late_read_is_undone_and_keeps_no_writer_out() {
    let scene = Scene::new();
    let held = scene.next(1, RW_ACQUIRE, Fault::Hold);
    fails(scene.lock.read().try_lock(), Class::Unknown);
    let (_client, other) = scene.other(Duration::from_secs(30));
    other.write().lock().unwrap();
    held.release();
    thread::sleep(ms(300));
    assert!(other.write().is_valid() && other.write().is_held_by_current_thread().unwrap());
    other.write().unlock().unwrap();
    // While others read, a late one joins them, and is freed alone.
    other.read().lock().unwrap();
    let held = scene.next(1, RW_ACQUIRE, Fault::Hold);
    fails(scene.lock.read().try_lock(), Class::Unknown);
    held.release();
    eventually(ms(9000), "it is freed", || {
        scene.server.int(&["HLEN", "prices"]) == 2
    });
    assert!(other.read().is_valid() && other.read().is_held_by_current_thread().unwrap());
    other.read().unlock().unwrap();
    scene.all_goes();
}

#[test]
fn a_late_release_and_a_late_read_cross_without_harm() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    let read = scene.lock.read();
    read.lock().unwrap();
    // The first copy of the release comes when the thread reads anew, and others do, too.
    let held = scene.next(1, RW_RELEASE, Fault::Hold);
    read.unlock().unwrap();
    read.lock().unwrap();
    other.read().lock().unwrap();
    held.release();
    thread::sleep(ms(300));
    for lock in [&read, &other.read()] {
        assert!(lock.is_valid() && lock.is_held_by_current_thread().unwrap());
    }
    read.unlock().unwrap();
    other.read().unlock().unwrap();
    // That of a writer comes when it has been a reader for long.
    let write = scene.lock.write();
    write.lock().unwrap();
    read.lock().unwrap();
    let held = scene.next(1, RW_RELEASE, Fault::Hold);
    write.unlock().unwrap();
    read.unlock().unwrap();
    other.write().lock().unwrap();
    held.release();
    thread::sleep(ms(300));
    assert!(other.write().is_valid() && other.write().is_held_by_current_thread().unwrap());
    other.write().unlock().unwrap();
    scene.all_goes();
}

/// The first request of a hold is put to the server once more, as a copy in the network is, when the hold was entered again.
#[test]
fn a_copy_of_the_first_request_changes_no_count_and_shortens_nothing() {
    let scene = Scene::new();
    for (side, key) in [(scene.lock.read(), "read"), (scene.lock.write(), "write")] {
        let long = side.with_lease_time(Duration::from_secs(60));
        let rule = scene.next(1, RW_ACQUIRE, Fault::DuplicateRequest);
        side.lock().unwrap();
        assert_eq!(rule.hits(), 1);
        long.lock().unwrap();
        let field = side.guard().unwrap().visitor().to_string();
        let own = format!("{{prices}}:{field}:rwlock_timeout:1");
        let text = crate::support::scripts::spliced(RW_ACQUIRE);
        let far = "9999999999999";
        let notes = "redlatch_rw:{prices}";
        scene.server.cmd(&[
            "EVAL", &text, "4", "prices", &own, notes, &own, &field, "1000", "0", "1", "", "join",
            far, "7",
        ]);
        assert_eq!(side.hold_count().unwrap(), 2, "{key}");
        assert!(scene.server.int(&["PTTL", "prices"]) > 50_000, "{key}");
        side.unlock().unwrap();
        side.unlock().unwrap();
        scene.all_goes();
    }
}

#[test]
fn a_reader_and_a_writer_that_died_end_with_their_leases() {
    let scene = Scene::new();
    for side in ["read", "write"] {
        let (dead, lock) = scene.other(ms(900));
        let lock = if side == "read" {
            lock.read()
        } else {
            lock.write()
        };
        let guard = lock.guard().unwrap();
        // As if it was killed: nobody renews, nobody gives back.
        dead.shutdown();
        std::mem::forget(guard);
        let (took, ()) = timed(|| scene.lock.write().lock().unwrap());
        assert!(took < ms(900) + ms(1100) + SLACK, "{took:?}");
        scene.lock.write().unlock().unwrap();
        scene.all_goes();
    }
}

#[test]
fn a_lost_message_costs_a_waiter_a_second() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    for (held, wanted) in [
        (other.write(), scene.lock.read()),
        (other.read(), scene.lock.write()),
    ] {
        held.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                wanted.lock().unwrap();
                wanted.unlock().unwrap();
            });
            thread::sleep(ms(400));
            scene.proxy.next(1, None, Fault::DropPush);
            let (took, ()) = timed(|| {
                held.unlock().unwrap();
                waits.join().unwrap();
            });
            assert!(took < ms(1100) + SLACK, "{took:?}");
        });
        scene.proxy.heal();
    }
}

#[test]
fn a_full_server_leaves_nothing_half_done() {
    let scene = Scene::new();
    let (read, write) = (scene.lock.read(), scene.lock.write());
    let full = |is_full: bool| {
        let memory = if is_full { "1" } else { "0" };
        scene.server.cmd(&["CONFIG", "SET", "maxmemory", memory]);
    };
    for side in [&read, &write] {
        side.lock().unwrap();
        full(true);
        // A hold is entered again there, and levels and whole holds are given back.
        assert!(side.try_lock().unwrap());
        assert_eq!(side.hold_count().unwrap(), 2);
        side.unlock().unwrap();
        assert!(side.is_valid());
        side.unlock().unwrap();
        fails(side.try_lock(), Class::Unavailable);
        assert_eq!(scene.server.int(&["DBSIZE"]), 0);
        full(false);
    }
    // A writer goes on as a reader there, too.
    write.lock().unwrap();
    read.lock().unwrap();
    full(true);
    write.unlock().unwrap();
    assert!(read.is_valid());
    full(false);
    assert!(is_free(&read));
    read.unlock().unwrap();
    scene.all_goes();
}

#[test]
fn a_lock_that_goes_under_its_holders_is_a_loss() {
    let scene = Scene::new();
    let (_client, lock) = scene.other(ms(900));
    let (writing, reading) = (lock.write().guard().unwrap(), lock.read().guard().unwrap());
    scene.server.cmd(&["DEL", "prices"]);
    for guard in [writing, reading] {
        guard.lost().recv_timeout(ms(900) + SLACK).unwrap();
        assert!(guard.unlock().unwrap_err().is_lost());
    }
    let (took, ()) = timed(|| scene.lock.write().lock().unwrap());
    assert!(took < WAKE_UP, "{took:?}");
    scene.lock.write().unlock().unwrap();
}

/// Writers leave the lock to readers that were turned away for longer than those need to come.
#[test]
fn a_distant_reader_is_not_starved_by_a_writer_that_never_pauses() {
    let scene = Scene::new();
    let (_client, writing) = scene.other(Duration::from_secs(30));
    // A round trip of 120 ms, half of what may be needed.
    scene
        .proxy
        .next(usize::MAX, None, Fault::DelayRequest(ms(120)));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writes = scope.spawn(|| {
            let mut written = 0;
            while !is_over.load(Ordering::SeqCst) {
                writing.write().run(|_| thread::sleep(ms(5))).unwrap();
                written += 1;
            }
            written
        });
        let reads = [(); 5].map(|()| scene.lock.read().try_run_for(ms(20_000), |_| ()));
        is_over.store(true, Ordering::SeqCst);
        let came_in = reads.map(|read| read.unwrap().is_some());
        assert_eq!(came_in, [true; 5]);
        assert!(writes.join().unwrap() > 5, "the writer had its turns, too");
    });
}
