//! The notes on those who wait: requests that write and remove them are lost and late, and those who left them die.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use redlatch::Client;

use super::WAKE_UP;
use super::faults::{LOST, Scene};
use crate::invariants::{RW_ACQUIRE, RW_WITHDRAW, SLACK};
use crate::support::{End, Fault, elsewhere, eventually, ms, timed};

/// One that died counts for three seconds, and others look again after one.
const BEHIND_THE_DEAD: Duration = ms(4000);

const NOTES: &str = "redlatch_rw:{prices}";

impl Scene {
    fn noted(&self) -> Vec<String> {
        let noted: Vec<String> =
            ::redis::from_redis_value(self.server.cmd(&["ZRANGE", NOTES, "0", "-1"])).unwrap();
        noted
            .into_iter()
            .filter(|it| it.ends_with(":write"))
            .collect()
    }

    /// Notes one of another process that came at a time of the server, or now, and looked so many ms ago.
    fn note(&self, visitor: &str, came: Option<i64>, ago: i64) {
        let now: (i64, i64) = ::redis::from_redis_value(self.server.cmd(&["TIME"])).unwrap();
        let now = now.0 * 1000 + now.1 / 1000;
        let looked = ((now - ago) / 100 % 2047 + 1) as f64 / 2048.0;
        let noted = came.unwrap_or(now) as f64 + looked;
        let words = ["ZADD", NOTES, &noted.to_string(), visitor];
        self.server.cmd(&words);
        self.server.cmd(&["PEXPIRE", NOTES, "60000"]);
        // Others come in a later millisecond.
        thread::sleep(ms(5));
    }
}

#[test]
fn a_request_that_notes_a_writer_may_be_lost_or_late() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    for fault in LOST.into_iter().chain([Fault::Hold]) {
        let reading = other.read().guard().unwrap();
        let rule = scene.next(1, RW_ACQUIRE, fault);
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
    scene.note("dead:1:1:write", None, 0);
    let (took, ()) = timed(|| elsewhere(|| scene.lock.read().run(|_| ()).unwrap()));
    assert!(
        took > ms(1500) && took < BEHIND_THE_DEAD + SLACK,
        "{took:?}"
    );
    reading.unlock().unwrap();
    // One that is dead keeps no writer out for longer, either.
    let (took, ()) = timed(|| scene.lock.write().run(|_| ()).unwrap());
    assert!(took < WAKE_UP, "{took:?}");
    scene.note("dead:1:2:write", None, 0);
    let (took, ()) = timed(|| scene.lock.write().run(|_| ()).unwrap());
    assert!(
        took > ms(1500) && took < BEHIND_THE_DEAD + SLACK,
        "{took:?}"
    );
    // Others go on to wait there, and yet the dead are no more.
    scene.note("dead:1:3:write", None, 3300);
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
fn a_reader_that_died_holds_writers_up_for_three_seconds() {
    let scene = Scene::new();
    // It waited for a writer that has left.
    scene.note("dead:1:1", Some(0), 0);
    let (took, ()) = timed(|| scene.lock.read().run(|_| ()).unwrap());
    assert!(took < WAKE_UP, "{took:?}");
    let (took, ()) = timed(|| scene.lock.write().run(|_| ()).unwrap());
    assert!(
        took > ms(1500) && took < BEHIND_THE_DEAD + SLACK,
        "{took:?}"
    );
}

#[test]
fn a_reader_that_gives_up_holds_no_writer_up() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    let writing = other.write().guard().unwrap();
    assert!(!elsewhere(|| scene
        .lock
        .read()
        .try_lock_for(ms(300))
        .unwrap()));
    writing.unlock().unwrap();
    let (took, ()) = timed(|| other.write().run(|_| ()).unwrap());
    assert!(took < WAKE_UP, "{took:?}");
}

#[test]
fn notes_of_a_clock_that_was_set_count_for_nothing() {
    let scene = Scene::new();
    scene.note("ahead:1:1:write", None, -60_000);
    for side in [scene.lock.read(), scene.lock.write()] {
        let (took, ()) = timed(|| side.run(|_| ()).unwrap());
        assert!(took < WAKE_UP, "{took:?}");
    }
}

#[test]
fn a_forced_release_of_a_writer_leaves_the_lock_to_readers() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    let count = |least: i64| scene.server.int(&["ZCARD", NOTES]) >= least;
    let writing = scene.lock.write().guard().unwrap();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (number, side) in [other.write(), other.read()].into_iter().enumerate() {
            let order = &order;
            scope.spawn(move || side.run(|_| order.lock().unwrap().push(number)).unwrap());
            eventually(SLACK * 4, "it waits", || {
                count(i64::try_from(number).unwrap() + 1)
            });
        }
        assert!(other.write().force_unlock().unwrap());
    });
    assert_eq!(order.into_inner().unwrap(), [1, 0]);
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
        let reads = scope.spawn(|| other.read().run(|_| lives()).unwrap());
        eventually(ms(3000), "it waits", || {
            scene.server.int(&["ZCARD", NOTES]) == 1
        });
        thread::sleep(ms(3500));
        assert!(lives() > 0, "as long as it waits");
        writing.unlock().unwrap();
        reads.join().unwrap();
    });
    eventually(ms(9500), "they end", || lives() == -2);
}

#[test]
fn a_key_of_another_type_costs_turns_alone() {
    let scene = Scene::new();
    let (_client, other) = scene.other(Duration::from_secs(30));
    scene.server.cmd(&["SET", NOTES, "a text", "EX", "100"]);
    let reading = scene.lock.read().guard().unwrap();
    assert!(!elsewhere(|| other.write().try_lock_for(ms(300)).unwrap()));
    other.read().run(|_| ()).unwrap();
    reading.unlock().unwrap();
    other.write().run(|_| ()).unwrap();
    assert!(
        scene.server.int(&["PTTL", NOTES]) > 50_000,
        "it is left alone"
    );
}
