//! The notes on writers that wait: requests that write and remove them are lost and late, and those who left them die.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use redlatch::Client;

use super::WAKE_UP;
use super::faults::{LOST, Scene};
use crate::invariants::{RW_WITHDRAW, RW_WRITE, SLACK};
use crate::support::{End, Fault, elsewhere, eventually, ms, timed};

/// A dead writer counts for three seconds, and a reader that was turned away looks again after one.
const BEHIND_THE_DEAD: Duration = ms(4000);

const NOTES: &str = "redlatch_rw:{prices}";

impl Scene {
    fn noted(&self) -> Vec<String> {
        let fields: Vec<String> =
            ::redis::from_redis_value(self.server.cmd(&["HKEYS", NOTES])).unwrap();
        fields
            .into_iter()
            .filter(|it| it.ends_with(":write"))
            .collect()
    }

    /// The time of the server, s and µs.
    fn now(&self) -> (i64, i64) {
        ::redis::from_redis_value(self.server.cmd(&["TIME"])).unwrap()
    }

    /// Keeps the lock for readers until so many ms from now.
    fn keep_for_readers(&self, rest: i64) {
        let now = self.now();
        let window = (now.0 * 1000 + now.1 / 1000 + rest).to_string();
        self.server.cmd(&["HSET", NOTES, "window", &window]);
    }

    /// Notes a writer of another process that came now and counts until so many ms from now.
    fn note(&self, writer: &str, ends: i64) {
        let now = self.now();
        let (came, now) = (now.0 * 1_000_000 + now.1, now.0 * 1000 + now.1 / 1000);
        let noted = format!("{came}:{}", now + ends);
        self.server.cmd(&["HSET", NOTES, writer, &noted]);
        self.server.cmd(&["PEXPIRE", NOTES, "60000"]);
    }
}

#[test]
fn a_request_that_notes_a_writer_may_be_lost_or_late() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    for fault in LOST.into_iter().chain([Fault::Hold]) {
        let reading = other.read().guard().unwrap();
        let rule = scene.next(1, RW_WRITE, fault);
        let taken = elsewhere(|| scene.lock.write().try_lock_for(ms(700)));
        assert!(
            !taken.is_ok_and(|taken| taken),
            "{fault:?}: beside a reader"
        );
        assert_eq!(rule.hits(), 1, "{fault:?}");
        if let Fault::Hold = fault {
            // It notes a writer that waits no more.
            rule.release();
        }
        let (took, ()) = timed(|| elsewhere(|| other.read().run(|_| ()).unwrap()));
        assert!(took < BEHIND_THE_DEAD + SLACK, "{fault:?}: {took:?}");
        reading.unlock().unwrap();
        eventually(ms(9000), "nobody is noted", || scene.noted().is_empty());
        scene.all_goes();
    }
}

#[test]
fn a_request_that_removes_a_note_may_be_lost() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    let always = (usize::MAX, Fault::SwallowRequest(End::Silent));
    for (times, fault) in LOST.map(|fault| (1, fault)).into_iter().chain([always]) {
        let reading = other.read().guard().unwrap();
        let rule = scene.next(times, RW_WITHDRAW, fault);
        assert!(!elsewhere(|| scene
            .lock
            .write()
            .try_lock_for(ms(300))
            .unwrap()));
        let (took, ()) = timed(|| elsewhere(|| other.read().run(|_| ()).unwrap()));
        assert!(took < BEHIND_THE_DEAD + SLACK, "{fault:?}: {took:?}");
        assert!(rule.hits() > 0, "{fault:?}");
        scene.proxy.heal();
        reading.unlock().unwrap();
        scene.all_goes();
    }
}

#[test]
fn a_late_removal_leaves_a_later_wait_alone() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    let reading = other.read().guard().unwrap();
    let rule = scene.next(1, RW_WITHDRAW, Fault::Hold);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            assert!(!scene.lock.write().try_lock_for(ms(300)).unwrap());
            scene.lock.write().run(|_| ()).unwrap();
        });
        eventually(ms(3000), "it waits again", || {
            rule.hits() == 1 && scene.noted().len() == 2
        });
        rule.release();
        thread::sleep(ms(300));
        assert_eq!(scene.noted().len(), 1, "the first wait is over");
        assert!(!elsewhere(|| other.read().try_lock().unwrap()), "its turn");
        reading.unlock().unwrap();
        waits.join().unwrap();
    });
    assert!(scene.noted().is_empty());
    scene.all_goes();
}

