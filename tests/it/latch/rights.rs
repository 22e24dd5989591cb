//! A user with no more rights than latches need, and one that lacks some of them.

use std::thread;

use redlatch::{Client, Error};

use crate::acl::{PREFIX, for_latches, is_named, is_spare, user};
use crate::support::{RedisServer, ms};

fn open(url: &str) -> Client {
    let builder = crate::invariants::quick().key_prefix(PREFIX);
    builder.open(url).unwrap()
}

#[test]
fn the_rights_for_latches_are_enough() {
    let server = RedisServer::start();
    let client = open(&user(&server, &for_latches()));
    let latch = client.latch("import");
    assert!(latch.try_set(2).unwrap());
    assert!(!latch.try_set(2).unwrap());
    thread::scope(|scope| {
        let waits = scope.spawn(|| latch.wait());
        thread::sleep(ms(300));
        assert_eq!(latch.count_down().unwrap(), 1);
        assert_eq!(latch.count_down().unwrap(), 0);
        waits.join().unwrap().unwrap();
    });
    assert!(latch.try_set(1).unwrap());
    assert!(latch.delete().unwrap());
}

#[test]
fn each_right_for_latches_is_needed_and_named() {
    let server = RedisServer::start();
    for lacking in for_latches() {
        server.cmd(&["FLUSHALL"]);
        server.cmd(&["SCRIPT", "FLUSH"]);
        let mut rules = for_latches();
        rules.remove(&lacking);
        let client = open(&user(&server, &rules));
        let latch = client.latch("import");
        let set = latch.try_set(2).err();
        server.cmd(&["SET", "orders:import", "2"]);
        let errors = [
            set,
            latch.count_down().err(),
            latch.count_down().err(),
            latch.count().err(),
            latch.delete().err(),
        ];
        let errors: Vec<_> = errors.into_iter().flatten().collect();
        is_named(&lacking, errors, !is_spare(&lacking));
        if is_spare(&lacking) {
            continue;
        }
        let keys = server.cmd(&["KEYS", "redlatch_once:*"]);
        let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
        if lacking == "decrby" {
            // Those of the two that were carried out.
            assert_eq!(keys.len(), 2, "what was not done is remembered: {keys:?}");
        }
    }
}

#[test]
fn the_key_of_an_answer_is_named() {
    let server = RedisServer::start();
    let url = user(&server, &for_latches());
    server.cmd(&["ACL", "SETUSER", "locks", "resetkeys", "~orders:*"]);
    let error = open(&url).latch("import").try_set(2).unwrap_err();
    let Error::Permission { missing, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*missing, ["~redlatch_once:{orders:import}:*"], "{error}");
}
