//! Semaphores whose requests and messages are lost, doubled and late, and whose holders die.

use std::thread;
use std::time::Duration;

use redlatch::{Client, LossCause, PermitSemaphore, Semaphore};

use super::permitting::Permitting;
use crate::invariants::{Class, SLACK, fails, quick, sha, teach};
use crate::support::proxy::Rule;
use crate::support::{End, Fault, Proxy, RedisServer, eventually, ms, timed};

const LONG: Duration = Duration::from_secs(60);

/// A semaphore of 4 behind a proxy, and the server itself.
struct Scene<S> {
    _client: Client,
    semaphore: S,
    proxy: Proxy,
    server: RedisServer,
}

impl<S: Permitting> Scene<S> {
    fn new() -> Scene<S> {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let client = quick().open(&proxy.url()).unwrap();
        let semaphore = S::of(&client, "mail");
        assert!(semaphore.try_set(4).unwrap());
        Scene {
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

    /// All permits are free, and nobody owns any, long before a lease of half a minute ends.
    #[track_caller]
    fn all_come_back(&self) {
        eventually(ms(9000), "all permits are free", || self.free() == 4);
        assert_eq!(self.server.int(&["EXISTS", &S::owners("mail")]), 0);
    }
}

const LOST: [Fault; 4] = [
    Fault::SwallowReply(End::Reset),
    Fault::SwallowReply(End::Silent),
    Fault::SwallowRequest(End::Reset),
    Fault::DuplicateRequest,
];

fn nothing_is_lost_and_nothing_made_by_copies<S: Permitting>() {
    let scene = Scene::<S>::new();
    for fault in LOST {
        let rule = scene.next(1, S::ACQUIRE, fault);
        let wait = Duration::from_secs(20);
        let taken = scene.semaphore.try_acquire_for(3, wait).unwrap().unwrap();
        assert_eq!(rule.hits(), 1, "{fault:?}");
        assert!(taken.is_valid());
        eventually(ms(9000), "three are taken, once", || scene.free() == 1);
        let rule = scene.next(1, S::RELEASE, fault);
        taken.release().unwrap();
        assert_eq!(rule.hits(), 1, "{fault:?}");
        scene.all_come_back();
        let rule = scene.next(1, S::COUNT, fault);
        scene.semaphore.add_permits(-1).unwrap();
        assert_eq!((rule.hits(), scene.free()), (1, 3), "{fault:?}");
        scene.semaphore.add_permits(1).unwrap();
        scene.all_come_back();
    }
}

fn a_request_without_any_answer_is_unknown_and_is_undone<S: Permitting>() {
    let scene = Scene::<S>::new();
    let silent = Fault::SwallowReply(End::Silent);
    scene.next(usize::MAX, S::ACQUIRE, silent);
    fails(scene.semaphore.try_acquire(3).map(drop), Class::Unknown);
    scene.proxy.heal();
    scene.all_come_back();
    let taken = scene.semaphore.acquire(3).unwrap();
    scene.next(usize::MAX, S::RELEASE, silent);
    fails(taken.release(), Class::Unknown);
    scene.proxy.heal();
    scene.all_come_back();
    scene.next(usize::MAX, S::COUNT, silent);
    fails(scene.semaphore.add_permits(2), Class::Unknown);
    scene.proxy.heal();
    assert_eq!(scene.free(), 6, "once");
}

fn a_late_acquisition_is_undone_and_a_late_release_gives_nothing<S: Permitting>() {
    let scene = Scene::<S>::new();
    let held = scene.next(1, S::ACQUIRE, Fault::Hold);
    fails(scene.semaphore.try_acquire(3).map(drop), Class::Unknown);
    held.release();
    thread::sleep(ms(300));
    scene.all_come_back();
    let taken = scene.semaphore.acquire(2).unwrap();
    // The first copy comes when others have what the second one gave back.
    let held = scene.next(1, S::RELEASE, Fault::Hold);
    taken.release().unwrap();
    let taken = scene.semaphore.acquire(4).unwrap();
    held.release();
    thread::sleep(ms(300));
    assert_eq!(scene.free(), 0);
    taken.release().unwrap();
    scene.all_come_back();
}

fn a_dead_client_gives_its_permits_back_when_somebody_looks<S: Permitting>() {
    let scene = Scene::<S>::new();
    let short = quick().watchdog_timeout(ms(900));
    let dead = short.open(&scene.server.url()).unwrap();
    let taken = S::of(&dead, "mail").acquire(4).unwrap();
    // As if it was killed: nobody renews, nobody gives back.
    dead.shutdown();
    std::mem::forget(taken);
    let (took, taken) = timed(|| scene.semaphore.acquire(4).unwrap());
    assert!(took < ms(900) + ms(1100) + SLACK, "{took:?}");
    taken.release().unwrap();
    scene.all_come_back();
}

fn a_lost_message_costs_a_waiter_a_second<S: Permitting>() {
    let scene = Scene::<S>::new();
    let admin = Client::open(&scene.server.url()).unwrap();
    let all = S::of(&admin, "mail").acquire(4).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| scene.semaphore.acquire(1).unwrap());
        thread::sleep(ms(400));
        scene.proxy.next(1, None, Fault::DropPush);
        let (took, taken) = timed(|| {
            all.release().unwrap();
            waits.join().unwrap()
        });
        assert!(took < ms(1100) + SLACK, "{took:?}");
        taken.release().unwrap();
    });
}

