//! MultiLock, in memory and on real servers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fairness;
mod storm;

use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use redlatch::{Client, Error, Interrupt, Lock, LossCause, MultiLock, Redlock};

use crate::support::{RedisServer, elsewhere, eventually, ms};

const LEASE: std::time::Duration = ms(900);

fn client(server: &RedisServer) -> Client {
    Client::builder()
        .watchdog_timeout(LEASE)
        .open(&server.url())
        .unwrap()
}

#[test]
fn it_takes_all_or_nothing() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let (a, b) = (client(&one).lock("a"), client(&two).lock("b"));
    let both = MultiLock::of([&a, &b]).unwrap();
    assert_eq!(both.name(), "a + b");
    both.lock().unwrap();
    assert_eq!((one.int(&["HLEN", "a"]), two.int(&["HLEN", "b"])), (1, 1));
    assert!(!elsewhere(|| a.try_lock().unwrap()));
    assert!(!elsewhere(|| b.try_lock().unwrap()));
    both.unlock().unwrap();
    assert_eq!(
        (one.int(&["EXISTS", "a"]), two.int(&["EXISTS", "b"])),
        (0, 0)
    );

    for (held, free, name, server) in [(&a, &b, "b", &two), (&b, &a, "a", &one)] {
        held.lock().unwrap();
        assert!(!elsewhere(|| both.try_lock().unwrap()));
        assert_eq!(server.int(&["EXISTS", name]), 0, "{name} was given back");
        assert!(elsewhere(
            || free.try_lock().unwrap() && free.unlock().is_ok()
        ));
        held.unlock().unwrap();
    }
}

#[test]
fn a_re_entry_counts_on_all_members_or_on_none() {
    let mut servers = [RedisServer::start(), RedisServer::start()];
    // Members are acquired in the order of their addresses as text.
    servers.sort_by_key(RedisServer::url);
    let [one, two] = servers;
    let impatient = |server: &RedisServer| {
        Client::builder()
            .command_timeout(ms(400))
            .open(&server.url())
            .unwrap()
    };
    let both = MultiLock::of([&impatient(&one).lock("a"), &impatient(&two).lock("b")]).unwrap();
    let counts = |server: &RedisServer, name| format!("{:?}", server.cmd(&["HVALS", name]));
    both.lock().unwrap();
    let once = counts(&one, "a");
    both.lock().unwrap();
    assert_eq!(both.hold_count().unwrap(), 2);
    let twice = counts(&one, "a");
    assert_ne!(once, twice);
    assert_eq!(twice, counts(&two, "b"));
    both.unlock().unwrap();
    two.freeze();
    assert!(both.try_lock().is_err());
    two.thaw();
    assert!(both.is_valid());
    assert_eq!(both.hold_count().unwrap(), 1, "it is no level");
    both.unlock().unwrap();
    eventually(ms(5000), "nothing is left", || {
        one.int(&["EXISTS", "a"]) + two.int(&["EXISTS", "b"]) == 0
    });
}

#[test]
fn a_re_entry_without_a_member_acquires_anew() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let both = MultiLock::of([&client(&one).lock("a"), &client(&two).lock("b")]).unwrap();
    for (server, name) in [(&one, "a"), (&two, "b")] {
        both.lock().unwrap();
        let loss = both.lost().unwrap();
        server.cmd(&["DEL", name]);
        assert!(both.try_lock().unwrap());
        assert_eq!(loss.try_recv().unwrap().cause, LossCause::Gone);
        assert_eq!(both.hold_count().unwrap(), 1);
        both.unlock().unwrap();
        assert!(matches!(both.unlock(), Err(Error::Lost { .. })));
    }
}

#[test]
fn the_loss_of_one_member_loses_and_frees_the_multi_lock() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let (a, b) = (client(&one).lock("a"), client(&two).lock("b"));
    let both = MultiLock::of([&a, &b]).unwrap();
    let guard = both.guard().unwrap();
    let lost = guard.lost();
    two.cmd(&["DEL", "b"]);
    let loss = lost.recv_timeout(ms(10_000)).unwrap();
    assert_eq!((&*loss.lock, loss.cause), ("a + b", LossCause::Gone));
    assert!(!guard.is_valid());
    // Long before its lease would have ended if it were renewed by mistake.
    eventually(ms(5000), "the other part is freed", || {
        one.int(&["EXISTS", "a"]) == 0
    });
    assert!(matches!(guard.unlock(), Err(Error::Lost { .. })));
}

#[test]
fn the_watchdog_renews_every_member() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let both = MultiLock::of([&client(&one).lock("a"), &client(&two).token_lock("b")]).unwrap();
    let guard = both.guard().unwrap();
    thread::sleep(LEASE * 3);
    assert!(guard.is_valid());
    assert_eq!(
        (one.int(&["EXISTS", "a"]), two.int(&["EXISTS", "b"])),
        (1, 1)
    );
    guard.unlock().unwrap();
}

