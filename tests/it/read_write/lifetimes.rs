//! How long each hold lasts beside others: they share one hash, and each ends on its own.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redlatch::{Guard, Lock, LossCause, ReadWriteLock};

use super::{WAKE_UP, is_free, locks};
use crate::backends::{Backend, LEASE};
use crate::invariants::SLACK;
use crate::support::{RedisServer, elsewhere, eventually, ms, timed};

fn for_long(lock: &Lock) -> Lock {
    lock.with_lease_time(Duration::from_secs(60))
}

/// Acquires a lock in a thread that ends, so that it is neither renewed nor released.
fn left_alone(lock: &Lock) {
    elsewhere(|| std::mem::forget(lock.guard().unwrap()));
}

fn each_read_hold_ends_on_its_own(backend: &Backend) {
    let [one, two] = locks(backend);
    let (short, long) = (ms(600), ms(5000));
    let began = Instant::now();
    left_alone(&one.read().with_lease_time(short));
    let reading = two.read().with_lease_time(long).guard().unwrap();
    // The second hold extends the hash, not the first hold, and ends on its own.
    left_alone(&one.read().with_lease_time(short));
    assert!(!is_free(&two.write()));
    thread::sleep(short + ms(200));
    assert!(reading.is_valid() && !is_free(&one.write()));
    reading.unlock().unwrap();
    assert!(is_free(&one.write()), "the others are over");
    assert!(began.elapsed() < long, "a busy machine proves nothing");
    // A hold that ends with its lease frees the lock for a writer, too.
    left_alone(&two.read().with_lease_time(short));
    let (took, ()) = timed(|| one.write().lock().unwrap());
    assert!(
        took > short / 2 && took < short + WAKE_UP + SLACK,
        "{took:?}"
    );
    one.write().unlock().unwrap();
}

fn a_dead_reader_ends_with_its_lease(backend: &Backend) {
    let [one, two] = locks(backend);
    // Its thread has ended, so it is no longer renewed.
    left_alone(&one.read());
    let reading = two.read().guard().unwrap();
    thread::sleep(LEASE * 2);
    assert!(reading.is_valid());
    reading.unlock().unwrap();
    assert!(
        is_free(&two.write()),
        "it is over, though another was renewed"
    );
}

fn both_sides_are_renewed(backend: &Backend) {
    let [one, two] = locks(backend);
    let writing = one.write().guard().unwrap();
    let reading = one.read().guard().unwrap();
    thread::sleep(LEASE * 2);
    assert!(writing.is_valid() && reading.is_valid());
    writing.unlock().unwrap();
    let other = two.read().guard().unwrap();
    thread::sleep(LEASE * 2);
    assert!(reading.is_valid() && other.is_valid());
    assert!(!is_free(&two.write()));
    reading.unlock().unwrap();
    thread::sleep(LEASE * 2);
    assert!(other.is_valid() && !is_free(&one.write()));
    other.unlock().unwrap();
    assert!(is_free(&one.write()));
}

fn losing_the_write_side_keeps_the_read_side(backend: &Backend) {
    let [one, two] = locks(backend);
    let writing = one.write().with_lease_time(ms(500)).guard().unwrap();
    let reading = for_long(&one.read()).guard().unwrap();
    let losses = writing.lost();
    assert!(!is_free(&two.read()));
    // It ends by its lease, and readers enter long before the other side's lease ends.
    let (took, other) = timed(|| two.read().guard().unwrap());
    assert!(took < ms(500) + WAKE_UP + SLACK, "{took:?}");
    let loss = losses.recv_timeout(SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::LeaseEnded);
    assert!(reading.is_valid() && !writing.is_valid());
    assert!(writing.unlock().unwrap_err().is_lost());
    other.unlock().unwrap();
    assert!(reading.is_valid() && !is_free(&two.write()));
    reading.unlock().unwrap();
    assert!(is_free(&two.write()));
}

/// One thread and its holds of both sides.
struct Actor {
    sides: [Lock; 2],
    held: [Vec<Guard>; 2],
}

impl Actor {
    fn new(lock: &ReadWriteLock) -> Actor {
        Actor {
            sides: [lock.read(), lock.write()],
            held: Default::default(),
        }
    }