#[test]
fn dead_writers_end_and_are_forgotten() {
    let scene = Scene::new();
    let reading = scene.lock.read().guard().unwrap();
    scene.note("dead:1:1:write", 3000);
    let (took, ()) = timed(|| elsewhere(|| scene.lock.read().run(|_| ()).unwrap()));
    assert!(
        took > ms(1500) && took < BEHIND_THE_DEAD + SLACK,
        "{took:?}"
    );
    reading.unlock().unwrap();
    // One that is dead keeps no writer out for longer, either.
    let (took, ()) = timed(|| scene.lock.write().run(|_| ()).unwrap());
    assert!(took < WAKE_UP, "{took:?}");
    scene.note("dead:1:2:write", 3000);
    let (took, ()) = timed(|| scene.lock.write().run(|_| ()).unwrap());
    assert!(
        took > ms(1500) && took < BEHIND_THE_DEAD + SLACK,
        "{took:?}"
    );
    // Others go on to wait there, and yet the dead are no more.
    scene.note("dead:1:3:write", -6100);
    let reading = scene.lock.read().guard().unwrap();
    assert!(!elsewhere(|| scene
        .lock
        .write()
        .try_lock_for(ms(300))
        .unwrap()));
    reading.unlock().unwrap();
    scene.lock.write().run(|_| ()).unwrap();
    assert!(!scene.noted().contains(&"dead:1:3:write".to_owned()));
}

#[test]
fn a_client_that_shuts_down_while_it_waits_leaves_no_note() {
    let scene = Scene::new();
    let reading = scene.lock.read().guard().unwrap();
    let client = Client::builder().command_timeout(SLACK * 4);
    let client = client.open(&scene.server.url()).unwrap();
    let other = client.read_write_lock("prices");
    thread::scope(|scope| {
        let waits = scope.spawn(|| other.write().lock());
        eventually(SLACK * 4, "it waits", || scene.noted().len() == 1);
        client.shutdown();
        assert!(waits.join().unwrap().is_err());
    });
    assert_eq!(scene.noted(), [""; 0]);
    let (took, ()) = timed(|| elsewhere(|| scene.lock.read().run(|_| ()).unwrap()));
    assert!(took < WAKE_UP, "{took:?}");
    reading.unlock().unwrap();
}

#[test]
fn notes_of_a_clock_that_was_set_count_for_nothing() {
    let scene = Scene::new();
    scene.note("ahead:1:1:write", 3_600_000);
    scene
        .server
        .cmd(&["HSET", NOTES, "window", "9999999999999"]);
    for side in [scene.lock.read(), scene.lock.write()] {
        let (took, ()) = timed(|| side.run(|_| ()).unwrap());
        assert!(took < WAKE_UP, "{took:?}");
    }
}

#[test]
fn a_free_lock_that_is_kept_for_readers_turns_none_away() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    let may_read = || {
        elsewhere(|| {
            let taken = scene.lock.read().try_lock().unwrap();
            taken.then(|| scene.lock.read().unlock().unwrap()).is_some()
        })
    };
    scene.note("other:1:1:write", 3000);
    assert!(!may_read(), "the turn of the other");
    scene.keep_for_readers(900);
    assert!(may_read());
    let reading = other.read().guard().unwrap();
    assert!(!may_read(), "it is not free");
    reading.unlock().unwrap();
    scene.keep_for_readers(-1);
    assert!(!may_read(), "no more");
}

#[test]
fn the_last_reader_to_come_ends_the_time_that_is_kept_for_readers() {
    // With one that has given up the time runs on, and a writer comes in behind it.
    for gone in [0, 1] {
        let scene = Scene::new();
        let (_client, other) = scene.other(Duration::from_secs(30));
        let text = |field: &str| {
            let noted = scene.server.cmd(&["HGET", NOTES, field]);
            ::redis::from_redis_value::<Option<String>>(noted).unwrap()
        };
        let both_are_in = Barrier::new(2);
        let reads = |_: &redlatch::Guard| {
            both_are_in.wait();
            ["due", "window"].map(text)
        };
        let found = thread::scope(|scope| {
            let writing = scene.lock.write().guard().unwrap();
            let readers = [0, 1].map(|_| scope.spawn(|| other.read().run(reads).unwrap()));
            eventually(SLACK * 4, "both wait", || {
                text("turned").is_some_and(|it| it.ends_with(",2"))
            });
            // As if one of them needed long to come.
            let turned = format!("500,{}", 2 + gone);
            scene.server.cmd(&["HSET", NOTES, "turned", &turned]);
            writing.unlock().unwrap();
            readers.map(|it| it.join().unwrap())
        });
        for [due, window] in found {
            assert_eq!(due, Some(format!("0,{gone}")));
            assert_eq!(window.is_some(), gone == 1);
        }
        scene.lock.write().run(|_| ()).unwrap();
        eventually(ms(9500), "they end", || {
            scene.server.int(&["EXISTS", NOTES]) == 0
        });
    }
}

