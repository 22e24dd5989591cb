//! Credentials that change while a client uses them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error};

use crate::invariants::{
    CANARY, Class, TIMEOUT, ends_within, fails, no_secret, quick, somebody_waits,
};
use crate::support::{RedisServer, eventually, ms};

const LEASE: Duration = ms(3000);

/// A password callback whose result can be changed.
#[derive(Clone, Default)]
struct PasswordStore {
    password: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl PasswordStore {
    fn with(password: &str) -> PasswordStore {
        let store = PasswordStore::default();
        store.change(password);
        store
    }

    fn change(&self, password: &str) {
        *self.password.lock().unwrap() = password.to_owned();
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn to(&self, builder: Builder) -> Builder {
        let store = self.clone();
        builder.credentials_with(move || {
            store.asked.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(("app", store.password.lock().unwrap().clone()))
        })
    }
}

/// Closes all connections except the test's.
fn kill_clients(server: &RedisServer) {
    server.cmd(&["CLIENT", "KILL", "USER", "app"]);
    // A closed connection is noticed only after it was idle for a moment.
    thread::sleep(ms(50));
}

fn patient() -> Builder {
    quick()
        .command_timeout(ms(5000))
        .connect_timeout(ms(5000))
        .outage_timeout(Duration::from_secs(30))
}

#[test]
fn a_changed_password_ends_no_hold_and_no_wait() {
    let server = RedisServer::start();
    let (old, new) = (format!("{CANARY}-old"), format!("{CANARY}-new"));
    server.set_password("app", &old);
    let store = PasswordStore::with(&old);
    let builder = store.to(patient().watchdog_timeout(LEASE));
    no_secret(&builder);
    let client = builder.open(&server.url()).unwrap();
    no_secret(&client);
    let other = Client::open(&server.url()).unwrap();
    let guard = client.lock("held").guard().unwrap();
    let theirs = other.lock("orders");
    theirs.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.lock("orders").guard().map(|_| Instant::now()));
        somebody_waits(&server, "orders");
        server.set_password("app", &new);
        kill_clients(&server);
        // Both are refused for a while.
        thread::sleep(LEASE / 4);
        assert!(guard.is_valid() && !waiting.is_finished());
        let error = fails(client.lock("free").try_lock(), Class::Unavailable);
        assert!(error.to_string().contains("WRONGPASS"), "{error}");
        store.change(&new);
        thread::sleep(LEASE * 3 / 2);
        assert!(guard.is_valid(), "it is renewed with the new password");
        theirs.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
    guard.unlock().unwrap();
}

#[test]
fn a_wrong_password_that_may_change_is_an_outage() {
    let server = RedisServer::start();
    server.set_password("app", "right");
    let store = PasswordStore::with(CANARY);
    let client = store.to(quick()).open(&server.url()).unwrap();
    let lock = client.lock("orders");
    let error = ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unavailable));
    let text = error.to_string();
    assert!(text.contains("credentials provider"), "{text}");
    assert!(store.asked() >= 2);
    let began = Instant::now();
    fails(lock.lock(), Class::Unavailable);
    assert!(began.elapsed() >= ms(600), "the wait went on");
    // Without a provider the password cannot change.
    let url = server.url().replace("redis://", "redis://app:wrong@");
    let lock = quick().open(&url).unwrap().lock("orders");
    ends_within(ms(0), || fails(lock.lock(), Class::Permission));
}

#[test]
fn a_provider_that_fails_or_hangs_harms_no_hold() {
    let server = RedisServer::start();
    server.set_password("app", "right");
    let mood = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&mood);
    let running = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&running);
    let provider = move || match told.load(Ordering::Relaxed) {
        0 => Ok(("app", "right")),
        1 => Err("the store is closed"),
        2 => std::panic::resume_unwind(Box::new("as planned")),
        _ => {
            counted.fetch_add(1, Ordering::Relaxed);
            while told.load(Ordering::Relaxed) == 3 {
                thread::sleep(ms(5));
            }
            Ok(("app", "right"))
        }
    };
    let builder = quick().watchdog_timeout(Duration::from_secs(6));
    let client = builder.credentials_with(provider).open(&server.url());
    let client = client.unwrap();
    let guard = client.lock("held").guard().unwrap();
    let lock = client.lock("orders");
    for (kind, words) in [(1, "the store is closed"), (2, "panicked"), (3, "in time")] {
        mood.store(kind, Ordering::Relaxed);
        kill_clients(&server);
        let error = ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unreachable));
        assert!(error.to_string().contains(words), "{error}");
        assert!(matches!(error, Error::Unreachable { .. }));
    }
    for _ in 0..3 {
        ends_within(TIMEOUT, || lock.try_lock().unwrap_err());
    }
    assert_eq!(running.load(Ordering::Relaxed), 1, "one thread hangs");
    assert!(guard.is_valid());
    mood.store(0, Ordering::Relaxed);
    eventually(ms(5000), "it is let in again", || {
        lock.try_lock().is_ok_and(|it| it)
    });
    lock.unlock().unwrap();
    guard.unlock().unwrap();
    // A provider that never returns does not block the shutdown.
    mood.store(3, Ordering::Relaxed);
    kill_clients(&server);
    lock.try_lock().unwrap_err();
    ends_within(TIMEOUT, || client.shutdown());
    mood.store(0, Ordering::Relaxed);
}

#[test]
fn a_password_has_exactly_one_source() {
    let give = || Ok::<_, String>(("", CANARY));
    let url = format!("redis://:{CANARY}@127.0.0.1:1");
    let error = fails(quick().credentials_with(give).open(&url), Class::Config);
    assert!(
        error.to_string().contains("remove it from the URL"),
        "{error}"
    );
    // The sentinels' credentials are in the URL, or from a provider of their own.
    let sentinels = || quick().credentials_with(give);
    sentinels().sentinel("shop", [&url]).unwrap();
    let with_own = quick().sentinel_settings(sentinels());
    fails(with_own.sentinel("shop", [&url]), Class::Config);
    let elsewhere = quick().sentinel_settings(sentinels());
    fails(elsewhere.open("redis://127.0.0.1:1"), Class::Config);
}
