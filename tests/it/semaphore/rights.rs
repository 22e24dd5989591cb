//! A user with no more rights than semaphores need, and one that lacks some of them.

use std::thread;

use redlatch::Client;

use crate::acl::{PREFIX, for_semaphores, is_named, is_spare, user};
use crate::support::{RedisServer, ms};

fn open(url: &str) -> Client {
    let builder = crate::invariants::quick().key_prefix(PREFIX);
    builder.watchdog_timeout(ms(900)).open(url).unwrap()
}

#[test]
fn the_rights_for_semaphores_are_enough() {
    let server = RedisServer::start();
    let client = open(&user(&server, &for_semaphores()));
    let semaphore = client.semaphore("mail");
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
    assert_eq!(semaphore.drain().unwrap(), 3);
    assert!(semaphore.delete().unwrap());
    assert!(semaphore.try_set_for(1, ms(60_000)).unwrap());
    semaphore.acquire(1).unwrap().forget().unwrap();
}

#[test]
fn each_right_for_semaphores_is_needed_and_named() {
    let server = RedisServer::start();
    for lacking in for_semaphores() {
        server.cmd(&["FLUSHALL"]);
        server.cmd(&["SCRIPT", "FLUSH"]);
        let mut rules = for_semaphores();
        rules.remove(&lacking);
        let client = open(&user(&server, &rules));
        let semaphore = client.semaphore("mail");
        let set = semaphore.try_set(2).err();
        server.cmd(&["SET", "orders:mail", "2"]);
        // One that is dead, and is to be cleared up after.
        let owners = "redlatch_sc:{orders:mail}";
        server.cmd(&["ZADD", owners, "1", "1*dead:1:1"]);
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
            semaphore.drain().err(),
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
fn no_two_missing_rights_make_permits() {
    let server = RedisServer::start();
    let owners = "redlatch_sc:{orders:mail}";
    let writes = ["incrby", "decrby", "zadd", "zrem"];
    for (one, two) in writes.iter().flat_map(|one| writes.map(|two| (one, two))) {
        let mut rules = for_semaphores();
        rules.retain(|it| it != one && it != two);
        let client = open(&user(&server, &rules));
        let semaphore = client.semaphore("mail");
        for has_dead in [false, true] {
            server.cmd(&["DEL", owners]);
            server.cmd(&["SET", "orders:mail", "2"]);
            if has_dead {
                server.cmd(&["ZADD", owners, "1", "1*dead:1:1"]);
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
