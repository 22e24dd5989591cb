//! A user with no more rights than read-write locks need, and one that lacks some of them.

use std::thread;

use redlatch::{Client, Error};

use crate::acl::{PREFIX, for_sides, is_named, is_spare, user};
use crate::invariants::SLACK;
use crate::support::{RedisServer, elsewhere, eventually, ms, timed};

fn open(url: &str) -> Client {
    let builder = crate::invariants::quick().key_prefix(PREFIX);
    builder.watchdog_timeout(ms(900)).open(url).unwrap()
}

#[test]
fn the_rights_for_read_write_locks_are_enough() {
    let server = RedisServer::start();
    let client = open(&user(&server, &for_sides()));
    let lock = client.read_write_lock("prices");
    let (read, write) = (lock.read(), lock.write());
    let writing = write.guard().unwrap();
    let reading = read.guard().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| read.guard().unwrap().unlock());
        thread::sleep(ms(1500));
        assert!(writing.is_valid() && reading.is_valid(), "they are renewed");
        read.lock().unwrap();
        read.unlock().unwrap();
        writing.unlock().unwrap();
        waits.join().unwrap().unwrap();
    });
    assert!(read.is_locked().unwrap() && !elsewhere(|| write.try_lock().unwrap()));
    assert!(read.force_unlock().unwrap());
    assert!(reading.unlock().unwrap_err().is_lost());
}

#[test]
fn each_right_for_read_write_locks_is_needed_and_named() {
    let server = RedisServer::start();
    for lacking in for_sides() {
        server.cmd(&["FLUSHALL"]);
        server.cmd(&["SCRIPT", "FLUSH"]);
        let mut rules = for_sides();
        rules.remove(&lacking);
        let client = open(&user(&server, &rules));
        let lock = client.read_write_lock("prices");
        let mut errors = Vec::new();
        for side in [lock.read(), lock.write()] {
            let taken = side.try_lock();
            if let Err(error) = &taken {
                assert!(!error.is_ambiguous(), "without {lacking}: {error}");
                // What could not be finished was undone, if it may be.
                let is_whole = server.int(&["EXISTS", "orders:prices"]) == 0;
                assert!(
                    is_whole || server.int(&["PTTL", "orders:prices"]) > 0,
                    "{lacking}"
                );
            }
            errors.extend(taken.err());
            server.cmd(&["FLUSHALL"]);
            let other = Client::builder()
                .key_prefix(PREFIX)
                .open(&server.url())
                .unwrap();
            let other = other.read_write_lock("prices");
            let held = [other.read(), other.write()];
            for held in &held {
                held.lock().unwrap();
                errors.extend(side.is_locked().err());
                errors.extend(elsewhere(|| side.try_lock().err()));
                errors.extend(side.force_unlock().err());
                server.cmd(&["FLUSHALL"]);
                let _ = held.unlock();
            }
            // Two readers, of which the second one has to look at the first; or a writer alone.
            if side.try_lock().is_ok_and(|taken| taken) {
                let _ = elsewhere(|| lock.read().try_lock());
                errors.extend(side.try_lock().err());
                errors.extend(side.unlock().err());
                errors.extend(side.unlock().err());
            }
            server.cmd(&["FLUSHALL"]);
        }
        errors.retain(|error| !error.is_lost() && !matches!(error, Error::NotHeld { .. }));
        // Without these only the turns are missing.
        let turns = ["zadd", "zrange", "zrem", "zscore"];
        let is_needed = !is_spare(&lacking) && !turns.contains(&&*lacking);
        is_named(&lacking, errors, is_needed);
    }
}

/// It costs the others no more than its own look, once a second.
#[test]
fn a_writer_that_hears_nothing_costs_the_others_a_second_at_its_turn() {
    let server = RedisServer::start();
    let mut rules = for_sides();
    assert!(rules.remove("subscribe"));
    let deaf = open(&user(&server, &rules)).read_write_lock("prices");
    let others = [(); 2].map(|()| open(&server.url()).read_write_lock("prices"));
    let noted = || server.int(&["ZCARD", "redlatch_rw:{orders:prices}"]);
    let mut longest = ms(0);
    for _ in 0..4 {
        let writing = others[0].write().guard().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| deaf.write().run(|_| ()).unwrap());
            eventually(ms(5000), "it is noted", || noted() > 0);
            let before = noted();
            let behind = scope.spawn(|| others[1].write().run(|_| ()).unwrap());
            eventually(ms(5000), "so is the other", || noted() > before);
            let (took, ()) = timed(|| {
                writing.unlock().unwrap();
                behind.join().unwrap();
            });
            longest = longest.max(took);
            assert!(took < ms(1100) + SLACK, "{took:?}");
        });
    }
    assert!(longest > ms(100), "it is not told: {longest:?}");
}
