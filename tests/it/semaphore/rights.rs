//! A user with no more rights than semaphores need, and one that lacks some of them.

use std::thread;

use redlatch::{Client, PermitSemaphore, Semaphore};

use super::permitting::Permitting;
use crate::acl::{PREFIX, for_permit_semaphores, for_semaphores, is_named, is_spare, user};
use crate::support::{RedisServer, ms};

fn open(url: &str) -> Client {
    let builder = crate::invariants::quick().key_prefix(PREFIX);
    builder.watchdog_timeout(ms(900)).open(url).unwrap()
}

/// Takes permits, waits for some and renews them.
fn taken_and_waited_for(semaphore: &impl Permitting) {
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
}

#[test]
fn the_rights_for_semaphores_are_enough() {
    let server = RedisServer::start();
    let semaphore = open(&user(&server, &for_semaphores())).semaphore("mail");
    taken_and_waited_for(&semaphore);
    assert_eq!(semaphore.drain().unwrap(), 3);
    assert!(semaphore.delete().unwrap());
    assert!(semaphore.try_set_for(1, ms(60_000)).unwrap());
    semaphore.acquire(1).unwrap().forget().unwrap();
    server.cmd(&["ACL", "DELUSER", "locks"]);
    let semaphore = open(&user(&server, &for_permit_semaphores())).permit_semaphore("post");
    taken_and_waited_for(&semaphore);
    let id = semaphore.acquire_id(None).unwrap();
    assert_eq!(semaphore.acquired().unwrap(), 1);
    assert!(semaphore.set_lease(&id, Some(ms(60_000))).unwrap());
    assert!(semaphore.lease_of(&id).unwrap().is_some());
    assert!(semaphore.release_id(&id).unwrap());
    semaphore.set(1).unwrap();
    assert!(semaphore.delete().unwrap());
}

fn each_right_is_needed_and_named<S: Permitting>() {
    let server = RedisServer::start();
    for lacking in S::rights() {
        server.cmd(&["FLUSHALL"]);
        server.cmd(&["SCRIPT", "FLUSH"]);
        let mut rules = S::rights();
        rules.remove(&lacking);
        let client = open(&user(&server, &rules));
        let semaphore = S::of(&client, "mail");
        let set = semaphore.try_set(2).err();
        server.cmd(&["SET", "orders:mail", "2"]);
        // One that is dead, and is to be cleared up after.
        let owners = &S::owners("orders:mail");
        server.cmd(&["ZADD", owners, "1", S::DEAD]);
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
            semaphore.delete().err(),
        ];
        let errors: Vec<_> = errors.into_iter().flatten().collect();
        // Without the latter a key stays until its semaphore is set anew.
        is_named(
            &lacking,
            errors,
            !is_spare(&lacking) && lacking != "pexpire",
        );
    }
}

#[test]
fn each_right_for_semaphores_is_needed_and_named() {
    each_right_is_needed_and_named::<Semaphore>();
    each_right_is_needed_and_named::<PermitSemaphore>();
}

fn no_two_missing_rights_make_permits<S: Permitting>() {
    let server = RedisServer::start();
    let owners = &S::owners("orders:mail");
    let writes = ["incrby", "decrby", "zadd", "zrem"];
    for (one, two) in writes.iter().flat_map(|one| writes.map(|two| (one, two))) {
        let mut rules = S::rights();
        rules.retain(|it| it != one && it != two);
        let client = open(&user(&server, &rules));
        let semaphore = S::of(&client, "mail");
        for has_dead in [false, true] {
            server.cmd(&["DEL", owners]);
            server.cmd(&["SET", "orders:mail", "2"]);
            if has_dead {
                server.cmd(&["ZADD", owners, "1", S::DEAD]);
            }
            for _ in 0..3 {
                if let Ok(Some(taken)) = semaphore.try_acquire(1) {
                    let released = taken.release();
                    assert_eq!(
                        released.is_err(),
                        *one == "incrby" || two == "incrby" || *one == "zrem" || two == "zrem",
                        "{released:?}"
                    );
                }
            }
            let (free, owned) = (
                server.int(&["GET", "orders:mail"]),
                server.int(&["ZCARD", owners]),
            );
            let all = 2 + i64::from(has_dead);
            assert_eq!(free + owned, all, "without {one} and {two}");
        }
    }
}

#[test]
fn no_two_missing_rights_make_permits_of_either_kind() {
    no_two_missing_rights_make_permits::<Semaphore>();
    no_two_missing_rights_make_permits::<PermitSemaphore>();
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
