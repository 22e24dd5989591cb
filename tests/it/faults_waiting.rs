//! What can happen to waiting and to the messages it lives on: faults F59 to F67 of the catalogue.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Interrupt, Lock};

use crate::support::child::{arg, listen, say};
use crate::support::{Child, Fault, Proxy, RedisServer, eventually, ms};

/// What a busy machine may add to any time.
const SLACK: Duration = ms(2500);

/// A lost message costs a waiter this much at most.
const POLL: Duration = ms(1100);

/// A lease that never ends within a test, so that no waiter is woken by its end.
const MINUTE: Duration = Duration::from_secs(60);

/// Below this a waiter was woken; one that has to look for itself takes most of [`POLL`].
const WOKEN: Duration = ms(500);

const CHANNEL: &str = "redisson_lock__channel:{orders}";

fn lock_of(url: &str) -> Lock {
    Client::open(url)
        .unwrap()
        .lock("orders")
        .with_lease_time(MINUTE)
}

fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// How many connections listen for the messages of the lock.
fn listeners(server: &RedisServer) -> i64 {
    match server.cmd(&["PUBSUB", "NUMSUB", CHANNEL]) {
        redis::Value::Array(items) => match items.last() {
            Some(redis::Value::Int(count)) => *count,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Takes the lock and gives it back. Returns when it got it.
fn pass(lock: &Lock) -> Instant {
    lock.lock().unwrap();
    let now = Instant::now();
    lock.unlock().unwrap();
    now
}

/// The median: some rounds may be slow on a busy machine, or have met with a poll by chance.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Plays `role` in a child process; false if it is not one of this file.
pub(crate) fn play(role: &str) -> bool {
    match role {
        "waiter" => waiter(),
        _ => return false,
    }
    true
}

fn waiter() {
    let lock = lock_of(&arg("URL"));
    say("waiting");
    lock.lock().unwrap();
    say("got");
    lock.unlock().unwrap();
    while listen().is_some() {}
}

// F59

#[test]
fn a_waiter_whose_subscriber_is_killed_with_the_unlock_is_woken_by_the_next_one() {
    let server = RedisServer::start();
    let waiter = lock_of(&server.url());
    let mut times = Vec::new();
    for _ in 0..11 {
        // A client of its own each time: one that has just set the lock free for the other may listen as well.
        let holder = lock_of(&server.url());
        holder.lock().unwrap();
        let waited = thread::scope(|scope| {
            let waiting = scope.spawn(|| pass(&waiter));
            eventually(SLACK, "the waiter listens", || listeners(&server) == 1);
            thread::sleep(ms(30));
            assert_eq!(server.int(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
            let freed = Instant::now();
            holder.unlock().unwrap();
            waiting.join().unwrap() - freed
        });
        assert!(waited < POLL + SLACK, "{waited:?}");
        times.push(waited);
    }
    let median = median(times.clone());
    assert!(median < WOKEN, "{times:?}");
}

#[test]
fn a_loop_of_killed_subscribers_starves_no_waiter() {
    let server = RedisServer::start();
    let done = AtomicBool::new(false);
    let inside = AtomicBool::new(false);
    let passes: Vec<AtomicU32> = (0..4).map(|_| AtomicU32::new(0)).collect();
    let longest = thread::scope(|scope| {
        let workers: Vec<_> = passes
            .iter()
            .map(|passes| {
                let (url, done, inside) = (server.url(), &done, &inside);
                scope.spawn(move || {
                    let lock = lock_of(&url);
                    let mut longest = Duration::ZERO;
                    while !done.load(Ordering::SeqCst) {
                        let start = Instant::now();
                        lock.lock().unwrap();
                        longest = longest.max(start.elapsed());
                        assert!(!inside.swap(true, Ordering::SeqCst), "two at once");
                        thread::sleep(ms(5));
                        inside.store(false, Ordering::SeqCst);
                        lock.unlock().unwrap();
                        passes.fetch_add(1, Ordering::SeqCst);
                    }
                    longest
                })
            })
            .collect();
        let start = Instant::now();
        let mut killed = 0;
        while start.elapsed() < ms(2500) {
            killed += server.int(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            thread::sleep(ms(20));
        }
        done.store(true, Ordering::SeqCst);
        assert!(killed > 20, "subscribers come back: {killed}");
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .max()
    });
    let passes: Vec<u32> = passes
        .iter()
        .map(|count| count.load(Ordering::SeqCst))
        .collect();
    assert!(passes.iter().all(|count| *count > 0), "{passes:?}");
    // With a poll per hand-over it would be two or three in all.
    assert!(passes.iter().sum::<u32>() > 20, "{passes:?}");
    assert!(longest.unwrap() < POLL * 2 + SLACK, "{longest:?}");
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

// F60

#[test]
fn a_subscriber_that_the_server_gives_up_for_its_slowness_comes_back() {
    let server = RedisServer::start();
    server.cmd(&[
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "pubsub 200kb 200kb 0",
    ]);
    let holder = lock_of(&server.url());
    holder.lock().unwrap();
    let mut child = Child::spawn("waiter", &[("URL", &server.url())]);
    child.expect_line("waiting", MINUTE);
    eventually(SLACK * 2, "the child listens", || listeners(&server) == 1);
    child.freeze();
    let large = "x".repeat(100_000);
    // The kernel's buffers take some megabytes first.
    eventually(MINUTE, "the server gives the subscriber up", || {
        server.cmd(&["PUBLISH", CHANNEL, &large]);
        listeners(&server) == 0
    });
    child.thaw();
    eventually(SLACK * 2, "the child listens again", || {
        listeners(&server) == 1
    });
    assert_eq!(child.said(), Vec::<String>::new());
    assert!(holder.is_valid());
    holder.unlock().unwrap();
    child.expect_line("got", POLL + SLACK);
    assert!(child.wait(MINUTE).success());
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

// F61

/// Unlocks while the waiter's SUBSCRIBE is on its way, and returns how long after its arrival the waiter got the lock.
fn unlock_in_the_gap(server: &RedisServer, fault: Fault) -> Duration {
    let proxy = Proxy::to(server.addr());
    let holder = lock_of(&server.url());
    let waiter = lock_of(&proxy.url());
    holder.lock().unwrap();
    // Its connection and its script are there already.
    assert!(!waiter.try_lock().unwrap());
    let rule = proxy.next(1, Some(b"SUBSCRIBE"), fault);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pass(&waiter));
        eventually(SLACK, "the SUBSCRIBE is under way", || rule.hits() == 1);
        thread::sleep(ms(20));
        holder.unlock().unwrap();
        rule.release();
        let arrived = Instant::now();
        waiting.join().unwrap().saturating_duration_since(arrived)
    })
}

#[test]
fn an_unlock_before_the_subscription_is_not_slept_through() {
    let server = RedisServer::start();
    for fault in [Fault::Hold, Fault::DelayReply(ms(100))] {
        let times: Vec<_> = (0..7).map(|_| unlock_in_the_gap(&server, fault)).collect();
        assert!(times.iter().all(|time| *time < POLL + SLACK), "{times:?}");
        assert!(median(times.clone()) < WOKEN, "{fault:?}: {times:?}");
    }
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

// F62

#[test]
fn a_message_that_is_lost_in_silence_costs_one_poll() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let (holder, waiter) = (lock_of(&server.url()), lock_of(&proxy.url()));
    let rule = proxy.next(usize::MAX, None, Fault::DropPush);
    for _ in 0..2 {
        holder.lock().unwrap();
        let waited = thread::scope(|scope| {
            let waiting = scope.spawn(|| pass(&waiter));
            eventually(SLACK, "the waiter listens", || listeners(&server) == 1);
            thread::sleep(ms(100));
            let freed = Instant::now();
            holder.unlock().unwrap();
            waiting.join().unwrap() - freed
        });
        assert!(waited < POLL + SLACK, "{waited:?}");
    }
    assert!(rule.hits() >= 2, "messages were lost");
    // A wait with an end uses its last instant for a last look.
    holder.lock().unwrap();
    let got = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let got = waiter.try_lock_for(ms(400)).unwrap();
            waiter.unlock().unwrap();
            got
        });
        thread::sleep(ms(150));
        holder.unlock().unwrap();
        waiting.join().unwrap()
    });
    assert!(got);
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

// F63

#[test]
fn a_flood_of_forged_messages_gives_a_bounded_number_of_tries_and_nothing_else() {
    const WAITERS: u32 = 1;
    let server = RedisServer::start();
    let holder = lock_of(&server.url());
    let client = Client::open(&server.url()).unwrap();
    let waiter = client.lock("orders").with_lease_time(MINUTE);
    holder.lock().unwrap();
    let done = AtomicBool::new(false);
    let held = AtomicBool::new(true);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..WAITERS)
            .map(|_| {
                scope.spawn(|| {
                    waiter.lock().unwrap();
                    assert!(!held.swap(true, Ordering::SeqCst), "two at once");
                    held.store(false, Ordering::SeqCst);
                    waiter.unlock().unwrap();
                })
            })
            .collect();
        eventually(SLACK, "the waiters listen", || listeners(&server) == 1);
        let before = server.eval_count();
        let start = Instant::now();
        scope.spawn(|| {
            let mut connection = server.admin();
            // Few at a time, so that the server has time left for as many tries as the waiter would like.
            let mut flood = redis::pipe();
            for message in [
                "0",
                "1",
                "",
                "unlock",
                "-1",
                "99999999999999999999",
                "\0\u{ff}",
            ] {
                flood.cmd("PUBLISH").arg(CHANNEL).arg(message).ignore();
            }
            while !done.load(Ordering::SeqCst) {
                flood.query::<()>(&mut connection).unwrap();
                thread::sleep(Duration::from_micros(50));
            }
        });
        thread::sleep(ms(2000));
        let evals = server.eval_count() - before;
        let spans = u64::try_from(start.elapsed().as_millis()).unwrap() / 100 + 2;
        done.store(true, Ordering::SeqCst);
        let all_wait = waiting.iter().all(|waiter| !waiter.is_finished());
        let was_valid = holder.is_valid();
        held.store(false, Ordering::SeqCst);
        holder.unlock().unwrap();
        let freed = Instant::now();
        for waiter in waiting {
            waiter.join().unwrap();
        }
        // Nothing is left that could keep a failure waiting.
        assert!(freed.elapsed() < POLL + SLACK);
        assert!(all_wait && was_valid);
        let most = u64::from(WAITERS) * 101 * spans;
        assert!(evals <= most, "{evals} tries in {spans} spans");
        assert!(evals > 20, "they do try: {evals}");
    });
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn an_unlock_in_another_database_is_a_false_alarm() {
    let server = RedisServer::start();
    let holder = lock_of(&server.url());
    let waiter = lock_of(&server.url());
    let stranger = lock_of(&format!("{}/1", server.url()));
    holder.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pass(&waiter));
        eventually(SLACK, "the waiter listens", || listeners(&server) == 1);
        let before = server.eval_count();
        for _ in 0..50 {
            assert!(
                stranger.try_lock().unwrap(),
                "another database, another lock"
            );
            stranger.unlock().unwrap();
        }
        thread::sleep(ms(100));
        assert!(
            server.eval_count() > before + 100,
            "the waiter is woken by it"
        );
        assert!(!waiting.is_finished());
        assert!(holder.is_valid());
        assert_eq!(holder.hold_count().unwrap(), 1);
        let freed = Instant::now();
        holder.unlock().unwrap();
        assert!(waiting.join().unwrap() - freed < POLL + SLACK);
    });
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

