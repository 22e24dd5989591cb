//! The locks in a database beside the classic ways that have holes, in one run on one server.
//!
//! `cargo bench --features mysql --bench mysql` starts a MariaDB server of its own (loopback, every commit flushed to
//! disk, no binary log), measures for about a minute, and prints a table and, as its last line, one JSON object.
//!
//! Each variant runs 16 threads that lock and unlock without holding, with a connection each, or for the locks of this
//! library with one client (one process) or sixteen (as many processes). The variants take turns, and a figure is the
//! median of the turns. A flag per key finds two threads inside at once (`overlaps`). Deadlocks are those that the
//! server has counted.
//!
//! | key | what is measured |
//! |---|---|
//! | `table_acq_s`, `table_deadlocks` | `client.lock(name)` of one client on one hot key: acquisitions per second, deadlocks in all turns of all its variants |
//! | `naive_table_acq_s`, `naive_table_deadlocks` | a table with `AUTO_INCREMENT` and a unique key, `INSERT` to lock, `DELETE` to unlock, 0.5 to 8 ms of back-off |
//! | `row_acq_s` | `RowLock` on one row: begin, `FOR UPDATE`, commit |
//! | `get_lock_acq_s` | `GET_LOCK` and `RELEASE_LOCK` on one name |
//! | `versioned_lost`, `updated_at_lost` | updates lost by `Versioned` with a version, and with a DATETIME of whole seconds, on one hot row |
//! | `naive_lost` | updates lost by reading and writing back; the table also shows those of a check of `updated_at` that may stand still |
//! | `overlaps` | two threads inside at once, over all locks |
//!
//! The table lock writes, and waits for the disk, once per acquisition on a hot key and twice on a quiet one; where the
//! disk takes a millisecond or more that is all there is to see. So the hot key comes once more with
//! `innodb_flush_log_at_trx_commit=2`, where commits do not wait (`…_flush2`). `GET_LOCK` and a row lock write nothing.
//!
//! Environment: `REDLATCH_BENCH_REPEATS` (3), `REDLATCH_BENCH_SLICE_MS` (1500).

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the table goes to stdout, and a benchmark that cannot go on has nobody to tell but its caller"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use redlatch::mysql::{Changes, Check, RowTarget, Step, Versioned, Wait};
use redlatch::{Client, Error};

use support::mariadb::{Database, MariaDb};

const THREADS: usize = 16;

/// The result of one turn of one variant.
#[derive(Clone, Copy, Default)]
struct Turn {
    acquisitions_per_second: f64,
    deadlocks: u64,
    overlaps: u64,
    p50: Duration,
    p99: Duration,
    lost: u64,
    updates: u64,
}

/// A resource that detects two threads inside.
#[derive(Default)]
struct Inside(AtomicBool);

struct Bench {
    database: Database<'static>,
    slice: Duration,
}

