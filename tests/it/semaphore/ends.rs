//! The notes on permits that are taken, and the end of their semaphore.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Error};

use crate::invariants::{PERMIT_IDS_ACQUIRE, PERMITS_ACQUIRE, SLACK, sha, teach};
use crate::support::{RedisServer, eventually, ms};

/// A kind of semaphore: its script, its visitor of one permit, and the key of its notes.
type Kind = (&'static str, &'static str, &'static str);

const KINDS: [Kind; 2] = [
    (PERMITS_ACQUIRE, "1*c:1:1", "redlatch_sc:{mail}"),
    (
        PERMIT_IDS_ACQUIRE,
        "000102030405060708090a0b0c0d0e0f",
        "{mail}:timeout",
    ),
];

/// Takes a permit for 20 s, as a client does.
fn acquire(server: &RedisServer, (script, visitor, notes): Kind) {
    let (sha, far) = (sha(script), "9000000000000");
    let keys = ["EVALSHA", &sha, "2", "mail", notes];
    let args = [visitor, "20000", "channel", far, "1"];
    server.cmd(&[&keys[..], &args].concat());
}

#[test]
fn notes_end_no_later_than_their_semaphore_however_long_a_request_takes() {
    let server = RedisServer::start();
    teach(&server);
    for kind in KINDS {
        for _ in 0..20 {
            server.cmd(&["SET", "mail", "10", "PX", "60000"]);
            // To give these back takes some ms between two looks at the clock.
            let add = "for i = 1, 5000 do redis.call('ZADD', KEYS[1], 1, '0*c:1:' .. i) end";
            server.cmd(&["EVAL", add, "1", kind.2]);
            acquire(&server, kind);
            // In a script, in which the time stands still.
            let ends = "return redis.call('PTTL', KEYS[1]) .. ' ' .. redis.call('PTTL', KEYS[2])";
            let ends = server.text(&["EVAL", ends, "2", "mail", kind.2]).unwrap();
            let (end, notes) = ends.split_once(' ').unwrap();
            let [end, notes]: [i64; 2] = [end, notes].map(|left| left.parse().unwrap());
            assert!(
                notes <= end && notes >= end - 50,
                "{} ms later",
                notes - end
            );
            server.cmd(&["DEL", "mail", kind.2]);
        }
    }
}

#[test]
fn what_stands_under_the_key_of_the_notes_is_left_as_it_is() {
    let server = RedisServer::start();
    let [one, two] = [(); 2].map(|()| Client::open(&server.url()).unwrap());
    let lock = one.lock("{mail}:timeout");
    let guard = lock.guard().unwrap();
    let semaphore = two.permit_semaphore("mail");
    let is_left = |told: Result<(), Error>| {
        assert!(matches!(told, Err(Error::WrongType { .. })), "{told:?}");
    };
    let refused = |told| {
        is_left(told);
        assert!(two.lock("{mail}:timeout").try_guard().unwrap().is_none());
    };
    refused(semaphore.try_set(3).map(drop));
    refused(semaphore.set(3).map(drop));
    refused(semaphore.try_acquire(1).map(drop));
    server.cmd(&["SET", "mail", "3", "PX", "60000"]);
    refused(semaphore.available().map(drop));
    refused(semaphore.try_acquire(1).map(drop));
    refused(semaphore.delete().map(drop));
    guard.unlock().unwrap();
    for (key, notes) in [("mail", "{mail}:timeout"), ("post", "redlatch_sc:{post}")] {
        server.cmd(&["SET", notes, "text"]);
        server.cmd(&["SET", key, "3", "PX", "60000"]);
    }
    is_left(semaphore.available().map(drop));
    two.semaphore("post").add_permits(1).unwrap();
    for notes in ["{mail}:timeout", "redlatch_sc:{post}"] {
        assert_eq!(server.int(&["PTTL", notes]), -1);
    }
}

#[test]
fn permits_outlive_an_end_that_is_lifted_however_long_their_lease_is() {
    let server = RedisServer::start();
    for (lease, life) in [(600_000, 2_500), (30_000, 1_500)] {
        let client = Client::builder().watchdog_timeout(ms(lease));
        let client = client.open(&server.url()).unwrap();
        let semaphore = client.semaphore("mail");
        assert!(semaphore.try_set_for(2, ms(life)).unwrap());
        let taken = semaphore.acquire(1).unwrap();
        assert_eq!(server.int(&["PERSIST", "mail"]), 1);
        assert_eq!(semaphore.available().unwrap(), 1);
        thread::sleep(ms(life) + ms(300));
        assert!(taken.is_valid(), "{lease} {life}");
        taken.release().unwrap();
        assert_eq!(semaphore.available().unwrap(), 2);
        assert!(semaphore.delete().unwrap());
    }
}

/// Nobody has told its handle that the end was lifted.
#[test]
fn a_fixed_lease_ends_where_its_semaphore_was_to_end_and_comes_back_with_its_own_end() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let semaphore = client.semaphore("mail");
    semaphore.try_set_for(3, ms(1000)).unwrap();
    let permit = semaphore.with_lease_time(ms(3000)).acquire(1).unwrap();
    server.cmd(&["PERSIST", "mail"]);
    assert!(permit.is_valid());
    assert_eq!(semaphore.available().unwrap(), 2);
    eventually(ms(1000) + SLACK, "it ends", || !permit.is_valid());
    assert!(permit.release().unwrap_err().is_lost());
    eventually(ms(3000) + SLACK, "it comes back", || {
        semaphore.available().unwrap() == 3
    });
}

#[test]
fn a_look_at_a_semaphore_writes_nothing_once_its_notes_end_with_it() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let changes = || server.info("rdb_changes_since_last_save");
    let semaphore = client
        .semaphore("mail")
        .with_lease_time(Duration::from_secs(60));
    assert!(semaphore.try_set_for(2, ms(60_000)).unwrap());
    let taken = semaphore.acquire(1).unwrap();
    let before = changes();
    for _ in 0..5 {
        assert_eq!(semaphore.available().unwrap(), 1);
        assert!(semaphore.try_acquire(2).unwrap().is_none());
    }
    assert_eq!(changes(), before);
    taken.release().unwrap();
}