// F64

#[test]
fn a_wake_up_for_a_waiter_whose_time_is_over_goes_to_the_next_one() {
    const ROUNDS: u64 = 100;
    const HASTY: u64 = 10;
    let server = RedisServer::start();
    let holder = lock_of(&server.url());
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders").with_lease_time(MINUTE);
    let (mut late, mut timed_out) = (0, 0);
    for round in 0..ROUNDS {
        holder.lock().unwrap();
        let (waited, given_up) = thread::scope(|scope| {
            // They come first, so the message is for one of them, and their times end one by one about when it comes.
            let start = Instant::now();
            let hasty: Vec<_> = (0..HASTY)
                .map(|number| {
                    let lock = &lock;
                    let end = start + ms(20) + Duration::from_micros(150 * number + 30 * round);
                    scope.spawn(move || {
                        let wait = end.saturating_duration_since(Instant::now());
                        let got = lock.try_lock_for(wait).unwrap();
                        if got {
                            lock.unlock().unwrap();
                        }
                        got
                    })
                })
                .collect();
            thread::sleep(ms(10));
            let patient = scope.spawn(|| pass(&lock));
            thread::sleep((start + ms(21)).saturating_duration_since(Instant::now()));
            let freed = Instant::now();
            holder.unlock().unwrap();
            let waited = patient.join().unwrap() - freed;
            let results = hasty.into_iter().map(|one| one.join().unwrap());
            let given_up = results.filter(|got| !got).count();
            (waited, given_up)
        });
        timed_out += given_up;
        assert!(waited < POLL + SLACK, "{waited:?}");
        late += usize::from(waited > WOKEN);
    }
    // A permit that is lost with its waiter leaves the next one asleep until it looks for itself.
    assert!(late <= 2, "{late} of {ROUNDS} waited for a poll");
    let tries = usize::try_from(ROUNDS * HASTY).unwrap();
    assert!(
        (tries / 10..tries).contains(&timed_out),
        "the race did not happen: {timed_out} of {tries} were timed out"
    );
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

// F66

#[test]
fn a_lock_that_never_ends_is_reported_and_its_end_is_noticed() {
    let server = RedisServer::start();
    let client = Client::builder()
        .outage_timeout(ms(1500))
        .open(&server.url())
        .unwrap();
    let lock = client.lock("orders");
    server.cmd(&["HSET", "orders", "somebody:1", "1"]);
    let before = server.eval_count();
    let start = Instant::now();
    let errors = [
        lock.try_lock().map(drop).unwrap_err(),
        lock.try_lock_for(ms(1300)).map(drop).unwrap_err(),
        lock.lock().unwrap_err(),
        lock.remaining_lease().map(drop).unwrap_err(),
    ];
    let took = start.elapsed();
    for error in errors {
        assert!(matches!(error, Error::NoTtl { .. }), "{error}");
    }
    assert!(took >= ms(1300 + 1500), "they wait all the same: {took:?}");
    assert!(took < ms(1300 + 1500) + POLL + SLACK, "{took:?}");
    let evals = server.eval_count() - before;
    assert!(evals < 30, "{evals} tries in {took:?} are no sleep");
    // No message tells of the end of such a key.
    let waited = thread::scope(|scope| {
        let waiting = scope.spawn(|| pass(&lock));
        thread::sleep(ms(300));
        let freed = Instant::now();
        server.cmd(&["DEL", "orders"]);
        waiting.join().unwrap() - freed
    });
    assert!(waited < POLL + SLACK, "{waited:?}");
    server.cmd(&["HSET", "orders", "somebody:1", "1"]);
    assert!(lock.force_unlock().unwrap());
    assert!(lock.try_lock().unwrap());
    lock.unlock().unwrap();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

// F67

#[test]
fn a_time_out_at_the_grant_gives_the_lock_or_leaves_nothing() {
    const NAMES: u32 = 3;
    const ROUNDS: u32 = 1500;
    let server = RedisServer::start();
    let (holders, waiters) = (
        Client::open(&server.url()).unwrap(),
        Client::open(&server.url()).unwrap(),
    );
    let (granted, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for name in 0..NAMES {
            let name = format!("orders:{name}");
            let holder = holders.lock(&name).with_lease_time(MINUTE);
            let waiter = waiters.lock(&name).with_lease_time(MINUTE);
            let (granted, refused) = (&granted, &refused);
            scope.spawn(move || {
                let (send, receive) = crossbeam_channel::bounded::<Duration>(0);
                let (done, results) = crossbeam_channel::unbounded();
                thread::scope(|scope| {
                    let waiter = &waiter;
                    scope.spawn(move || {
                        for (round, wait) in receive.iter().enumerate() {
                            // Both ways to end a wait early.
                            let got = if round % 3 == 0 {
                                interrupted_after(waiter, wait)
                            } else {
                                waiter.try_lock_for(wait).unwrap()
                            };
                            if got {
                                assert!(waiter.is_valid());
                                assert_eq!(waiter.hold_count().unwrap(), 1);
                                waiter.unlock().unwrap();
                            } else {
                                assert!(matches!(waiter.unlock(), Err(Error::NotHeld { .. })));
                            }
                            done.send(got).unwrap();
                        }
                    });
                    let mut wait = Duration::from_micros(2000);
                    for _ in 0..ROUNDS {
                        // A rest of the waiter's would be in the way here for a minute.
                        assert!(holder.try_lock().unwrap(), "something was left behind");
                        send.send(wait).unwrap();
                        thread::sleep(Duration::from_micros(1500));
                        holder.unlock().unwrap();
                        // The wait is steered to the instant at which it ends half of the times.
                        let step = Duration::from_micros(20);
                        if results.recv().unwrap() {
                            granted.fetch_add(1, Ordering::SeqCst);
                            wait = wait.saturating_sub(step);
                        } else {
                            refused.fetch_add(1, Ordering::SeqCst);
                            wait += step;
                        }
                    }
                    drop(send);
                });
            });
        }
    });
    let (granted, refused) = (granted.into_inner(), refused.into_inner());
    assert!(
        granted.min(refused) > NAMES * ROUNDS / 10,
        "the race did not happen: {granted} granted, {refused} refused"
    );
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

/// Waits until it has the lock or is interrupted by another thread.
fn interrupted_after(lock: &Lock, wait: Duration) -> bool {
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(wait);
            interrupt.raise();
        });
        match lock.lock_interruptibly(&interrupt) {
            Ok(()) => true,
            Err(Error::Interrupted { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    })
}

#[test]
fn a_grant_that_is_answered_at_the_end_of_the_wait_is_held_or_given_back() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let client = Client::open(&proxy.url()).unwrap();
    let watching = Client::open(&server.url()).unwrap();
    let (held, given_up) = (AtomicU32::new(0), AtomicU32::new(0));
    // Makes the scripts known, so that each try is one request.
    assert!(client.lock("warm").try_lock().unwrap());
    client.lock("warm").unlock().unwrap();
    thread::scope(|scope| {
        for name in 0..6_u64 {
            let (proxy, client, watching, held, given_up) =
                (&proxy, &client, &watching, &held, &given_up);
            let name = format!("orders:{name}.");
            scope.spawn(move || {
                let lock = client.lock(&name).with_lease_time(MINUTE);
                for round in 0..8 {
                    // An attempt has until the end of the wait and most of 250 ms more.
                    let delay = ms(30 + 180 - 20 + 15 * round);
                    let rule = proxy.next(1, Some(name.as_bytes()), Fault::DelayReply(delay));
                    let start = Instant::now();
                    match lock.try_lock_for(ms(30)) {
                        Ok(true) => {
                            assert!(lock.is_valid());
                            assert_eq!(lock.hold_count().unwrap(), 1);
                            lock.unlock().unwrap();
                            held.fetch_add(1, Ordering::SeqCst);
                        }
                        Ok(false) => panic!("nobody else holds it"),
                        Err(error) => {
                            assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
                            let error = lock.unlock().unwrap_err();
                            assert!(matches!(error, Error::NotHeld { .. }), "{error}");
                            given_up.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    assert!(start.elapsed() < ms(30 + 250) + SLACK);
                    assert_eq!(rule.hits(), 1);
                    // Long before the lease ends, because it is given back in the background.
                    eventually(SLACK * 2, "nothing is left behind", || {
                        !watching.lock(&name).is_locked().unwrap()
                    });
                }
            });
        }
    });
    assert!(held.into_inner() > 0);
    assert!(given_up.into_inner() > 0);
    assert_eq!(elsewhere(|| server.int(&["DBSIZE"])), 0);
}

#[test]
fn what_is_promised_of_times_has_room_for_the_way_back() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let command = ms(1600);
    let clients: Vec<_> = servers
        .iter()
        .map(|one| {
            Client::builder()
                .command_timeout(command)
                .open(&one.url())
                .unwrap()
        })
        .collect();
    let redlock = redlatch::Redlock::builder()
        .nodes(clients.clone())
        .trust_new_nodes()
        .node_timeout(ms(5000))
        .build()
        .unwrap();
    let lock = |place: usize, name: &str| match place {
        0 => clients[0].lock(&format!("one:{name}")),
        1 => redlock.lock(&format!("many:{name}")),
        _ => {
            let parts = clients.iter().enumerate();
            let parts: Vec<_> = parts
                .map(|(part, one)| one.lock(&format!("{part}:{name}")))
                .collect();
            redlatch::MultiLock::of(&parts).unwrap()
        }
    };
    for place in 0..3 {
        let taken = lock(place, "taken").with_lease_time(MINUTE / 2);
        taken.lock().unwrap();
    }
    // Each thread has a lock, and asks for one that is taken, when all servers fall silent.
    let ready = std::sync::Barrier::new(10);
    let took: Vec<(usize, [Duration; 3])> = thread::scope(|scope| {
        let threads: Vec<_> = (0..9)
            .map(|number| {
                let (lock, ready, place) = (&lock, &ready, number % 3);
                scope.spawn(move || {
                    let own = lock(place, &format!("own:{number}"));
                    let taken = lock(place, "taken");
                    own.lock().unwrap();
                    ready.wait();
                    ready.wait();
                    let took = |call: &dyn Fn() -> Result<bool, Error>| {
                        let start = Instant::now();
                        let error = call().unwrap_err();
                        assert!(!matches!(error, Error::NotHeld { .. }), "{error}");
                        start.elapsed()
                    };
                    let calls = [
                        took(&|| own.unlock().map(|()| true)),
                        took(&|| taken.try_lock_for(ms(100))),
                        took(&|| taken.try_lock()),
                    ];
                    (place, calls)
                })
            })
            .collect();
        ready.wait();
        servers.iter().for_each(RedisServer::freeze);
        ready.wait();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    servers.iter().for_each(RedisServer::thaw);
    for place in 0..3 {
        // The quickest counts: what the machine adds is not what was promised.
        let quickest = |call: usize| {
            let here = took.iter().filter(|(at, _)| *at == place);
            here.map(|(_, calls)| calls[call]).min().unwrap()
        };
        let [unlock, wait, once] = [0, 1, 2].map(quickest);
        assert!(unlock < command, "unlock: {unlock:?} in place {place}");
        assert!(wait < ms(100 + 250), "wait: {wait:?} in place {place}");
        assert!(once < command, "try: {once:?} in place {place}");
    }
}

/// While no server calls itself master, a request is tried again within its time; what ends the wait ends that, too.
#[test]
fn a_pause_within_a_request_hears_an_interrupt_and_a_shutdown() {
    let server = RedisServer::start();
    server.cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    let ends: [fn(&Client, &Interrupt); 2] = [
        |_, interrupt| interrupt.raise(),
        |client, _| client.shutdown(),
    ];
    for end in ends {
        let client = Client::builder()
            .command_timeout(Duration::from_secs(8))
            .master_replicas([server.url()])
            .unwrap();
        let interrupt = Interrupt::new();
        thread::scope(|scope| {
            let lock = client.lock("orders");
            let waiter = scope.spawn({
                let interrupt = interrupt.clone();
                move || (lock.lock_interruptibly(&interrupt), Instant::now())
            });
            thread::sleep(ms(400));
            let told = Instant::now();
            end(&client, &interrupt);
            let (outcome, at) = waiter.join().unwrap();
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, Error::Interrupted { .. } | Error::Closed { .. }),
                "{error}"
            );
            let took = at.saturating_duration_since(told);
            assert!(took < Duration::from_secs(3), "{took:?}");
        });
    }
}