fn a_full_server_keeps_what_is_held_and_takes_it_back<S: Permitting>() {
    let scene = Scene::<S>::new();
    let short = quick().watchdog_timeout(ms(900));
    let client = short.open(&scene.server.url()).unwrap();
    let semaphore = S::of(&client, "mail");
    let [taken, other] = [1, 2].map(|permits| semaphore.acquire(permits).unwrap());
    let full = |is_full: bool| {
        let memory = if is_full { "1" } else { "0" };
        scene.server.cmd(&["CONFIG", "SET", "maxmemory", memory]);
    };
    full(true);
    fails(semaphore.try_acquire(1).map(drop), Class::Unavailable);
    fails(semaphore.add_permits(1), Class::Unavailable);
    let loss = taken.lost().recv_timeout(ms(2000));
    assert_eq!(loss, Err(redlatch::NoLoss::NotYet));
    assert!(taken.is_valid() && other.is_valid(), "they are renewed");
    taken.release().unwrap();
    assert_eq!(scene.free(), 2);
    // An acquisition that got no answer is undone there, too.
    full(false);
    let silent = Fault::SwallowReply(End::Silent);
    scene.next(usize::MAX, S::ACQUIRE, silent);
    fails(scene.semaphore.try_acquire(2).map(drop), Class::Unknown);
    full(true);
    scene.proxy.heal();
    other.release().unwrap();
    scene.all_come_back();
    full(false);
}

fn one_that_goes_under_its_holder_is_a_loss<S: Permitting>() {
    let scene = Scene::<S>::new();
    let short = quick().watchdog_timeout(ms(900));
    let client = short.open(&scene.server.url()).unwrap();
    let semaphore = S::of(&client, "mail");
    let taken = semaphore.acquire(2).unwrap();
    // As Redisson deletes it: the owners stay.
    scene.server.cmd(&["DEL", "mail"]);
    let loss = taken.lost().recv_timeout(ms(900) + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::Gone);
    assert!(semaphore.try_set(4).unwrap());
    assert!(taken.release().unwrap_err().is_lost());
    assert_eq!(scene.free(), 4);
    let taken = semaphore.acquire(2).unwrap();
    scene.server.cmd(&["FLUSHALL"]);
    let loss = taken.lost().recv_timeout(ms(900) + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::Gone);
}

fn another_thing_under_the_name_is_the_cause_of_the_loss<S: Permitting>() {
    let scene = Scene::<S>::new();
    let short = quick().watchdog_timeout(ms(900));
    let client = short.open(&scene.server.url()).unwrap();
    let semaphore = S::of(&client, "mail");
    let other = client.lock("mail");
    let lost = |taken: &redlatch::Permits| {
        let loss = taken.lost().recv_timeout(ms(900) + SLACK).unwrap();
        let another = LossCause::HeldBy("a key of another type".to_owned());
        assert_eq!(loss.cause, another);
        assert!(!taken.is_valid());
    };
    // Redisson deletes the count alone, and somebody takes the name for a lock.
    let taken = semaphore.acquire(1).unwrap();
    scene.server.in_one_step(&[
        &["DEL", "mail"],
        &["HSET", "mail", "somebody:1", "1"],
        &["PEXPIRE", "mail", "60000"],
    ]);
    lost(&taken);
    assert!(taken.release().unwrap_err().is_lost());
    assert!(other.force_unlock().unwrap());
    assert!(semaphore.try_set(4).unwrap());
    let taken = semaphore.acquire(1).unwrap();
    let next = semaphore.acquire(1).unwrap();
    scene.server.cmd(&["SET", "mail", "text"]);
    assert!(next.release().unwrap_err().is_lost());
    lost(&taken);
}

fn what_is_no_semaphore_is_left_alone<S: Permitting>() {
    let scene = Scene::<S>::new();
    let taken = scene.semaphore.acquire(1).unwrap();
    scene.server.cmd(&["SET", "mail", "many"]);
    fails(scene.semaphore.try_acquire(1).map(drop), Class::WrongType);
    fails(scene.semaphore.add_permits(1), Class::WrongType);
    fails(scene.semaphore.available(), Class::WrongType);
    fails(scene.semaphore.delete(), Class::WrongType);
    assert!(taken.release().is_err());
    assert_eq!(scene.server.text(&["GET", "mail"]).as_deref(), Some("many"));
}