#[test]
fn a_waiter_is_woken_by_the_member_that_blocked_it() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let (a, b) = (client(&one).lock("a"), client(&two).lock("b"));
    let both = MultiLock::of([&client(&one).lock("a"), &client(&two).lock("b")]).unwrap();
    for held in [&a, &b] {
        let waits = (0..3).map(|_| {
            held.lock().unwrap();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    both.lock().unwrap();
                    let woken = Instant::now();
                    both.unlock().unwrap();
                    woken
                });
                thread::sleep(ms(300));
                let freed = Instant::now();
                held.unlock().unwrap();
                let woken = waiter.join().unwrap();
                assert!(woken >= freed);
                woken - freed
            })
        });
        // A waiter that is not woken polls 700 ms later.
        let shortest = waits.min().unwrap();
        assert!(shortest < ms(500), "{shortest:?}");
    }
}

#[test]
fn one_timeout_covers_all_members() {
    let client = Client::in_memory();
    let names = ["a", "b", "c"];
    let locks = names.map(|name| client.lock(name));
    let all = MultiLock::of(&locks).unwrap();
    locks[2].lock().unwrap();
    elsewhere(|| {
        let began = Instant::now();
        assert!(!all.try_lock_for(ms(300)).unwrap());
        let took = began.elapsed();
        assert!(took >= ms(300) && took < ms(3000), "{took:?}");
        let interrupt = Interrupt::new();
        interrupt.raise();
        let interrupted = all.lock_interruptibly(&interrupt);
        assert!(matches!(interrupted, Err(Error::Interrupted { .. })));
    });
    locks[2].unlock().unwrap();
    assert!(locks.iter().all(|lock| !lock.is_locked().unwrap()));
}

#[test]
fn overlapping_multi_locks_are_refused_on_one_thread() {
    let client = Client::in_memory();
    let (a, b, c) = (client.lock("a"), client.lock("b"), client.lock("c"));
    let both = MultiLock::of([&a, &b]).unwrap();
    let others = MultiLock::of([&b, &c]).unwrap();
    a.lock().unwrap();
    assert!(matches!(both.lock(), Err(Error::Overlap { held, .. }) if &*held == "a"));
    a.unlock().unwrap();
    both.lock().unwrap();
    assert!(matches!(a.lock(), Err(Error::Overlap { held, .. }) if &*held == "a + b"));
    assert!(matches!(others.lock(), Err(Error::Overlap { .. })));
    c.lock().unwrap();
    c.unlock().unwrap();
    both.unlock().unwrap();
    a.lock().unwrap();
    a.unlock().unwrap();
    others.lock().unwrap();
    others.unlock().unwrap();
}

#[test]
fn invalid_sets_of_members_are_refused() {
    let client = Client::in_memory();
    let (a, bad) = (client.lock("a"), client.lock(""));
    let no_locks: [&Lock; 0] = [];
    for locks in [&no_locks[..], &[&a, &a.clone()]] {
        let refused = MultiLock::of(locks.iter().copied());
        assert!(matches!(refused, Err(Error::InvalidConfig { .. })));
    }
    let flawed = MultiLock::of([&a, &bad]).unwrap();
    assert!(matches!(flawed.lock(), Err(Error::InvalidName { .. })));
    assert!(!a.is_locked().unwrap());
}

