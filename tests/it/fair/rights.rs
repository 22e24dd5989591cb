//! A user with no more rights than fair locks need, and one that lacks some of them.

use std::thread;

use redlatch::{Client, Error};

use crate::acl::{PREFIX, for_fair, is_named, is_spare, user};
use crate::laws::until_queued;
use crate::support::{RedisServer, eventually, ms};

fn open(url: &str) -> Client {
    let builder = Client::builder().command_timeout(ms(10_000));
    let builder = builder.key_prefix(PREFIX).watchdog_timeout(ms(900));
    builder.open(url).unwrap()
}

const QUEUE: &str = "redisson_lock_queue:{orders:tickets}";

#[test]
fn the_rights_for_fair_locks_are_enough() {
    let server = RedisServer::start();
    let [one, two] = [(); 2].map(|()| open(&user(&server, &for_fair())));
    let [one, two] = [&one, &two].map(|it| it.fair_lock("tickets"));
    one.lock().unwrap();
    thread::scope(|scope| {
        let leaves = scope.spawn(|| two.try_lock_for(ms(700)).unwrap());
        until_queued(&two, 1);
        let waits = scope.spawn(|| two.run(|_| ()).unwrap());
        until_queued(&two, 2);
        assert_eq!(one.waiters().unwrap(), 2);
        assert!(!leaves.join().unwrap());
        thread::sleep(ms(900));
        assert!(one.is_valid(), "it is renewed");
        one.lock().unwrap();
        one.unlock().unwrap();
        one.unlock().unwrap();
        waits.join().unwrap();
    });
    one.lock().unwrap();
    assert!(two.force_unlock().unwrap());
    assert!(one.unlock().unwrap_err().is_lost());
    eventually(ms(5000), "nothing is left", || server.int(&["DBSIZE"]) == 0);
}

#[test]
fn each_right_for_fair_locks_is_needed_and_named() {
    let rights: Vec<String> = for_fair().into_iter().collect();
    thread::scope(|scope| {
        for some in rights.chunks(rights.len().div_ceil(6)) {
            scope.spawn(|| {
                let server = RedisServer::start();
                some.iter()
                    .for_each(|right| is_needed_and_named(&server, right));
            });
        }
    });
}

fn is_needed_and_named(server: &RedisServer, lacking: &str) {
    let whole = Client::builder().key_prefix(PREFIX).open(&server.url());
    let whole = whole.unwrap().fair_lock("tickets");
    server.cmd(&["FLUSHALL"]);
    server.cmd(&["SCRIPT", "FLUSH"]);
    let mut rules = for_fair();
    rules.remove(lacking);
    let lock = open(&user(server, &rules)).fair_lock("tickets");
    let mut errors = Vec::new();
    let taken = lock.try_lock();
    if taken.is_err() {
        // What could not be finished was undone, if it may be.
        let is_whole = server.int(&["EXISTS", "orders:tickets"]) == 0;
        let ends = server.int(&["PTTL", "orders:tickets"]) > 0;
        assert!(is_whole || ends, "{lacking}");
    }
    errors.extend(taken.err());
    errors.extend(lock.try_lock().err());
    errors.extend(lock.unlock().err());
    errors.extend(lock.unlock().err());
    server.cmd(&["FLUSHALL"]);
    // Somebody has it, and those who wait are dead, or come back, or are as many as the times.
    whole.lock().unwrap();
    errors.extend(lock.is_locked().err());
    errors.extend(lock.waiters().err());
    for waiters in [&["a:1:1"][..], &["a:1:1", "b:1:1"]] {
        server.cmd(&[&["RPUSH", QUEUE], waiters].concat());
        errors.extend(lock.try_lock_for(ms(1300)).err());
    }
    errors.extend(lock.force_unlock().err());
    server.cmd(&["FLUSHALL"]);
    // The list was lost, and the times were not.
    server.cmd(&[
        "ZADD",
        "redisson_lock_timeout:{orders:tickets}",
        "1",
        "a:1:1",
    ]);
    errors.extend(lock.try_lock().err());
    errors.extend(lock.unlock().err());
    server.cmd(&["FLUSHALL"]);
    let _ = whole.unlock();
    // One that was taken out comes back behind another one.
    whole.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            lock.try_lock_for(ms(2500))
                .map(|taken| (taken, lock.unlock()))
        });
        thread::sleep(ms(300));
        server.cmd(&["DEL", QUEUE]);
        let times = "redisson_lock_timeout:{orders:tickets}";
        server.cmd(&["DEL", times]);
        server.cmd(&["ZADD", times, "9999999999999", "c:1:1"]);
        server.cmd(&["RPUSH", QUEUE, "c:1:1"]);
        thread::sleep(ms(1300));
        whole.unlock().unwrap();
        errors.extend(waits.join().unwrap().err());
    });
    errors.retain(|error| !error.is_lost() && !matches!(error, Error::NotHeld { .. }));
    // Without these a hash that is no lock takes longer, or one that gives up keeps its place until it is passed over.
    let spare = ["hlen", "lrem"];
    let is_needed = !is_spare(lacking) && !spare.contains(&lacking);
    is_named(lacking, errors, is_needed);
}
