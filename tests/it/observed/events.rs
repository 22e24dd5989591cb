//! Which events an observer receives, and when.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use redlatch::{Client, Event, Observer, Redlock};

use super::{eventually, open};
use crate::support::{RedisServer, ms};

/// Records events as text.
#[derive(Default)]
pub(crate) struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn event(&self, event: &Event<'_>) {
        let said = match event {
            Event::Acquired {
                class, lock, via, ..
            } => format!("{class} {lock} acquired {via}"),
            Event::NotAcquired { lock, outcome, .. } => format!("{lock} {outcome}"),
            Event::Contended { lock, .. } => format!("{lock} contended"),
            Event::Ended { lock, end, .. } => format!("{lock} {end}"),
            Event::Lost { loss, .. } => format!("{} gone: {}", loss.lock, loss.cause),
            Event::Request {
                operation, result, ..
            } => format!("{operation} {result}"),
            Event::Connected { node, result, .. } => format!("{node} connected {result}"),
            Event::LongWait {
                lock,
                holder,
                others,
                ..
            } => {
                format!("{lock} long wait, {} others, {}", others, holder.is_some())
            }
            Event::LongHold { lock, .. } => format!("{lock} long hold"),
            _ => "something new".to_owned(),
        };
        self.0.lock().unwrap().push(said);
    }
}

impl Notes {
    pub(crate) fn said(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, text: &str) -> usize {
        self.said()
            .iter()
            .filter(|said| said.contains(text))
            .count()
    }
}

#[test]
fn an_observer_receives_all_events_in_order() {
    let notes = Arc::new(Notes::default());
    let client = Client::builder()
        .observer(Arc::clone(&notes))
        .in_memory()
        .unwrap();
    let lock = client.lock("orders:1");
    lock.lock().unwrap();
    lock.lock().unwrap();
    lock.unlock().unwrap();
    lock.unlock().unwrap();
    let other = client.another().unwrap();
    other.lock("orders:1").lock().unwrap();
    assert!(!lock.try_lock().unwrap());
    // Clients of one world share their settings.
    let expected = [
        "acquire ok",
        "orders orders:1 acquired free",
        "acquire ok",
        "orders orders:1 acquired reentered",
        "release ok",
        "orders:1 unlocked",
        "release ok",
        "acquire ok",
        "orders orders:1 acquired free",
        "acquire refused",
        "orders:1 contended",
        "orders:1 refused",
    ];
    let mut said = notes.said();
    // With the feature `tracing` the server's settings are checked once, at the first lock.
    said.retain(|it| it != "check ok" && !it.contains("connected"));
    assert_eq!(said, expected);
    other.lock("orders:1").unlock().unwrap();

    lock.lock().unwrap();
    other.lock("orders:1").force_unlock().unwrap();
    assert!(lock.unlock().is_err());
    assert_eq!(notes.count("orders:1 gone"), 1);
}

#[test]
fn an_observer_that_panics_or_calls_back_harms_nothing() {
    struct CallsBackAndPanics(OnceLock<Client>);
    impl Observer for CallsBackAndPanics {
        fn event(&self, event: &Event<'_>) {
            if let Some(client) = self.0.get() {
                // No mutex is locked: all its queries get a reply.
                drop(client.activity());
            }
            if matches!(event, Event::Acquired { .. } | Event::Ended { .. }) {
                panic!("the observer is at fault");
            }
        }
    }
    let rude = Arc::new(CallsBackAndPanics(OnceLock::new()));
    let renewed = ms(1500);
    let client = Client::builder()
        .watchdog_timeout(ms(3000))
        .observer(Arc::clone(&rude))
        .in_memory()
        .unwrap();
    assert!(rude.0.set(client.clone()).is_ok());
    let lock = client.lock("orders:1");
    let guard = lock.guard().unwrap();
    thread::sleep(renewed);
    assert!(guard.remaining_validity() > ms(1500), "it was renewed");
    guard.unlock().unwrap();
    lock.lock().unwrap();
    client
        .another()
        .unwrap()
        .lock("orders:1")
        .force_unlock()
        .unwrap();
    assert!(lock.unlock().is_err());
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn long_waits_and_holds_are_reported_at_each_doubling() {
    let server = RedisServer::start();
    let notes = Arc::new(Notes::default());
    let client = Client::builder()
        .watchdog_timeout(ms(1500))
        .warn_after(ms(500), ms(500))
        .observer(Arc::clone(&notes))
        .open(&server.url())
        .unwrap();
    let theirs = open(&server).lock("orders:1");
    theirs.lock().unwrap();
    let held = client.lock("orders:2").guard().unwrap();
    let fixed = client
        .lock("orders:3")
        .with_lease_time(Duration::from_secs(60));
    fixed.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| client.lock("orders:1").run(|_| ()).unwrap());
        eventually("both are told twice", || {
            notes.count("orders:1 long wait, 0 others, true") >= 2
                && notes.count("orders:2 long hold") >= 2
        });
        theirs.unlock().unwrap();
        waits.join().unwrap();
    });
    held.unlock().unwrap();
    fixed.unlock().unwrap();
    assert_eq!(notes.count("orders:3 long"), 0);
    // A long hold is reported after half a second, one, two, and so on, so at most a few times.
    assert!(notes.count("long hold") <= 6, "{:#?}", notes.said());
}

#[test]
fn a_quorum_has_an_observer_of_its_own() {
    let notes = Arc::new(Notes::default());
    let nodes = [(); 3].map(|()| Client::in_memory());
    let redlock = Redlock::builder()
        .nodes(nodes)
        .observer(Arc::clone(&notes))
        .lock_class(|_| "all")
        .build()
        .unwrap();
    redlock.lock("orders:1").run(|_| ()).unwrap();
    assert_eq!(notes.count("all orders:1 acquired free"), 1);
}
