//! Semaphores with lost, repeated and late requests and messages, and with dead holders.

use std::thread;
use std::time::Duration;

use redlatch::{Client, LossCause};

use super::permitting::Permitting;
use crate::invariants::{Class, LOST, SLACK, fails, quick, sha, teach};
use crate::support::proxy::Rule;
use crate::support::{End, Fault, Proxy, RedisServer, eventually, ms, timed};

/// A semaphore of 4 behind a proxy, and the server itself.
struct Fixture<S> {
    _client: Client,
    semaphore: S,
    proxy: Proxy,
    server: RedisServer,
}

impl<S: Permitting> Fixture<S> {
    fn new() -> Fixture<S> {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let client = quick().open(&proxy.url()).unwrap();
        let semaphore = S::of(&client, "mail");
        assert!(semaphore.try_set(4).unwrap());
        Fixture {
            _client: client,
            semaphore,
            proxy,
            server,
        }
    }

    fn next(&self, times: usize, script: &str, fault: Fault) -> Rule {
        self.proxy.next(times, Some(sha(script).as_bytes()), fault)
    }

    fn free(&self) -> i64 {
        self.server.int(&["GET", "mail"])
    }

    /// All permits are free and without owners, long before a lease of half a minute ends.
    #[track_caller]
    fn all_come_back(&self) {
        eventually(ms(9000), "all permits are free", || self.free() == 4);
        assert_eq!(self.server.int(&["EXISTS", &S::owners("mail")]), 0);
    }
}

fn repeated_requests_neither_lose_nor_add_permits<S: Permitting>() {
    let fixture = Fixture::<S>::new();
    for fault in LOST {
        let rule = fixture.next(1, S::ACQUIRE, fault);
        let wait = Duration::from_secs(20);
        let taken = fixture.semaphore.try_acquire_for(3, wait).unwrap().unwrap();
        assert_eq!(rule.hits(), 1, "{fault:?}");
        assert!(taken.is_valid());
        eventually(ms(9000), "three are taken, once", || fixture.free() == 1);
        let rule = fixture.next(1, S::RELEASE, fault);
        taken.release().unwrap();
        assert_eq!(rule.hits(), 1, "{fault:?}");
        fixture.all_come_back();
        let rule = fixture.next(1, S::COUNT, fault);
        fixture.semaphore.add_permits(-1).unwrap();
        assert_eq!((rule.hits(), fixture.free()), (1, 3), "{fault:?}");
        fixture.semaphore.add_permits(1).unwrap();
        fixture.all_come_back();
    }
}

fn a_request_without_a_reply_is_unknown_and_is_undone<S: Permitting>() {
    let fixture = Fixture::<S>::new();
    let silent = Fault::SwallowReply(End::Silent);
    fixture.next(usize::MAX, S::ACQUIRE, silent);
    fails(fixture.semaphore.try_acquire(3).map(drop), Class::Unknown);
    fixture.proxy.heal();
    fixture.all_come_back();
    let taken = fixture.semaphore.acquire(3).unwrap();
    fixture.next(usize::MAX, S::RELEASE, silent);
    fails(taken.release(), Class::Unknown);
    fixture.proxy.heal();
    fixture.all_come_back();
    fixture.next(usize::MAX, S::COUNT, silent);
    fails(fixture.semaphore.add_permits(2), Class::Unknown);
    fixture.proxy.heal();
    assert_eq!(fixture.free(), 6, "once");
}

fn late_acquisitions_are_undone_and_late_releases_add_nothing<S: Permitting>() {
    let fixture = Fixture::<S>::new();
    let held = fixture.next(1, S::ACQUIRE, Fault::Hold);
    fails(fixture.semaphore.try_acquire(3).map(drop), Class::Unknown);
    held.release();
    thread::sleep(ms(300));
    fixture.all_come_back();
    let taken = fixture.semaphore.acquire(2).unwrap();
    // The first copy arrives when another client has the permits that the second copy released.
    let held = fixture.next(1, S::RELEASE, Fault::Hold);
    taken.release().unwrap();
    let taken = fixture.semaphore.acquire(4).unwrap();
    held.release();
    thread::sleep(ms(300));
    assert_eq!(fixture.free(), 0);
    taken.release().unwrap();
    fixture.all_come_back();
}

fn permits_of_a_dead_client_return_at_the_next_request<S: Permitting>() {
    let fixture = Fixture::<S>::new();
    let short = quick().watchdog_timeout(ms(900));
    let dead = short.open(&fixture.server.url()).unwrap();
    let taken = S::of(&dead, "mail").acquire(4).unwrap();
    // As if killed: its permits are neither renewed nor released.
    dead.shutdown();
    std::mem::forget(taken);
    let (took, taken) = timed(|| fixture.semaphore.acquire(4).unwrap());
    assert!(took < ms(900) + ms(1100) + SLACK, "{took:?}");
    taken.release().unwrap();
    fixture.all_come_back();
}

