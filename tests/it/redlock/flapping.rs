//! Nodes come and go under load, a minority at a time: never two who may believe to hold the lock.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Redlock};
use tempfile::TempDir;

use super::{SLACK, servers};
use crate::support::child::{arg, listen, say};
use crate::support::history::{Recorder, check};
use crate::support::{Child, RedisServer, eventually, ms};

const PROCESSES: usize = 3;
const THREADS: usize = 2;
const MAX_LEASE: Duration = ms(1200);

/// Plays `role` in a child process; false if it is not one of this file.
pub(crate) fn play(role: &str) -> bool {
    match role {
        "quorum-user" => use_the_lock(),
        _ => return false,
    }
    true
}

fn use_the_lock() {
    let nodes = arg("NODES");
    let nodes = nodes.split(' ').map(|url| Client::open(url).unwrap());
    let redlock = Redlock::builder()
        .nodes(nodes)
        .max_lease(MAX_LEASE)
        .node_timeout(ms(60))
        .trust_new_nodes()
        .build()
        .unwrap();
    let record = Recorder::open(&PathBuf::from(arg("RECORD")));
    let number = arg("NUMBER");
    let done = AtomicBool::new(false);
    let [got, failed, lost] = [const { AtomicU64::new(0) }; 3];
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (redlock, record, number, done) = (&redlock, &record, &number, &done);
            let (got, failed, lost) = (&got, &failed, &lost);
            let count = |counter: &AtomicU64| {
                counter.fetch_add(1, Ordering::Relaxed);
            };
            scope.spawn(move || {
                let owner = format!("{number}/{thread}");
                let mut lock = redlock.lock("a");
                if thread % 2 == 1 {
                    lock = lock.with_lease_time(MAX_LEASE / 2);
                }
                while !done.load(Ordering::Relaxed) {
                    record.invoke(&owner);
                    match lock.try_guard_for(ms(2000)) {
                        Ok(Some(guard)) => {
                            record.returned(&owner);
                            count(got);
                            // Now and then past some renewals, and into the next fault.
                            let looks = if fastrand::u32(..40) == 0 { 150 } else { 3 };
                            for _ in 0..looks {
                                if !record.check(&owner, || guard.is_valid()) {
                                    break;
                                }
                                thread::sleep(Duration::from_micros(fastrand::u64(..8000)));
                            }
                            record.releasing(&owner, || guard.is_valid());
                            match guard.unlock() {
                                Ok(()) => {}
                                Err(error) if error.is_lost() => count(lost),
                                Err(error) => {
                                    assert!(
                                        error.is_retryable() || error.is_ambiguous(),
                                        "{error}"
                                    );
                                    count(failed);
                                }
                            }
                            record.released(&owner);
                        }
                        Ok(None) => {}
                        Err(error) => {
                            assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
                            count(failed);
                        }
                    }
                }
            });
        }
        say("open");
        while listen().is_some() {
            say(&format!("got {}", got.load(Ordering::Relaxed)));
        }
        done.store(true, Ordering::Relaxed);
    });
    let [got, failed, lost] = [got, failed, lost].map(AtomicU64::into_inner);
    say(&format!("closed {got} got, {failed} failed, {lost} lost"));
}

/// The quorum and those that use it.
struct Job {
    servers: Vec<RedisServer>,
    records: TempDir,
    users: Vec<Child>,
}

impl Job {
    fn start() -> Job {
        let servers = servers(5);
        let records = tempfile::tempdir().unwrap();
        let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
        let user = |number: usize| {
            let record = records.path().join(number.to_string());
            let env = [
                ("NODES", urls.join(" ")),
                ("RECORD", record.to_str().unwrap().to_owned()),
                ("NUMBER", number.to_string()),
            ];
            let env: Vec<(&str, &str)> = env.iter().map(|(key, it)| (*key, it.as_str())).collect();
            Child::spawn("quorum-user", &env)
        };
        let users: Vec<Child> = (0..PROCESSES).map(user).collect();
        for user in &users {
            // From here on they know the nodes, so that they notice each restart.
            user.expect_line("open", Duration::from_secs(30));
        }
        Job {
            servers,
            records,
            users,
        }
    }

    /// Breaks two of the nodes in some way each, and waits until they may vote again.
    fn flap(&self, draw: &mut fastrand::Rng) {
        let mut pair: Vec<&RedisServer> = self.servers.iter().collect();
        draw.shuffle(&mut pair);
        pair.truncate(2);
        let harms: Vec<u32> = pair.iter().map(|_| draw.u32(..4)).collect();
        for (server, harm) in pair.iter().zip(&harms) {
            match harm {
                0 => server.freeze(),
                1 => server.restart(),
                2 => server.kill(),
                // It dies with requests that it has got and not yet seen.
                _ => {
                    server.freeze();
                    thread::sleep(ms(draw.u64(..40)));
                    server.kill();
                }
            }
        }
        thread::sleep(ms(draw.u64(20..500)));
        for (server, harm) in pair.iter().zip(&harms) {
            match harm {
                0 => server.thaw(),
                1 => {}
                _ => server.restart(),
            }
        }
        let has_forgotten = harms.iter().any(|harm| *harm > 0);
        if has_forgotten {
            thread::sleep(MAX_LEASE);
        }
        // They notice a restart when they ask, so that it counts from then.
        thread::sleep(ms(draw.u64(200..500)));
    }

    fn progresses(&mut self) {
        for user in &mut self.users {
            let mut got = || -> u64 {
                user.tell("how many?");
                let said = user.expect_line("got", SLACK * 4);
                said.trim_start_matches("got ").parse().unwrap()
            };
            let before = got();
            eventually(SLACK * 4, "every process gets it again", || got() > before);
        }
    }

    fn close(mut self) {
        for user in &mut self.users {
            assert!(user.wait(Duration::from_secs(30)).success());
        }
        let said: Vec<String> = self
            .users
            .iter()
            .map(|user| user.expect_line("closed", SLACK))
            .collect();
        let records: Vec<PathBuf> = (0..PROCESSES)
            .map(|number| self.records.path().join(number.to_string()))
            .collect();
        let summary = check(&records).unwrap_or_else(|overlap| panic!("{overlap}"));
        println!("{summary:?}, {said:?}");
        assert!(summary.holds >= 100, "{summary:?}");
        assert_eq!(summary.owners, PROCESSES * THREADS, "{summary:?}");
        eventually(MAX_LEASE + SLACK, "nothing is left", || {
            self.servers
                .iter()
                .all(|server| server.int(&["DBSIZE"]) == 0)
        });
    }
}

/// A short form here; `REDLATCH_LONG=1` goes on for minutes, and `REDLATCH_SEED` repeats the faults of a run.
#[test]
fn flapping_nodes_let_no_two_in() {
    let seed = std::env::var("REDLATCH_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("REDLATCH_SEED={seed}");
    let mut draw = fastrand::Rng::with_seed(seed);
    let is_long = crate::support::is_long();
    let time = Duration::from_secs(if is_long { 240 } else { 7 });
    let mut job = Job::start();
    let start = Instant::now();
    while start.elapsed() < time {
        job.flap(&mut draw);
        if is_long {
            job.progresses();
        }
    }
    job.progresses();
    job.close();
}