impl Bench {
    /// Runs `worker`'s function in each thread until the time ends; each call is one acquisition of a key.
    fn turn<W: FnMut(&Inside, usize) -> u64>(
        &self,
        keys: usize,
        worker: impl Fn(usize) -> W + Sync,
    ) -> Turn {
        let inside: Vec<Inside> = (0..keys).map(|_| Inside::default()).collect();
        let barrier = Barrier::new(THREADS);
        let overlaps = AtomicU64::new(0);
        let before = self.deadlocks();
        let mut times: Vec<Duration> = thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|number| {
                    let (inside, barrier, overlaps, worker) =
                        (&inside, &barrier, &overlaps, &worker);
                    scope.spawn(move || {
                        let mut work = worker(number);
                        let mut times = Vec::new();
                        barrier.wait();
                        let start = Instant::now();
                        let mut key = number;
                        while start.elapsed() < self.slice {
                            key = (key * 31 + 7) % 9973;
                            let begun = Instant::now();
                            let seen = work(&inside[key % keys], key % keys);
                            overlaps.fetch_add(seen, Ordering::Relaxed);
                            times.push(begun.elapsed());
                        }
                        times
                    })
                })
                .collect();
            workers
                .into_iter()
                .flat_map(|worker| worker.join().unwrap())
                .collect()
        });
        times.sort();
        let at = |share: usize| {
            times
                .get(times.len() * share / 100)
                .copied()
                .unwrap_or_default()
        };
        Turn {
            acquisitions_per_second: times.len() as f64 / self.slice.as_secs_f64(),
            deadlocks: self.deadlocks() - before,
            overlaps: overlaps.load(Ordering::Relaxed),
            p50: at(50),
            p99: at(99),
            ..Turn::default()
        }
    }

    fn deadlocks(&self) -> u64 {
        let (_, count): (String, u64) = self
            .database
            .first("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'");
        count
    }

    fn client(&self) -> Client {
        Client::open(&self.database.url()).unwrap()
    }

    fn table(&self, keys: usize, is_one_client: bool) -> Turn {
        let shared = self.client();
        self.turn(keys, |_| {
            let client = if is_one_client {
                shared.clone()
            } else {
                self.client()
            };
            let locks: Vec<_> = (0..keys)
                .map(|key| client.lock(&format!("key-{key}")))
                .collect();
            move |inside, key| {
                let guard = locks[key].guard().unwrap();
                let seen = inside.pass();
                guard.unlock().unwrap();
                seen
            }
        })
    }

    fn naive_table(&self, keys: usize) -> Turn {
        self.turn(keys, |_| {
            let mut conn = self.database.tcp_conn();
            move |inside, key| {
                let mut pause = 0.5;
                while conn
                    .exec_drop(
                        "INSERT INTO naive (resource) VALUES (?)",
                        (format!("key-{key}"),),
                    )
                    .is_err()
                {
                    thread::sleep(Duration::from_secs_f64(pause * jitter() / 1000.0));
                    pause = f64::min(pause * 2.0, 8.0);
                }
                let seen = inside.pass();
                // It can be the victim of a deadlock, too.
                while conn
                    .exec_drop(
                        "DELETE FROM naive WHERE resource = ?",
                        (format!("key-{key}"),),
                    )
                    .is_err()
                {}
                seen
            }
        })
    }

    fn row(&self, keys: usize) -> Turn {
        let client = self.client();
        let target = RowTarget::table("counters", "id").unwrap();
        self.turn(keys, |_| {
            let locks: Vec<_> = (0..keys)
                .map(|key| client.row_lock(&target, i64::try_from(key).unwrap()))
                .collect();
            move |inside, key| {
                let guard = locks[key].lock(Wait::Forever).unwrap();
                let seen = inside.pass();
                guard.commit().unwrap();
                seen
            }
        })
    }

    fn get_lock(&self, keys: usize) -> Turn {
        self.turn(keys, |_| {
            let mut conn = self.database.tcp_conn();
            move |inside, key| {
                let name = format!("key-{key}");
                let got: Option<u8> = conn
                    .exec_first("SELECT GET_LOCK(?, 30)", (&name,))
                    .unwrap()
                    .unwrap();
                assert_eq!(got, Some(1));
                let seen = inside.pass();
                conn.exec_drop("DO RELEASE_LOCK(?)", (&name,)).unwrap();
                seen
            }
        })
    }

    /// Counts how many updates of one row were lost.
    fn updates<W: FnMut()>(&self, worker: impl Fn() -> W + Sync) -> Turn {
        self.database
            .run("UPDATE counters SET n = 0, version = 0, at0 = NULL");
        let done = AtomicU64::new(0);
        let mut turn = self.turn(1, |_| {
            let mut work = worker();
            let done = &done;
            move |_, _| {
                work();
                done.fetch_add(1, Ordering::Relaxed);
                0
            }
        });
        let stands: u64 = self.database.first("SELECT n FROM counters WHERE id = 0");
        turn.updates = done.load(Ordering::Relaxed);
        turn.lost = turn.updates - stands;
        turn
    }

    fn versioned(&self, check: Check) -> Turn {
        let client = self.client();
        let counters: Versioned = client
            .versioned("counters", "id", &["n"], check)
            .unwrap()
            .with_attempts(10_000);
        self.updates(|| {
            let counters = counters.clone();
            move || {
                counters
                    .update_with(0, |row| {
                        let n: i64 = row.get("n")?;
                        Ok::<_, Error>(Step::Set(Changes::new().set("n", n + 1), ()))
                    })
                    .unwrap();
            }
        })
    }

    fn naive_update(&self) -> Turn {
        self.updates(|| {
            let mut conn = self.database.tcp_conn();
            move || {
                let n: i64 = conn
                    .query_first("SELECT n FROM counters WHERE id = 0")
                    .unwrap()
                    .unwrap();
                conn.exec_drop("UPDATE counters SET n = ? WHERE id = 0", (n + 1,))
                    .unwrap();
            }
        })
    }

    /// A common check of `updated_at`, which misses a second update within one second.
    fn naive_stamp(&self) -> Turn {
        self.updates(|| {
            let mut conn = self.database.tcp_conn();
            move || loop {
                let (n, at): (i64, mysql::Value) = conn
                    .query_first("SELECT n, at0 FROM counters WHERE id = 0")
                    .unwrap()
                    .unwrap();
                conn.exec_drop(
                    "UPDATE counters SET n = ?, at0 = UTC_TIMESTAMP() WHERE id = 0 AND at0 <=> ?",
                    (n + 1, at),
                )
                .unwrap();
                if conn.affected_rows() > 0 {
                    return;
                }
            }
        })
    }
}