/// Threads lock pairs out of a ring of locks, each naming them in its own order.
fn philosophers(locks: &[Lock], rounds: u32) {
    let inside: Vec<AtomicI64> = locks.iter().map(|_| AtomicI64::new(0)).collect();
    let done = AtomicU32::new(0);
    let start = Barrier::new(locks.len());
    thread::scope(|scope| {
        for (left, _) in locks.iter().enumerate() {
            let right = (left + 1) % locks.len();
            let (inside, done, start) = (&inside, &done, &start);
            let pair = if left % 2 == 0 {
                [&locks[left], &locks[right]]
            } else {
                [&locks[right], &locks[left]]
            };
            scope.spawn(move || {
                let both = MultiLock::of(pair).unwrap();
                start.wait();
                for _ in 0..rounds {
                    both.lock().unwrap();
                    for at in [left, right] {
                        assert_eq!(inside[at].fetch_add(1, Ordering::SeqCst), 0);
                    }
                    thread::yield_now();
                    for at in [left, right] {
                        inside[at].fetch_sub(1, Ordering::SeqCst);
                    }
                    both.unlock().unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(done.into_inner() as usize, locks.len() * rounds as usize);
    for lock in locks {
        eventually(ms(5000), "nothing is left", || !lock.is_locked().unwrap());
    }
}

#[test]
fn a_force_unlock_that_frees_only_some_members_is_unknown() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let both = MultiLock::of([&client(&one).lock("a"), &client(&two).lock("b")]).unwrap();
    both.lock().unwrap();
    two.kill();
    let error = both.force_unlock().unwrap_err();
    assert_eq!(one.int(&["EXISTS", "a"]), 0);
    assert!(error.is_ambiguous() && !error.is_retryable(), "{error}");
    // Now no reachable server has a key to delete.
    let error = both.force_unlock().unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

#[test]
fn philosophers_all_eat_and_never_share_a_fork() {
    let builder = Client::builder().command_timeout(ms(20_000));
    let client = builder.in_memory().unwrap();
    let locks: Vec<Lock> = (0..5)
        .map(|at| client.lock(&format!("fork:{at}")))
        .collect();
    philosophers(&locks, 100);
}

#[test]
fn philosophers_eat_from_several_servers_and_kinds() {
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let redlock = Redlock::builder()
        .nodes(servers.iter().map(client))
        .trust_new_nodes()
        .node_timeout(ms(5000))
        .build()
        .unwrap();
    let locks = [
        client(&servers[0]).lock("fork:0"),
        client(&servers[1]).token_lock("fork:1"),
        client(&servers[2]).lock("fork:2"),
        redlock.lock("fork:3"),
    ];
    philosophers(&locks, 20);
}

#[test]
fn one_name_on_two_servers_is_two_locks() {
    let server = RedisServer::start();
    let in_database = |number: u32| Client::open(&format!("{}/{number}", server.url())).unwrap();
    let databases = [in_database(0).lock("a"), in_database(1).lock("a")];
    let memories = [0, 1].map(|_| Client::in_memory().lock("a"));
    let quorum = |number| {
        let redlock = Redlock::builder().nodes([in_database(number)]);
        redlock.trust_new_nodes().build().unwrap().lock("b")
    };
    let quorums = [quorum(0), quorum(1)];
    for locks in [databases, memories, quorums] {
        let both = MultiLock::of(&locks).unwrap();
        both.lock().unwrap();
        for lock in &locks {
            assert!(!elsewhere(|| lock.try_lock().unwrap()));
        }
        both.unlock().unwrap();
        for lock in &locks {
            assert!(!lock.is_locked().unwrap());
        }
    }
    let (one, again) = (in_database(1).lock("a"), in_database(1).lock("a"));
    let refused = MultiLock::of([&one, &again]);
    assert!(matches!(refused, Err(Error::InvalidConfig { .. })));
}

#[test]
fn one_lock_by_two_names_of_its_server_is_an_error_at_once() {
    let server = RedisServer::start();
    let by_name = format!("redis://localhost:{}", server.port());
    let urls = [server.url(), by_name, server.unix_url()];
    let clients = urls.map(|url| Client::open(&url).unwrap());
    let redlock = |client: &Client| {
        let redlock = Redlock::builder().nodes([client.clone()]);
        redlock.trust_new_nodes().build().unwrap()
    };
    let [one, two, three] = &clients;
    let cases: [Vec<Lock>; 3] = [
        clients.iter().map(|client| client.lock("a")).collect(),
        vec![two.token_lock("a"), one.token_lock("a")],
        vec![three.lock("a"), redlock(one).lock("a")],
    ];
    for locks in cases {
        let all = MultiLock::of(&locks).unwrap();
        let start = Instant::now();
        let error = all.lock().unwrap_err();
        assert!(start.elapsed() < ms(2500), "{:?}", start.elapsed());
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
        assert!(error.to_string().contains("same lock"), "{error}");
        assert_eq!(server.int(&["DBSIZE"]), 0);
    }
    // A lock that another client holds is refused as usual.
    let all = MultiLock::of([&one.lock("a"), &two.lock("a")]).unwrap();
    server.cmd(&["HSET", "a", "00000000-0000-0000-0000-000000000000:1", "1"]);
    server.cmd(&["PEXPIRE", "a", "60000"]);
    assert!(!all.try_lock().unwrap());
}

#[test]
fn a_wait_ends_when_the_client_of_a_member_is_shut_down() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let (of_a, of_b) = (client(&one), client(&two));
    let both = MultiLock::of([&of_a.lock("a"), &of_b.lock("b")]).unwrap();
    let holder = Client::open(&two.url()).unwrap().lock("b");
    holder.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| both.lock().unwrap_err());
        eventually(ms(20_000), "it listens", || {
            let channels = one.cmd(&["PUBSUB", "CHANNELS", "redisson_lock__channel:*"]);
            !redis::from_redis_value::<Vec<String>>(channels)
                .unwrap()
                .is_empty()
        });
        of_a.shutdown();
        let error = waiting.join().unwrap();
        assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    });
    holder.unlock().unwrap();
}
