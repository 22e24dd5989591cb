//! A user with no more rights than semaphores with ids need, and one that lacks some of them.

use std::thread;

use redlatch::{Client, PermitId};

use crate::acl::{PREFIX, for_permit_semaphores, is_named, is_spare, user};
use crate::support::{RedisServer, ms};

fn open(url: &str) -> Client {
    let builder = crate::invariants::quick().key_prefix(PREFIX);
    builder.watchdog_timeout(ms(900)).open(url).unwrap()
}

#[test]
fn the_rights_for_permit_semaphores_are_enough() {
    let server = RedisServer::start();
    let client = open(&user(&server, &for_permit_semaphores()));
    let semaphore = client.permit_semaphore("mail");
    assert!(semaphore.try_set(2).unwrap());
    let taken = semaphore.acquire(2).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| semaphore.acquire(1).unwrap().release());
        thread::sleep(ms(1500));
        assert!(taken.is_valid(), "it is renewed");
        taken.release().unwrap();
        waits.join().unwrap().unwrap();
    });
    semaphore.add_permits(1).unwrap();
    let id = semaphore.acquire_id(None).unwrap();
    assert_eq!(semaphore.acquired().unwrap(), 1);
    assert!(semaphore.set_lease(&id, Some(ms(60_000))).unwrap());
    assert!(semaphore.lease_of(&id).unwrap().is_some());
    assert!(semaphore.release_id(&id).unwrap());
    semaphore.set(1).unwrap();
    assert!(semaphore.delete().unwrap());
}

#[test]
fn each_right_for_permit_semaphores_is_needed_and_named() {
    let server = RedisServer::start();
    for lacking in for_permit_semaphores() {
        server.cmd(&["FLUSHALL"]);
        server.cmd(&["SCRIPT", "FLUSH"]);
        let mut rules = for_permit_semaphores();
        rules.remove(&lacking);
        let client = open(&user(&server, &rules));
        let semaphore = client.permit_semaphore("mail");
        let set = semaphore.try_set(2).err();
        server.cmd(&["SET", "orders:mail", "2"]);
        // One that is dead, and is to be cleared up after.
        let owners = "{orders:mail}:timeout";
        server.cmd(&["ZADD", owners, "1", "a dead one"]);
        let acquired = semaphore.try_acquire(1);
        let sum = |taken: i64| server.int(&["GET", "orders:mail"]) + taken;
        if acquired.is_err() {
            // Nothing came from nowhere, and nothing went there.
            let left = server.int(&["ZCARD", owners]);
            assert_eq!(sum(left), 3, "without {lacking}");
        }
        let released = match acquired {
            Ok(Some(taken)) => taken.release().err(),
            Ok(None) => panic!("without {lacking}"),
            Err(error) => Some(error),
        };
        server.cmd(&["DEL", owners]);
        server.cmd(&["SET", "orders:mail", "2"]);
        let errors = [
            set,
            released,
            semaphore.add_permits(1).err(),
            semaphore.available().err(),
            semaphore.acquired().err(),
            semaphore.set(3).err(),
            semaphore.delete().err(),
        ];
        let errors: Vec<_> = errors.into_iter().flatten().collect();
        // Without the latter a key stays until its semaphore is set anew.
        let is_needed = !is_spare(&lacking) && lacking != "pexpire";
        is_named(&lacking, errors, is_needed);
    }
}

#[test]
fn a_question_leaves_no_answer_behind() {
    let server = RedisServer::start();
    let client = open(&user(&server, &for_permit_semaphores()));
    // In a cluster a key that is missing would keep it from a slot that is half moved.
    let keys = ["resetkeys", "~orders:*", "~{orders:*"];
    server.cmd(&[&["ACL", "SETUSER", "locks"][..], &keys].concat());
    server.cmd(&["SET", "orders:mail", "2"]);
    let semaphore = client.permit_semaphore("mail");
    let taken = semaphore.acquire(1).unwrap();
    assert_eq!(semaphore.available().unwrap(), 1);
    assert_eq!(semaphore.acquired().unwrap(), 1);
    assert!(semaphore.lease_of(&taken.ids()[0]).unwrap().is_some());
    semaphore.add_permits(1).unwrap_err();
    assert_eq!(server.int(&["GET", "orders:mail"]), 1);
}

#[test]
fn no_two_missing_rights_make_permits() {
    let server = RedisServer::start();
    let taken_ids = "{orders:mail}:timeout";
    let writes = ["incrby", "decrby", "zadd", "zrem"];
    for (one, two) in writes.iter().flat_map(|one| writes.map(|two| (one, two))) {
        let mut rules = for_permit_semaphores();
        rules.retain(|it| it != one && it != two);
        let client = open(&user(&server, &rules));
        let semaphore = client.permit_semaphore("mail");
        let lacks = |right: &str| *one == right || two == right;
        for has_dead in [false, true] {
            server.cmd(&["DEL", taken_ids]);
            server.cmd(&["SET", "orders:mail", "2"]);
            if has_dead {
                server.cmd(&["ZADD", taken_ids, "1", "a dead one"]);
            }
            let none_comes_or_goes = || {
                let free = server.int(&["GET", "orders:mail"]);
                let all = free + server.int(&["ZCARD", taken_ids]);
                assert_eq!(all, 2 + i64::from(has_dead), "without {one} and {two}");
            };
            for _ in 0..3 {
                if let Ok(Some(taken)) = semaphore.try_acquire(1) {
                    let released = taken.release();
                    let is_refused = lacks("incrby") || lacks("zrem");
                    assert_eq!(released.is_err(), is_refused, "{released:?}");
                }
                none_comes_or_goes();
            }
            // By an id that somebody else has taken.
            server.cmd(&["ZADD", taken_ids, "922337203685477", "aaaaaaaaaaaaaaaa"]);
            server.cmd(&["DECR", "orders:mail"]);
            let id = PermitId::parse(&"61".repeat(16)).unwrap();
            let released = semaphore.release_id(&id);
            let is_refused = lacks("incrby") || lacks("zrem");
            assert_eq!(released.is_err(), is_refused, "{released:?}");
            none_comes_or_goes();
        }
    }
}
