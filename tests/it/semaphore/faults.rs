//! A semaphore whose requests and messages are lost, doubled and late, and whose holders die.

use std::thread;
use std::time::Duration;

use redlatch::{Client, LossCause, Semaphore};

use crate::invariants::{
    Class, PERMITS_ACQUIRE, PERMITS_COUNT, PERMITS_RELEASE, SLACK, fails, quick, sha, teach,
};
use crate::support::proxy::Rule;
use crate::support::{End, Fault, Proxy, RedisServer, eventually, ms, timed};

const LONG: Duration = Duration::from_secs(60);

/// A semaphore of 4 behind a proxy, and the server itself.
struct Scene {
    _client: Client,
    semaphore: Semaphore,
    proxy: Proxy,
    server: RedisServer,
}

impl Scene {
    fn new() -> Scene {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let client = quick().open(&proxy.url()).unwrap();
        let semaphore = client.semaphore("mail");
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
        assert_eq!(self.server.int(&["EXISTS", "redlatch_sc:{mail}"]), 0);
    }
}

const LOST: [Fault; 4] = [
    Fault::SwallowReply(End::Reset),
    Fault::SwallowReply(End::Silent),
    Fault::SwallowRequest(End::Reset),
    Fault::DuplicateRequest,
];

#[test]
fn nothing_is_lost_and_nothing_made_by_copies() {
    let scene = Scene::new();
    for fault in LOST {
        let rule = scene.next(1, PERMITS_ACQUIRE, fault);
        let wait = Duration::from_secs(20);
        let taken = scene.semaphore.try_acquire_for(3, wait).unwrap().unwrap();
        assert_eq!(rule.hits(), 1, "{fault:?}");
        assert!(taken.is_valid());
        eventually(ms(9000), "three are taken, once", || scene.free() == 1);
        let rule = scene.next(1, PERMITS_RELEASE, fault);
        taken.release().unwrap();
        assert_eq!(rule.hits(), 1, "{fault:?}");
        scene.all_come_back();
        let rule = scene.next(1, PERMITS_COUNT, fault);
        scene.semaphore.add_permits(-1).unwrap();
        assert_eq!((rule.hits(), scene.free()), (1, 3), "{fault:?}");
        scene.semaphore.add_permits(1).unwrap();
        let rule = scene.next(1, PERMITS_COUNT, fault);
        let taken = scene.semaphore.acquire(2).unwrap();
        taken.forget().unwrap();
        assert_eq!((rule.hits(), scene.free()), (1, 2), "{fault:?}");
        scene.semaphore.add_permits(2).unwrap();
        scene.all_come_back();
    }
}

#[test]
fn a_request_without_any_answer_is_unknown_and_is_undone() {
    let scene = Scene::new();
    let silent = Fault::SwallowReply(End::Silent);
    scene.next(usize::MAX, PERMITS_ACQUIRE, silent);
    fails(scene.semaphore.try_acquire(3).map(drop), Class::Unknown);
    scene.proxy.heal();
    scene.all_come_back();
    let taken = scene.semaphore.acquire(3).unwrap();
    scene.next(usize::MAX, PERMITS_RELEASE, silent);
    fails(taken.release(), Class::Unknown);
    scene.proxy.heal();
    scene.all_come_back();
    scene.next(usize::MAX, PERMITS_COUNT, silent);
    fails(scene.semaphore.add_permits(2), Class::Unknown);
    scene.proxy.heal();
    assert_eq!(scene.free(), 6, "once");
}

#[test]
fn a_late_acquisition_is_undone_and_a_late_release_gives_nothing() {
    let scene = Scene::new();
    let held = scene.next(1, PERMITS_ACQUIRE, Fault::Hold);
    fails(scene.semaphore.try_acquire(3).map(drop), Class::Unknown);
    held.release();
    thread::sleep(ms(300));
    scene.all_come_back();
    let taken = scene.semaphore.acquire(2).unwrap();
    // The first copy comes when others have what the second one gave back.
    let held = scene.next(1, PERMITS_RELEASE, Fault::Hold);
    taken.release().unwrap();
    let taken = scene.semaphore.acquire(4).unwrap();
    held.release();
    thread::sleep(ms(300));
    assert_eq!(scene.free(), 0);
    taken.release().unwrap();
    scene.all_come_back();
}

#[test]
fn a_dead_client_gives_its_permits_back_when_somebody_looks() {
    let scene = Scene::new();
    let short = quick().watchdog_timeout(ms(900));
    let dead = short.open(&scene.server.url()).unwrap();
    let taken = dead.semaphore("mail").acquire(4).unwrap();
    // As if it was killed: nobody renews, nobody gives back.
    dead.shutdown();
    std::mem::forget(taken);
    let (took, taken) = timed(|| scene.semaphore.acquire(4).unwrap());
    assert!(took < ms(900) + ms(1100) + SLACK, "{took:?}");
    taken.release().unwrap();
    scene.all_come_back();
}