impl Bench {
    fn without_flush(&self, run: impl FnOnce(&Bench) -> Turn) -> Turn {
        self.database
            .run("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
        let turn = run(self);
        self.database
            .run("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
        turn
    }
}

impl Inside {
    /// Returns 1 if another thread is inside.
    fn pass(&self) -> u64 {
        let was_taken = self.0.swap(true, Ordering::SeqCst);
        std::hint::spin_loop();
        self.0.store(false, Ordering::SeqCst);
        u64::from(was_taken)
    }
}

/// A random number from 0.5 to 1; a hash map's seed is random.
fn jitter() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    0.5 + (random % 1000) as f64 / 2000.0
}

fn main() {
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let repeats = number("REDLATCH_BENCH_REPEATS", 3).max(1);
    let slice = Duration::from_millis(number("REDLATCH_BENCH_SLICE_MS", 1500));
    // Every commit waits for the disk, except the last two: locks without durability would be measured too cheap.
    let server: &'static MariaDb = Box::leak(Box::new(MariaDb::with(&[
        "--innodb-flush-log-at-trx-commit=1",
        "--innodb-doublewrite=1",
    ])));
    let bench = Bench {
        database: server.database(),
        slice,
    };
    bench.client().create_tables().unwrap();
    bench.database.run(
        "CREATE TABLE naive (id BIGINT AUTO_INCREMENT PRIMARY KEY, resource VARCHAR(100) NOT NULL, UNIQUE (resource));\n\
         CREATE TABLE counters (id INT PRIMARY KEY, n BIGINT NOT NULL DEFAULT 0, version INT NOT NULL DEFAULT 0, at0 DATETIME NULL);\n\
         INSERT INTO counters (id) SELECT seq FROM seq_0_to_63",
    );
    type Variant = (&'static str, fn(&Bench) -> Turn);
    let variants: [Variant; 14] = [
        ("table lock, 1 key, 1 process", |b| b.table(1, true)),
        ("table lock, 1 key, 16 processes", |b| b.table(1, false)),
        ("table lock, 64 keys, 1 process", |b| b.table(64, true)),
        ("naive INSERT / DELETE, 1 key", |b| b.naive_table(1)),
        ("naive INSERT / DELETE, 64 keys", |b| b.naive_table(64)),
        ("row lock, 1 key", |b| b.row(1)),
        ("row lock, 64 keys", |b| b.row(64)),
        ("GET_LOCK, 1 key", |b| b.get_lock(1)),
        ("versioned by version, 1 row", |b| {
            b.versioned(Check::Version("version".into()))
        }),
        ("versioned by DATETIME, 1 row", |b| {
            b.versioned(Check::UpdatedAt("at0".into()))
        }),
        ("naive update, 1 row", Bench::naive_update),
        ("naive DATETIME check, 1 row", Bench::naive_stamp),
        ("table lock, 1 key, no flush", |b| {
            b.without_flush(|b| b.table(1, true))
        }),
        ("naive INSERT / DELETE, no flush", |b| {
            b.without_flush(|b| b.naive_table(1))
        }),
    ];
    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); variants.len()];
    for _ in 0..repeats {
        for ((_, run), turns) in variants.iter().zip(&mut turns) {
            turns.push(run(&bench));
        }
    }
    println!(
        "{:<34} {:>9} {:>14} {:>9} {:>9} {:>8}",
        "16 threads", "per s", "deadlocks/1000", "p50 ms", "p99 ms", "lost %"
    );
    for ((name, _), turns) in variants.iter().zip(&turns) {
        let rate = median(turns);
        let total = turns
            .iter()
            .map(|turn| turn.acquisitions_per_second * slice.as_secs_f64())
            .sum::<f64>();
        let lost: u64 = turns.iter().map(|turn| turn.lost).sum();
        let updates: u64 = turns.iter().map(|turn| turn.updates).sum();
        let share = if updates == 0 {
            "-".to_owned()
        } else {
            format!("{:.2}", 100.0 * lost as f64 / updates as f64)
        };
        println!(
            "{name:<34} {rate:>9.0} {:>14.1} {:>9.2} {:>9.2} {share:>8}",
            1000.0 * deadlocks(turns) as f64 / total.max(1.0),
            middle(turns, |turn| turn.p50).as_secs_f64() * 1000.0,
            middle(turns, |turn| turn.p99).as_secs_f64() * 1000.0,
        );
    }
    let lost = |index: usize| turns[index].iter().map(|turn| turn.lost).sum::<u64>();
    let ours: u64 = [0, 1, 2, 12]
        .map(|index| deadlocks(&turns[index]))
        .iter()
        .sum();
    let overlaps: u64 = turns.iter().flatten().map(|turn| turn.overlaps).sum();
    println!(
        "{}",
        serde_json::json!({
            "table_acq_s": median(&turns[0]).round(),
            "table_deadlocks": ours,
            "naive_table_acq_s": median(&turns[3]).round(),
            "naive_table_deadlocks": deadlocks(&turns[3]),
            "versioned_lost": lost(8),
            "updated_at_lost": lost(9),
            "naive_lost": lost(10),
            "row_acq_s": median(&turns[5]).round(),
            "get_lock_acq_s": median(&turns[7]).round(),
            "overlaps": overlaps,
            "table_acq_s_flush2": median(&turns[12]).round(),
            "naive_table_acq_s_flush2": median(&turns[13]).round(),
        })
    );
    // Statics and leaked boxes are not dropped; the server ends with this process anyway.
}

fn median(turns: &[Turn]) -> f64 {
    let mut rates: Vec<f64> = turns
        .iter()
        .map(|turn| turn.acquisitions_per_second)
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn middle(turns: &[Turn], of: fn(&Turn) -> Duration) -> Duration {
    let mut times: Vec<Duration> = turns.iter().map(of).collect();
    times.sort();
    times[times.len() / 2]
}

fn deadlocks(turns: &[Turn]) -> u64 {
    turns.iter().map(|turn| turn.deadlocks).sum()
}
