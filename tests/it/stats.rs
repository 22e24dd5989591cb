//! The numbers of a client, beside what has happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redlatch::{Client, Durations, Interrupt, Redlock, Stats};

use crate::laws::until_queued;
use crate::support::{self, RedisServer, ms};

mod connections;
mod observed;
mod page;
#[cfg(feature = "tracing")]
mod spans;

/// Far more than anything here takes.
fn eventually(what: &str, happened: impl FnMut() -> bool) {
    support::eventually(Duration::from_secs(30), what, happened);
}

fn open(server: &RedisServer) -> Client {
    Client::open(&server.url()).unwrap()
}

fn with_lease(server: &RedisServer, lease: Duration) -> Client {
    Client::builder()
        .watchdog_timeout(lease)
        .open(&server.url())
        .unwrap()
}

fn count(durations: &Durations) -> u64 {
    durations.count()
}

fn result(stats: &Stats, operation: &str, result: &str) -> u64 {
    let of = stats.requests.iter().find(|it| it.operation == operation);
    let results = of.into_iter().flat_map(|it| &it.results);
    let found = results.filter(|(name, _)| *name == result);
    found.map(|(_, count)| count).sum()
}

#[test]
fn each_way_to_a_lock_is_counted_as_what_it_is() {
    let server = RedisServer::start();
    let (client, other) = (open(&server), open(&server));
    let lock = client.lock("orders:1");
    // Free, and entered once more.
    lock.lock().unwrap();
    lock.lock().unwrap();
    assert!(!other.lock("orders:1").try_lock().unwrap());
    assert!(!other.lock("orders:1").try_lock_for(ms(20)).unwrap());
    thread::scope(|scope| {
        // Handed over within the client.
        let successor = scope.spawn(|| lock.run(|_| ()).unwrap());
        until_queued(&lock, 1);
        assert_eq!(client.stats().classes[0].waiters, 1);
        // Woken by the message.
        let woken = scope.spawn(|| other.lock("orders:1").run(|_| ()).unwrap());
        eventually("another one waits", || {
            other.stats().classes[0].waiters == 1
        });
        let stats = client.stats();
        assert!(stats.oldest_wait.is_some() && stats.oldest_hold.is_some());
        assert_eq!(stats.classes[0].holds, 1);
        lock.unlock().unwrap();
        lock.unlock().unwrap();
        successor.join().unwrap();
        woken.join().unwrap();
    });

    let stats = client.stats();
    let orders = stats.class("orders").unwrap();
    let ways = orders.acquisitions;
    assert_eq!(
        (ways.free, ways.reentered, ways.handed),
        (1, 1, 1),
        "{stats}"
    );
    assert_eq!(ways.total(), count(&orders.acquired));
    assert_eq!(orders.contended, 1);
    assert_eq!((count(&orders.unlocked), count(&orders.lost)), (2, 0));
    assert_eq!((orders.holds, orders.waiters), (0, 0));
    assert_eq!(
        (stats.oldest_wait, stats.oldest_hold, stats.doubts),
        (None, None, 0)
    );
    assert_eq!(result(&stats, "hand_off", "ok"), 1);

    let stats = other.stats();
    let orders = stats.class("orders").unwrap();
    let ways = orders.acquisitions;
    assert_eq!(ways.woken + ways.polled, 1, "{ways:?}");
    assert_eq!(count(&orders.refused), 2);
    assert!(orders.refused.sum() >= ms(20));
    assert_eq!(orders.contended, 3);
    assert!(result(&stats, "acquire", "refused") >= 3);
}

#[test]
fn an_interrupt_an_error_and_a_loss_are_counted() {
    let server = RedisServer::start();
    let (client, other) = (with_lease(&server, ms(6000)), open(&server));
    let lock = client.lock("orders:1");
    lock.lock().unwrap();
    let interrupt = Interrupt::new();
    interrupt.raise();
    let interrupted = other.lock("orders:1").lock_interruptibly(&interrupt);
    assert!(interrupted.is_err());
    assert_eq!(count(&other.stats().classes[0].interrupted), 1);

    assert!(other.lock("orders:1").force_unlock().unwrap());
    eventually("the loss is told", || {
        !client.stats().classes[0].losses.is_empty()
    });
    let orders = client.stats().class("orders").unwrap().clone();
    assert_eq!(orders.losses, [("gone", 1)]);
    assert_eq!((orders.holds, count(&orders.lost)), (0, 1));
    assert!(lock.unlock().unwrap_err().is_lost());
    // It is told once, and its hold has ended once.
    assert_eq!(
        client.stats().class("orders").unwrap().losses,
        [("gone", 1)]
    );
    assert!(client.stats().renewals.lost >= 1);

    // A string that is no lock.
    server.cmd(&["SET", "orders:2", "text"]);
    assert!(client.lock("orders:2").try_lock().is_err());
    let orders = client.stats().class("orders").unwrap().clone();
    assert_eq!(count(&orders.failed), 1);
    assert_eq!(result(&client.stats(), "acquire", "failed"), 1);
}

