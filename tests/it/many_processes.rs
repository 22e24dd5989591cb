//! A crowd at one lock: many processes with many threads each, short holds, short leases, and faults meanwhile.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::Client;
use tempfile::TempDir;

use crate::support::child::{arg, listen, say};
use crate::support::history::{Recorder, check};
use crate::support::{Child, RedisServer, ms};

const PROCESSES: usize = 8;
const THREADS: usize = 8;
const LEASE: Duration = ms(300);

/// Plays `role` in a child process; false if it is not one of this file.
pub(crate) fn play(role: &str) -> bool {
    let is_mine = role == "one of the crowd";
    if is_mine {
        one_of_the_crowd();
    }
    is_mine
}

/// Each thread takes the lock again and again, and tells in the end how often it had it and how long it waited at most.
fn one_of_the_crowd() {
    let client = Client::builder()
        .watchdog_timeout(LEASE)
        .open(&arg("URL"))
        .unwrap();
    let record = Recorder::open(&PathBuf::from(arg("RECORD")));
    let number = arg("NUMBER");
    let is_over = AtomicBool::new(false);
    let told: Vec<(u32, Duration)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (record, is_over) = (&record, &is_over);
                let owner = format!("{number}/{thread}");
                let lock = client.lock("crowd");
                scope.spawn(move || {
                    let (mut had_it, mut longest) = (0, Duration::ZERO);
                    while !is_over.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        record.invoke(&owner);
                        match lock.guard() {
                            Ok(guard) => {
                                record.returned(&owner);
                                longest = longest.max(begun.elapsed());
                                had_it += 1;
                                thread::sleep(Duration::from_micros(fastrand::u64(0..5000)));
                                record.releasing(&owner, || guard.is_valid());
                                if let Err(error) = guard.unlock() {
                                    assert!(
                                        error.is_lost()
                                            || error.is_ambiguous()
                                            || error.is_retryable(),
                                        "{error}"
                                    );
                                }
                                record.released(&owner);
                            }
                            Err(error) => {
                                assert!(error.is_retryable() || error.is_ambiguous(), "{error}")
                            }
                        }
                    }
                    (had_it, longest)
                })
            })
            .collect();
        say("here");
        while listen().is_some_and(|line| line != "enough") {}
        is_over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let least = told.iter().map(|(had_it, _)| had_it).min().unwrap();
    let longest = told
        .iter()
        .map(|(_, longest)| longest.as_millis())
        .max()
        .unwrap();
    say(&format!("gone {least} {longest}"));
}

#[test]
fn a_crowd_under_faults_never_overlaps_and_loses_no_waiter() {
    let is_long = crate::support::is_long();
    let time = Duration::from_secs(if is_long { 120 } else { 8 });
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let records: Vec<PathBuf> = (0..PROCESSES)
        .map(|number| folder.path().join(format!("{number}")))
        .collect();
    let mut crowd: Vec<Child> = records
        .iter()
        .enumerate()
        .map(|(number, record)| {
            let (url, number) = (server.url(), number.to_string());
            let record = record.display().to_string();
            let env = [
                ("URL", url.as_str()),
                ("RECORD", &record),
                ("NUMBER", &number),
            ];
            Child::spawn("one of the crowd", &env)
        })
        .collect();
    for child in &crowd {
        child.expect_line("here", Duration::from_secs(30));
    }
    let start = Instant::now();
    for fault in (0..4).cycle() {
        thread::sleep(ms(500));
        match fault {
            0 => drop(server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"])),
            1 => drop(server.cmd(&["SCRIPT", "FLUSH"])),
            2 => drop(server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])),
            _ => {
                server.freeze();
                thread::sleep(LEASE);
                server.thaw();
            }
        }
        if start.elapsed() > time {
            break;
        }
    }
    // And now the faults are over, everybody gets it again.
    thread::sleep(Duration::from_secs(5));
    for child in &mut crowd {
        child.tell("enough");
    }
    for child in &mut crowd {
        let told = child.expect_line("gone", Duration::from_secs(60));
        let mut numbers = told
            .split(' ')
            .skip(1)
            .map(|number| number.parse::<u64>().unwrap());
        let (least, longest) = (numbers.next().unwrap(), numbers.next().unwrap());
        assert!(least >= 2, "a thread had it {least} times: {told}");
        // 64 threads wait for one another, and through the faults; a lost waiter would wait to the end.
        assert!(
            longest < 10_000 || is_long,
            "a thread waited for {longest} ms"
        );
        assert!(child.wait(Duration::from_secs(30)).success());
    }
    let summary = check(&records).unwrap_or_else(|overlap| panic!("{overlap:?}"));
    assert!(summary.holds > 200, "{summary:?}");
    assert_eq!(summary.owners, PROCESSES * THREADS, "{summary:?}");
}
