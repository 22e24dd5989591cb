//! A user with no more rights than conditions need, and one that lacks some of them.

use std::sync::mpsc;
use std::thread;

use redlatch::{Client, Error};

use super::{LONG, is_woken, start};
use crate::acl::{PREFIX, for_conditions, for_locks, is_named, user};
use crate::support::{RedisServer, ms};

fn open(url: &str) -> Client {
    let builder = crate::invariants::quick().key_prefix(PREFIX);
    builder.open(url).unwrap()
}

#[test]
fn the_rights_for_conditions_are_enough() {
    let server = RedisServer::start();
    let rules = for_locks().union(&for_conditions()).cloned().collect();
    let client = open(&user(&server, &rules));
    let lock = client.lock("basket");
    let condition = lock.condition("filled");
    let pair = (lock, condition);
    let (sender, woken) = mpsc::channel();
    thread::scope(|scope| {
        start(scope, &pair, 2, &sender, 1, is_woken);
        start(scope, &pair, 1, &sender, 2, |it| {
            assert!(!it.wait_for(ms(300)).unwrap());
        });
        assert_eq!(woken.recv_timeout(LONG), Ok(2));
        let (lock, condition) = &pair;
        lock.lock().unwrap();
        assert_eq!(condition.signal_all().unwrap(), 1);
        lock.unlock().unwrap();
        assert_eq!(woken.recv_timeout(LONG), Ok(1));
    });
}

#[test]
fn each_right_for_conditions_is_needed_and_named() {
    let server = RedisServer::start();
    for lacking in for_conditions() {
        server.cmd(&["FLUSHALL"]);
        server.cmd(&["SCRIPT", "FLUSH"]);
        let mut rules = for_locks();
        rules.extend(for_conditions());
        rules.remove(&lacking);
        let client = open(&user(&server, &rules));
        let lock = client.lock("basket");
        let condition = lock.condition("filled");
        lock.lock().unwrap();
        let mut errors = Vec::new();
        errors.extend(condition.wait_for(ms(1)).err());
        assert!(
            lock.is_valid(),
            "{lacking}: a wait that fails at once leaves the lock held"
        );
        let channel = "redlatch_condition:{orders:basket}:filled";
        for (set, score) in [("waiting", "1"), ("due", "9000000000000")] {
            server.cmd(&["ZADD", &format!("{channel}:{set}"), score, "c:1:1"]);
        }
        errors.extend(condition.signal().err());
        lock.unlock().unwrap();
        is_named(&lacking, errors, true);
    }
}

#[test]
fn the_keys_of_those_who_wait_are_named() {
    let server = RedisServer::start();
    let rules = for_locks().union(&for_conditions()).cloned().collect();
    let url = user(&server, &rules);
    server.cmd(&["ACL", "SETUSER", "locks", "resetkeys", "~orders:*"]);
    let lock = open(&url).lock("basket");
    lock.lock().unwrap();
    let error = lock.condition("filled").wait().unwrap_err();
    let Error::Permission { missing, .. } = &error else {
        panic!("{error}");
    };
    let keys = ["due", "waiting"].map(|it| format!("~redlatch_condition:{{orders:basket}}:*:{it}"));
    assert_eq!(*missing, keys, "{error}");
    assert!(lock.is_valid());
    lock.unlock().unwrap();
}