#[test]
fn a_reader_behind_writers_that_died_is_one_reader() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    let turned = || -> Option<String> {
        ::redis::from_redis_value(scene.server.cmd(&["HGET", NOTES, "turned"])).unwrap()
    };
    thread::scope(|scope| {
        // Its thread ends without unlocking.
        elsewhere(|| scene.lock.write().lock().unwrap());
        let read = other.read().with_backoff(ms(50), ms(50));
        let reads = scope.spawn(move || read.run(|_| ()).unwrap());
        eventually(SLACK, "it waits", || turned().is_some());
        for phase in 2..5 {
            // The lease of the writer ends, and the next one is quicker than the reader.
            let hash = ["HSET", "prices", "mode", "write", "other:1:1:write", "1"];
            scene.server.in_one_step(&[
                &["DEL", "prices"],
                &hash,
                &["PEXPIRE", "prices", "30000"],
                &["HSET", NOTES, "phase", &phase.to_string()],
            ]);
            thread::sleep(ms(300));
        }
        let turned = turned().unwrap();
        assert!(turned.ends_with(",1"), "{turned}");
        scene.server.cmd(&["DEL", "prices"]);
        reads.join().unwrap();
    });
}

#[test]
fn a_forced_release_of_a_writer_leaves_the_lock_to_readers() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    let fields = |names: [&str; 2]| -> Vec<Option<String>> {
        let words = ["HMGET", NOTES, names[0], names[1]];
        ::redis::from_redis_value(scene.server.cmd(&words)).unwrap()
    };
    let writing = scene.lock.write().guard().unwrap();
    thread::scope(|scope| {
        let due = scope.spawn(|| other.read().run(|_| fields(["due", "window"])).unwrap());
        eventually(SLACK, "it waits", || fields(["turned"; 2])[0].is_some());
        assert!(other.write().force_unlock().unwrap());
        let due = due.join().unwrap();
        assert_eq!(due, [Some("0,0".to_owned()), None], "it was waited for");
    });
    assert!(writing.unlock().unwrap_err().is_lost());
}

#[test]
fn notes_that_a_takeover_forgot_are_written_again() {
    let scene = Scene::new();
    let reading = scene.lock.read().guard().unwrap();
    let (_client, other) = scene.other(Duration::from_secs(30));
    thread::scope(|scope| {
        let waits = scope.spawn(|| other.write().run(|_| ()).unwrap());
        eventually(ms(3000), "it waits", || scene.noted().len() == 1);
        scene.server.cmd(&["DEL", NOTES]);
        eventually(ms(1100) + SLACK, "it is noted again", || {
            scene.noted().len() == 1
        });
        assert!(!elsewhere(|| scene.lock.read().try_lock().unwrap()));
        reading.unlock().unwrap();
        waits.join().unwrap();
    });
    // A phase that begins anew keeps nobody out.
    scene.lock.read().run(|_| ()).unwrap();
}

#[test]
fn notes_never_stand_for_ever() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    let lives = || {
        let left = scene.server.int(&["PTTL", NOTES]);
        assert!(left != -1 && left <= 9000, "{left}");
        left
    };
    let writing = scene.lock.write().guard().unwrap();
    thread::scope(|scope| {
        // Only a reader waits, so that nothing but its wish is noted.
        let reads = scope.spawn(|| other.read().run(|_| lives()).unwrap());
        eventually(ms(3000), "it waits", || {
            scene.server.int(&["HEXISTS", NOTES, "turned"]) == 1
        });
        thread::sleep(ms(3500));
        assert!(lives() > 0, "as long as it waits");
        writing.unlock().unwrap();
        assert!(lives() > 0, "its time to come");
        reads.join().unwrap();
    });
    eventually(ms(9500), "they end", || lives() == -2);
}

#[test]
fn a_key_of_another_type_costs_turns_alone() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    scene.server.cmd(&["SET", NOTES, "a text"]);
    let reading = scene.lock.read().guard().unwrap();
    assert!(!elsewhere(|| other.write().try_lock_for(ms(300)).unwrap()));
    other.read().run(|_| ()).unwrap();
    reading.unlock().unwrap();
    other.write().run(|_| ()).unwrap();
}