macro_rules! of_both {
    ($($test:ident)*) => {
        mod counts { $(#[test] fn $test() { super::$test::<redlatch::Semaphore>(); })* }
        mod ids { $(#[test] fn $test() { super::$test::<redlatch::PermitSemaphore>(); })* }
    };
}

of_both! {
    nothing_is_lost_and_nothing_made_by_copies
    a_request_without_any_answer_is_unknown_and_is_undone
    a_late_acquisition_is_undone_and_a_late_release_gives_nothing
    a_dead_client_gives_its_permits_back_when_somebody_looks
    a_lost_message_costs_a_waiter_a_second
    a_full_server_keeps_what_is_held_and_takes_it_back
    one_that_goes_under_its_holder_is_a_loss
    another_thing_under_the_name_is_the_cause_of_the_loss
    what_is_no_semaphore_is_left_alone
}

#[test]
fn permits_are_forgotten_once() {
    let scene = Scene::<Semaphore>::new();
    for fault in LOST {
        let rule = scene.next(1, Semaphore::COUNT, fault);
        let taken = scene.semaphore.acquire(2).unwrap();
        taken.forget().unwrap();
        assert_eq!((rule.hits(), scene.free()), (1, 2), "{fault:?}");
        scene.semaphore.add_permits(2).unwrap();
        scene.all_come_back();
    }
}

#[test]
fn an_id_is_given_back_once_and_told_so() {
    let scene = Scene::<PermitSemaphore>::new();
    for fault in LOST {
        let id = scene.semaphore.acquire_id(None).unwrap();
        for is_given_back in [true, false] {
            let rule = scene.next(1, PermitSemaphore::COUNT, fault);
            let told = scene.semaphore.release_id(&id).unwrap();
            assert_eq!(told, is_given_back, "{fault:?}");
            assert_eq!((rule.hits(), scene.free()), (1, 4), "{fault:?}");
        }
        let rule = scene.next(1, PermitSemaphore::COUNT, fault);
        scene.semaphore.set(6).unwrap();
        assert_eq!((rule.hits(), scene.free()), (1, 6), "{fault:?}");
        scene.semaphore.set(4).unwrap();
        scene.all_come_back();
    }
}

/// What Redisson's `trySetPermits` does where nothing is.
const SET_ANEW: &str =
    "if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SET', KEYS[1], ARGV[1]) end";

#[test]
fn permits_of_a_semaphore_that_has_ended_do_not_come_back_to_the_next() {
    let server = RedisServer::start();
    let client = quick().open(&server.url()).unwrap();
    let (mail, post) = (client.semaphore("mail"), client.permit_semaphore("post"));
    assert!(mail.try_set_for(10, ms(600)).unwrap());
    assert!(post.try_set_for(10, ms(600)).unwrap());
    // Their holder dies, and their leases end before the semaphore, or behind it.
    for lease in [ms(300), ms(60_000)] {
        std::mem::forget(mail.with_lease_time(lease).acquire(4).unwrap());
        std::mem::forget(post.with_lease_time(lease).acquire(4).unwrap());
    }
    let keys = ["mail", "redlatch_sc:{mail}", "post", "{post}:timeout"];
    let left = || server.int(&[&["EXISTS"][..], &keys].concat());
    assert_eq!(left(), 4);
    eventually(SLACK, "nothing is left", || left() == 0);
    for name in ["mail", "post"] {
        server.cmd(&["EVAL", SET_ANEW, "1", name, "10"]);
    }
    assert_eq!(mail.available().unwrap(), 10);
    assert_eq!(post.available().unwrap(), 10);
    assert!(mail.try_acquire(11).unwrap().is_none());
    assert!(post.try_acquire(11).unwrap().is_none());
}

#[test]
fn a_lease_that_is_set_outlives_the_end_that_a_semaphore_had() {
    let server = RedisServer::start();
    let client = quick().open(&server.url()).unwrap();
    let semaphore = client.permit_semaphore("post");
    assert!(semaphore.try_set_for(2, ms(1500)).unwrap());
    let id = semaphore.acquire_id(Some(ms(1000))).unwrap();
    server.cmd(&["PERSIST", "post"]);
    assert!(semaphore.set_lease(&id, Some(LONG)).unwrap());
    thread::sleep(ms(1600));
    assert!(semaphore.lease_of(&id).unwrap() > Some(LONG / 2));
    assert!(semaphore.release_id(&id).unwrap());
    assert_eq!(semaphore.available().unwrap(), 2);
}