#[test]
fn a_loss_that_an_unlock_finds_is_counted_once() {
    let client = Client::in_memory();
    let lock = client.lock("orders:1");
    lock.lock().unwrap();
    assert!(
        client
            .another()
            .unwrap()
            .lock("orders:1")
            .force_unlock()
            .unwrap()
    );
    assert!(lock.unlock().unwrap_err().is_lost());
    let orders = client.stats().class("orders").unwrap().clone();
    assert_eq!(orders.losses, [("gone", 1)]);
    assert_eq!(
        (count(&orders.unlocked) + count(&orders.lost), orders.holds),
        (1, 0)
    );
}

/// Acquisitions, ends, holds and losses after a while in which threads compete, and locks are forced.
#[test]
fn the_sums_agree_after_a_storm() {
    let server = RedisServer::start();
    let told = Arc::new(AtomicU64::new(0));
    let hook = Arc::clone(&told);
    let client = Client::builder()
        .watchdog_timeout(ms(500))
        .on_lost(move |_| {
            hook.fetch_add(1, Ordering::Relaxed);
        })
        .open(&server.url())
        .unwrap();
    let forcer = open(&server);
    let got = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..6 {
            let (client, got) = (&client, &got);
            scope.spawn(move || {
                for round in 0..60 {
                    let lock = client.lock(&format!("storm:{}", (thread + round) % 3));
                    if lock.try_lock_for(ms(200)).unwrap() {
                        got.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(ms(round % 5));
                        // Lost, if it was forced.
                        drop(lock.unlock());
                    }
                }
            });
        }
        for round in 0..30 {
            thread::sleep(ms(15));
            forcer
                .lock(&format!("storm:{}", round % 3))
                .force_unlock()
                .unwrap();
        }
    });
    let class = || client.stats().class("storm").unwrap().clone();
    let losses = || class().losses.iter().map(|(_, count)| count).sum::<u64>();
    eventually("all holds have ended", || class().holds == 0);
    eventually("the hook has heard of all", || {
        told.load(Ordering::Relaxed) == losses()
    });
    let storm = class();
    assert!(losses() > 0, "no lock was forced while it was held");
    assert_eq!(storm.waiters, 0);
    assert_eq!(storm.acquisitions.total(), got.load(Ordering::Relaxed));
    let calls = [
        &storm.acquired,
        &storm.refused,
        &storm.interrupted,
        &storm.failed,
    ];
    assert_eq!(calls.map(count).iter().sum::<u64>(), 360);
    assert_eq!(
        count(&storm.unlocked) + count(&storm.lost),
        storm.acquisitions.total()
    );
}

#[test]
fn a_quorum_counts_for_itself() {
    let clients = [(); 3].map(|()| Client::in_memory());
    let redlock = Redlock::new(clients.clone()).unwrap();
    redlock.lock("orders:1").run(|_| ()).unwrap();
    assert_eq!(
        redlock.stats().class("orders").unwrap().acquisitions.free,
        1
    );
    assert!(clients[0].stats().classes.is_empty());
}

#[test]
fn the_oldest_holds_and_waits_are_listed() {
    let client = Client::in_memory();
    let first = client.lock("orders:1");
    first.lock().unwrap();
    let second = client.lock("orders:2");
    second.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| first.run(|_| redlatch::current_thread_id()).unwrap());
        eventually("it is listed", || client.activity().waits.len() == 1);
        let activity = client.activity();
        let locks: Vec<_> = activity.holds.iter().map(|hold| &*hold.lock).collect();
        assert_eq!(locks, ["orders:1", "orders:2"]);
        assert_eq!(activity.holds[0].thread, redlatch::current_thread_id());
        assert!(activity.holds[0].remaining_validity > Duration::ZERO);
        let wait = activity.waits[0].clone();
        first.unlock().unwrap();
        assert_eq!(waits.join().unwrap(), wait.thread);
        assert_eq!(wait.lock, "orders:1");
    });
    second.unlock().unwrap();
    assert!(client.activity().holds.is_empty() && client.activity().waits.is_empty());
}

/// The families of the page: a change is seen by every dashboard.
const FAMILIES: [(&str, &str); 20] = [
    ("redlatch_acquisitions", "counter"),
    ("redlatch_connections", "gauge"),
    ("redlatch_connects", "counter"),
    ("redlatch_contended", "counter"),
    ("redlatch_doubts", "gauge"),
    ("redlatch_hold_seconds", "histogram"),
    ("redlatch_holds", "gauge"),
    ("redlatch_long_holds", "counter"),
    ("redlatch_long_waits", "counter"),
    ("redlatch_losses", "counter"),
    ("redlatch_master_changes", "counter"),
    ("redlatch_messages", "counter"),
    ("redlatch_oldest_hold_seconds", "gauge"),
    ("redlatch_oldest_wait_seconds", "gauge"),
    ("redlatch_renewals", "counter"),
    ("redlatch_request_seconds", "histogram"),
    ("redlatch_requests", "counter"),
    ("redlatch_subscriber_up", "gauge"),
    ("redlatch_wait_seconds", "histogram"),
    ("redlatch_waiters", "gauge"),
];

