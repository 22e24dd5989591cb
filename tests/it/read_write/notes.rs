//! The notes that waiting writers and readers leave, and their cost after the waiters' death.

use std::thread;
use std::time::Duration;

use redlatch::{Client, ReadWriteLock};

use super::WAKE_UP;
use crate::invariants::{SLACK, quick};
use crate::support::{RedisServer, elsewhere, eventually, ms, timed};

/// A dead waiter counts for three seconds, and other waiters poll after one.
const BEHIND_THE_DEAD: Duration = ms(4000);

const NOTES: &str = "redlatch_rw:{prices}";

/// A lock on a server.
struct Fixture {
    _client: Client,
    lock: ReadWriteLock,
    server: RedisServer,
}

impl Fixture {
    fn new() -> Fixture {
        let server = RedisServer::start();
        let client = quick().open(&server.url()).unwrap();
        Fixture {
            lock: client.read_write_lock("prices"),
            _client: client,
            server,
        }
    }

    fn noted(&self) -> Vec<String> {
        let noted: Vec<String> =
            ::redis::from_redis_value(self.server.cmd(&["ZRANGE", NOTES, "0", "-1"])).unwrap();
        noted
            .into_iter()
            .filter(|it| it.ends_with(":write"))
            .collect()
    }

    /// Adds the note of another process that came at a time of the server, or now, and sent its last query this many
    /// ms ago.
    fn note(&self, visitor: &str, came: Option<i64>, ago: i64) {
        let now: (i64, i64) = ::redis::from_redis_value(self.server.cmd(&["TIME"])).unwrap();
        let now = now.0 * 1000 + now.1 / 1000;
        let looked = ((now - ago) / 100 % 2047 + 1) as f64 / 2048.0;
        let noted = came.unwrap_or(now) as f64 + looked;
        let words = ["ZADD", NOTES, &noted.to_string(), visitor];
        self.server.cmd(&words);
        self.server.cmd(&["PEXPIRE", NOTES, "60000"]);
        // Later waiters come in a later millisecond.
        thread::sleep(ms(5));
    }
}

#[test]
fn dead_writers_end_and_are_forgotten() {
    let fixture = Fixture::new();
    let reading = fixture.lock.read().guard().unwrap();
    fixture.note("dead:1:1:write", None, 0);
    let (took, ()) = timed(|| elsewhere(|| fixture.lock.read().run(|_| ()).unwrap()));
    assert!(
        took > ms(1500) && took < BEHIND_THE_DEAD + SLACK,
        "{took:?}"
    );
    reading.unlock().unwrap();
    // A dead reader keeps no writer out for longer, either.
    let (took, ()) = timed(|| fixture.lock.write().run(|_| ()).unwrap());
    assert!(took < WAKE_UP, "{took:?}");
    fixture.note("dead:1:2:write", None, 0);
    let (took, ()) = timed(|| fixture.lock.write().run(|_| ()).unwrap());
    assert!(
        took > ms(1500) && took < BEHIND_THE_DEAD + SLACK,
        "{took:?}"
    );
    // Other waiters continue, and the dead are removed.
    fixture.note("dead:1:3:write", None, 3300);
    let reading = fixture.lock.read().guard().unwrap();
    assert!(!elsewhere(|| fixture
        .lock
        .write()
        .try_lock_for(ms(300))
        .unwrap()));
    reading.unlock().unwrap();
    fixture.lock.write().run(|_| ()).unwrap();
    assert!(!fixture.noted().contains(&"dead:1:3:write".to_owned()));
}

#[test]
fn a_client_shut_down_while_it_waits_leaves_no_note() {
    let fixture = Fixture::new();
    let reading = fixture.lock.read().guard().unwrap();
    let client = Client::builder().command_timeout(SLACK * 4);
    let client = client.open(&fixture.server.url()).unwrap();
    let other = client.read_write_lock("prices");
    thread::scope(|scope| {
        let waits = scope.spawn(|| other.write().lock());
        eventually(SLACK * 4, "it waits", || fixture.noted().len() == 1);
        client.shutdown();
        assert!(waits.join().unwrap().is_err());
    });
    assert_eq!(fixture.noted(), [""; 0]);
    let (took, ()) = timed(|| elsewhere(|| fixture.lock.read().run(|_| ()).unwrap()));
    assert!(took < WAKE_UP, "{took:?}");
    reading.unlock().unwrap();
}

#[test]
fn a_dead_reader_blocks_writers_for_three_seconds() {
    let fixture = Fixture::new();
    // It waited for a writer that has left.
    fixture.note("dead:1:1", Some(0), 0);
    let (took, ()) = timed(|| fixture.lock.read().run(|_| ()).unwrap());
    assert!(took < WAKE_UP, "{took:?}");
    let (took, ()) = timed(|| fixture.lock.write().run(|_| ()).unwrap());
    assert!(
        took > ms(1500) && took < BEHIND_THE_DEAD + SLACK,
        "{took:?}"
    );
}