    fn act(&mut self, rng: &mut Rng) {
        let side = rng.usize(..2);
        match rng.u8(0..10) {
            0..5 => {
                let lease = ms(rng.u64(40..1500));
                let lock = match rng.bool() {
                    true => self.sides[side].with_lease_time(lease),
                    false => self.sides[side].clone(),
                };
                // An upgrade is refused, and the other actor may hold the lock.
                if let Ok(Some(guard)) = lock.try_guard() {
                    self.held[side].push(guard);
                }
            }
            5..9 => {
                let held = &mut self.held[side];
                if !held.is_empty() {
                    drop(held.swap_remove(rng.usize(..held.len())));
                }
            }
            _ => thread::sleep(ms(rng.u64(..120))),
        }
    }

    fn has(&self, side: usize) -> bool {
        self.held[side].iter().any(Guard::is_valid)
    }
}

/// In any order of acquisitions, re-entries and releases, each valid hold is in the store, and valid holds of two
/// threads exclude each other.
fn validity_never_outlives_the_lock(backend: &Backend) {
    let [one, two] = locks(backend);
    let mut rng = Rng::with_seed(7);
    for _ in 0..12 {
        let mut actor = Actor::new(&one);
        for _ in 0..25 {
            actor.act(&mut rng);
            let [reads, writes] = [0, 1].map(|side| actor.has(side));
            let stand = [0, 1].map(|side| actor.sides[side].is_held_by_current_thread().unwrap());
            // A lease may have ended in between.
            let [still_reads, still_writes] = [0, 1].map(|side| actor.has(side));
            assert!(!(reads && still_reads) || stand[0], "it reads");
            assert!(!(writes && still_writes) || stand[1], "it writes");
            let free = is_free(&two.read());
            assert!(!(free && writes && actor.has(1)), "beside a writer");
            let free = is_free(&two.write());
            let is_held = reads && actor.has(0) || writes && actor.has(1);
            assert!(!(free && is_held), "beside a holder");
        }
        drop(actor);
        eventually(SLACK, "nothing is left", || is_free(&two.write()));
    }
}

laws! {
    kind {
        each_read_hold_ends_on_its_own
        a_dead_reader_ends_with_its_lease
        both_sides_are_renewed
        losing_the_write_side_keeps_the_read_side
        validity_never_outlives_the_lock
    }
}

/// The server and a client of it whose watchdog lease is [`LEASE`].
fn on_a_server() -> (RedisServer, ReadWriteLock) {
    let server = RedisServer::start();
    let client = redlatch::Client::builder().watchdog_timeout(LEASE);
    let lock = client
        .open(&server.url())
        .unwrap()
        .read_write_lock("prices");
    (server, lock)
}

/// Redisson's renewal gives the hash, and before 4.4 each timeout key, the lease of its own watchdog.
#[test]
fn a_long_fixed_read_survives_the_renewals_of_others() {
    let (server, lock) = on_a_server();
    let reading = for_long(&lock.read()).guard().unwrap();
    let own = format!("{{prices}}:{}:rwlock_timeout:1", reading.visitor());
    for keys in [&["prices"][..], &["prices", &own]] {
        for key in keys {
            server.cmd(&["PEXPIRE", key, "900"]);
        }
        thread::sleep(ms(1500));
        for key in ["prices", &own] {
            let left = server.int(&["PTTL", key]);
            assert!(left > 50_000, "{key}: {left}");
        }
    }
    assert!(reading.is_valid());
    reading.unlock().unwrap();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn a_reader_without_its_timeout_key_is_reported() {
    let (server, lock) = on_a_server();
    for side in [lock.read(), for_long(&lock.read())] {
        let reading = side.guard().unwrap();
        let own = format!("{{prices}}:{}:rwlock_timeout:1", reading.visitor());
        let losses = reading.lost();
        server.cmd(&["DEL", &own]);
        let loss = losses.recv_timeout(LEASE + SLACK).unwrap();
        assert_eq!(loss.cause, LossCause::Gone);
        eventually(SLACK, "nothing is left", || server.int(&["DBSIZE"]) == 0);
        assert!(reading.unlock().unwrap_err().is_lost());
    }
}