#[test]
fn the_page_is_what_its_readers_count_on() {
    let server = RedisServer::start();
    let client = with_lease(&server, ms(3000));
    let held = client.lock("orders:1").guard().unwrap();
    eventually("it is renewed", || client.stats().renewals.renewed > 0);
    held.unlock().unwrap();
    let lock = client.lock("orders:2");
    lock.lock().unwrap();
    open(&server).lock("orders:2").force_unlock().unwrap();
    assert!(lock.unlock().unwrap_err().is_lost());
    let page = page::parse(&client.stats().to_openmetrics());
    let families: BTreeMap<_, _> = page
        .families
        .iter()
        .map(|(name, it)| (&**name, &*it.kind))
        .collect();
    assert_eq!(families, FAMILIES.into_iter().collect());
    let labels = |family: &str| -> BTreeSet<String> {
        let samples = page.samples.iter().filter(|it| it.family == family);
        samples
            .flat_map(|it| it.labels.iter().map(|(name, _)| name.clone()))
            .collect()
    };
    let set = |names: &[&str]| {
        names
            .iter()
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(
        labels("redlatch_wait_seconds"),
        set(&["class", "outcome", "le"])
    );
    assert_eq!(
        labels("redlatch_hold_seconds"),
        set(&["class", "end", "le"])
    );
    assert_eq!(labels("redlatch_acquisitions"), set(&["class", "via"]));
    assert_eq!(labels("redlatch_losses"), set(&["class", "cause"]));
    assert_eq!(labels("redlatch_requests"), set(&["operation", "result"]));
    assert_eq!(
        labels("redlatch_request_seconds"),
        set(&["operation", "le"])
    );
    assert_eq!(labels("redlatch_renewals"), set(&["result"]));
    assert_eq!(labels("redlatch_holds"), set(&["class"]));
    assert_eq!(labels("redlatch_connections"), set(&["state"]));
    assert_eq!(labels("redlatch_connects"), set(&["result"]));
    assert_eq!(labels("redlatch_messages"), set(&["use"]));
    assert_eq!(labels("redlatch_subscriber_up"), set(&[]));
    assert_eq!(labels("redlatch_master_changes"), set(&[]));
}

/// The families that a text names, in whichever way they are asked for.
fn named_in(text: &str) -> BTreeSet<&str> {
    let is_part = |sign: char| sign.is_ascii_lowercase() || sign == '_';
    let words = text.split(|sign| !is_part(sign));
    let words = words.filter(|word| word.starts_with("redlatch_") && !word.contains("metrics"));
    let stem = |word| {
        let endings = ["_total", "_bucket", "_count", "_sum"];
        let stem = endings.iter().find_map(|end| str::strip_suffix(word, end));
        stem.unwrap_or(word)
    };
    words.map(stem).collect()
}

#[test]
fn the_page_the_board_and_the_alerts_name_what_there_is() {
    let read = |path: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        std::fs::read_to_string(path).unwrap()
    };
    let families: BTreeSet<&str> = FAMILIES.iter().map(|(name, _)| *name).collect();
    let page = read("docs/observability.md");
    assert_eq!(named_in(&page), families);
    let board = read("docs/observability/board.json");
    serde_json::from_str::<serde_json::Value>(&board).unwrap();
    assert_eq!(named_in(&board), families);
    let alerts = read("docs/observability/alerts.yml");
    assert!(named_in(&alerts).is_subset(&families), "{alerts}");
    for alert in alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
    {
        assert!(page.contains(&format!("| `{alert}` |")), "{alert}");
    }
}

#[test]
fn no_name_no_secret_and_no_text_of_a_user_breaks_the_page() {
    let server = RedisServer::with(&["--requirepass", "hush-hush"]);
    let url = server.url().replace("redis://", "redis://:hush-hush@");
    let client = Client::builder()
        .lock_class(|name| name.rsplit(':').next().unwrap_or(name))
        .open(&url)
        .unwrap();
    client
        .lock("customer-4711:say \"no\\yes\"")
        .run(|_| ())
        .unwrap();
    let token = client.token_lock("customer-4711:token");
    let visitor = token.guard().unwrap().visitor().to_string();
    let text = client.stats().to_openmetrics();
    let page = page::parse(&text);
    let classes: BTreeSet<_> = page
        .samples
        .iter()
        .flat_map(|it| &it.labels)
        .filter(|(name, _)| name == "class")
        .map(|(_, value)| &**value)
        .collect();
    assert_eq!(classes, BTreeSet::from(["say \"no\\yes\"", "token"]));
    for secret in ["hush-hush", "customer-4711", client.id(), &visitor] {
        assert!(!text.contains(secret), "{secret} is on the page");
    }
}
