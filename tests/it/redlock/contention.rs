//! Several clients acquire at once, and none gets a majority.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::Lock;

use super::{SLACK, all_free, builder, redlock, servers};
use crate::support::{RedisServer, ms};

/// One race of all clients for a free lock.
struct Race {
    /// The time until the first client had it.
    first: Duration,
    /// The time until all clients had had it.
    all: Duration,
    /// How many requests one node had received when the first client had it.
    requests: u64,
}

fn race(locks: &[Lock], servers: &[RedisServer], limit: Duration) -> Race {
    let barrier = Barrier::new(locks.len() + 1);
    let is_first = AtomicBool::new(true);
    let before = servers[0].eval_count();
    thread::scope(|scope| {
        let racing: Vec<_> = locks
            .iter()
            .map(|lock| {
                scope.spawn(|| {
                    barrier.wait();
                    assert!(lock.try_lock_for(limit).unwrap(), "it never came to it");
                    let had_it = Instant::now();
                    let first = is_first.swap(false, Ordering::SeqCst);
                    let first = first.then(|| (had_it, servers[0].eval_count() - before));
                    assert!(lock.is_valid());
                    lock.unlock().unwrap();
                    first
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        let firsts = racing.into_iter().filter_map(|race| race.join().unwrap());
        let (first, requests) = firsts.last().unwrap();
        Race {
            first: first.saturating_duration_since(start),
            all: start.elapsed(),
            requests,
        }
    })
}

fn split_votes(clients: usize, rounds: usize) {
    let servers = servers(5);
    // A busy machine must not count as silent nodes.
    let redlock = || builder(&servers).node_timeout(SLACK * 2).build().unwrap();
    let locks: Vec<Lock> = (0..clients).map(|_| redlock().lock("a")).collect();
    for lock in &locks {
        lock.lock().unwrap();
        lock.unlock().unwrap();
    }
    let races: Vec<Race> = (0..rounds)
        .map(|_| race(&locks, &servers, Duration::from_secs(60)))
        .collect();
    let spread = |mut times: Vec<f64>| {
        times.sort_unstable_by(f64::total_cmp);
        let at = |share: usize| times[(times.len() - 1) * share / 100];
        format!("{:.1} / {:.1} / {:.1}", at(50), at(90), at(100))
    };
    let millis = |of: fn(&Race) -> Duration| {
        spread(
            races
                .iter()
                .map(|race| of(race).as_secs_f64() * 1e3)
                .collect(),
        )
    };
    let asked: Vec<f64> = races
        .iter()
        .map(|race| race.requests as f64 / clients as f64)
        .collect();
    println!(
        "{clients} clients, {rounds} races; median / 90 % / worst: ms until the first has it {}, until all had it {}; \
         requests per client and node until the first has it {}",
        millis(|race| race.first),
        millis(|race| race.all),
        spread(asked.clone())
    );
    // Each attempt is up to two requests, the second one to release a minority.
    assert!(asked.iter().all(|asked| *asked < 60.0), "{asked:?}");
    assert!(races.iter().all(|race| race.first < SLACK * 2));
    all_free(&servers, "a");
}

#[test]
fn split_votes_of_32_clients_end() {
    split_votes(32, 5);
}

#[test]
fn a_split_vote_at_even_nodes_ends_too() {
    let servers = servers(2);
    let locks = [redlock(&servers).lock("a"), redlock(&servers).lock("a")];
    for _ in 0..20 {
        race(&locks, &servers, ms(20_000));
    }
    all_free(&servers, "a");
}