fn a_lost_message_costs_a_waiter_a_second<S: Permitting>() {
    let fixture = Fixture::<S>::new();
    let admin = Client::open(&fixture.server.url()).unwrap();
    let all = S::of(&admin, "mail").acquire(4).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| fixture.semaphore.acquire(1).unwrap());
        thread::sleep(ms(400));
        fixture.proxy.next(1, None, Fault::DropPush);
        let (took, taken) = timed(|| {
            all.release().unwrap();
            waits.join().unwrap()
        });
        assert!(took < ms(1100) + SLACK, "{took:?}");
        taken.release().unwrap();
    });
}

fn a_server_at_maxmemory_keeps_holds_and_accepts_releases<S: Permitting>() {
    let fixture = Fixture::<S>::new();
    let short = quick().watchdog_timeout(ms(900));
    let client = short.open(&fixture.server.url()).unwrap();
    let semaphore = S::of(&client, "mail");
    let [taken, other] = [1, 2].map(|permits| semaphore.acquire(permits).unwrap());
    let full = |is_full: bool| {
        let memory = if is_full { "1" } else { "0" };
        fixture.server.cmd(&["CONFIG", "SET", "maxmemory", memory]);
    };
    full(true);
    fails(semaphore.try_acquire(1).map(drop), Class::Unavailable);
    fails(semaphore.add_permits(1), Class::Unavailable);
    let loss = taken.lost().recv_timeout(ms(2000));
    assert_eq!(loss, Err(redlatch::NoLoss::NotYet));
    assert!(taken.is_valid() && other.is_valid(), "they are renewed");
    taken.release().unwrap();
    assert_eq!(fixture.free(), 2);
    // An acquisition without a reply is undone there, too.
    full(false);
    let silent = Fault::SwallowReply(End::Silent);
    fixture.next(usize::MAX, S::ACQUIRE, silent);
    fails(fixture.semaphore.try_acquire(2).map(drop), Class::Unknown);
    full(true);
    fixture.proxy.heal();
    other.release().unwrap();
    fixture.all_come_back();
    full(false);
}

fn a_semaphore_deleted_under_its_holder_is_a_loss<S: Permitting>() {
    let fixture = Fixture::<S>::new();
    let short = quick().watchdog_timeout(ms(900));
    let client = short.open(&fixture.server.url()).unwrap();
    let semaphore = S::of(&client, "mail");
    let taken = semaphore.acquire(2).unwrap();
    // As Redisson deletes it: the owners stay.
    fixture.server.cmd(&["DEL", "mail"]);
    let loss = taken.lost().recv_timeout(ms(900) + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::Gone);
    assert!(semaphore.try_set(4).unwrap());
    assert!(taken.release().unwrap_err().is_lost());
    assert_eq!(fixture.free(), 4);
    let taken = semaphore.acquire(2).unwrap();
    fixture.server.cmd(&["FLUSHALL"]);
    let loss = taken.lost().recv_timeout(ms(900) + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::Gone);
}

fn a_key_that_is_no_semaphore_is_left_alone<S: Permitting>() {
    let fixture = Fixture::<S>::new();
    let taken = fixture.semaphore.acquire(1).unwrap();
    fixture.server.cmd(&["SET", "mail", "many"]);
    fails(fixture.semaphore.try_acquire(1).map(drop), Class::WrongType);
    fails(fixture.semaphore.add_permits(1), Class::WrongType);
    fails(fixture.semaphore.available(), Class::WrongType);
    fails(fixture.semaphore.delete(), Class::WrongType);
    assert!(taken.release().is_err());
    assert_eq!(
        fixture.server.text(&["GET", "mail"]).as_deref(),
        Some("many")
    );
}

macro_rules! of_both {
    ($($test:ident)*) => {
        mod counts { $(#[test] fn $test() { super::$test::<redlatch::Semaphore>(); })* }
        mod ids { $(#[test] fn $test() { super::$test::<redlatch::PermitSemaphore>(); })* }
    };
}

of_both! {
    repeated_requests_neither_lose_nor_add_permits
    a_request_without_a_reply_is_unknown_and_is_undone
    late_acquisitions_are_undone_and_late_releases_add_nothing
    permits_of_a_dead_client_return_at_the_next_request
    a_lost_message_costs_a_waiter_a_second
    a_server_at_maxmemory_keeps_holds_and_accepts_releases
    a_semaphore_deleted_under_its_holder_is_a_loss
    a_key_that_is_no_semaphore_is_left_alone
}