#[test]
fn a_lost_message_costs_a_waiter_a_second() {
    let scene = Scene::new();
    let admin = Client::open(&scene.server.url()).unwrap();
    let all = admin.semaphore("mail").acquire(4).unwrap();
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

#[test]
fn a_full_server_keeps_what_is_held_and_takes_it_back() {
    let scene = Scene::new();
    let short = quick().watchdog_timeout(ms(900));
    let client = short.open(&scene.server.url()).unwrap();
    let semaphore = client.semaphore("mail");
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
    scene.next(usize::MAX, PERMITS_ACQUIRE, silent);
    fails(scene.semaphore.try_acquire(2).map(drop), Class::Unknown);
    full(true);
    scene.proxy.heal();
    other.release().unwrap();
    scene.all_come_back();
    full(false);
}

#[test]
fn one_that_goes_under_its_holder_is_a_loss() {
    let scene = Scene::new();
    let short = quick().watchdog_timeout(ms(900));
    let client = short.open(&scene.server.url()).unwrap();
    let semaphore = client.semaphore("mail");
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

#[test]
fn another_thing_under_the_name_is_the_cause_of_the_loss() {
    let scene = Scene::new();
    let short = quick().watchdog_timeout(ms(900));
    let client = short.open(&scene.server.url()).unwrap();
    let semaphore = client.semaphore("mail");
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

#[test]
fn what_is_no_semaphore_is_left_alone() {
    let scene = Scene::new();
    let taken = scene.semaphore.acquire(1).unwrap();
    scene.server.cmd(&["SET", "mail", "many"]);
    fails(scene.semaphore.try_acquire(1).map(drop), Class::WrongType);
    fails(scene.semaphore.add_permits(1), Class::WrongType);
    fails(scene.semaphore.available(), Class::WrongType);
    fails(scene.semaphore.delete(), Class::WrongType);
    assert!(taken.release().is_err());
    assert_eq!(scene.server.text(&["GET", "mail"]).as_deref(), Some("many"));
}

#[test]
fn permits_outlive_the_end_that_a_semaphore_had() {
    let server = RedisServer::start();
    let client = quick().watchdog_timeout(ms(3000));
    let client = client.open(&server.url()).unwrap();
    // The end is lifted, or put off.
    for words in [&["PERSIST", "mail"][..], &["PEXPIRE", "mail", "60000"]] {
        let semaphore = client.semaphore("mail");
        assert!(semaphore.try_set_for(2, ms(2000)).unwrap());
        let before = semaphore.acquire(1).unwrap();
        server.cmd(words);
        thread::sleep(ms(4000));
        assert!(before.is_valid(), "{words:?}");
        let behind = semaphore.acquire(1).unwrap();
        for taken in [before, behind] {
            taken.release().unwrap();
        }
        assert_eq!(semaphore.available().unwrap(), 2, "{words:?}");
        server.cmd(&["DEL", "mail"]);
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
fn permits_of_the_dead_outlive_the_end_that_a_semaphore_had_if_anybody_looks() {
    let server = RedisServer::start();
    let client = quick().open(&server.url()).unwrap();
    let (mail, post) = (client.semaphore("mail"), client.permit_semaphore("post"));
    let look: [&dyn Fn(); 5] = [
        &|| assert_eq!(mail.available().unwrap(), 1),
        &|| assert!(mail.try_acquire(3).unwrap().is_none()),
        &|| {
            mail.add_permits(1).unwrap();
            mail.add_permits(-1).unwrap();
        },
        &|| assert!(post.try_acquire(3).unwrap().is_none()),
        &|| assert_eq!(post.available().unwrap(), 1),
    ];
    for (number, look) in look.iter().enumerate() {
        let (of_mail, of_post) = (number < 3, number >= 3);
        assert!(!of_mail || mail.try_set_for(2, ms(1500)).unwrap());
        assert!(!of_post || post.try_set_for(2, ms(1500)).unwrap());
        let name = if of_mail { "mail" } else { "post" };
        match of_mail {
            true => std::mem::forget(mail.with_lease_time(ms(2500)).acquire(1).unwrap()),
            false => std::mem::forget(post.with_lease_time(ms(2500)).acquire(1).unwrap()),
        }
        server.cmd(&["PEXPIRE", name, "60000"]);
        look();
        thread::sleep(ms(2600));
        let available = || match of_mail {
            true => mail.available().unwrap(),
            false => post.available().unwrap(),
        };
        assert_eq!(available(), 2, "look {number}");
        server.cmd(&["FLUSHALL"]);
    }
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
