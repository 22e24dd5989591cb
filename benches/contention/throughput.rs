//! Many threads that constantly acquire the same lock.

use std::time::{Duration, Instant};

use redis::Connection;
use tempfile::TempDir;

use crate::harness::bare::{self, Bare};
use crate::harness::report::{Report, Table};
use crate::harness::{Part, median, now};
use crate::protocol::{Acquisition, Load, Notes, Order, read};
use crate::support::RedisServer;
use crate::{Contender, Plan};

/// Every worker has received its command after this time.
const AHEAD: Duration = Duration::from_millis(50);

/// Connects and loads scripts.
const WARM_UP: Duration = Duration::from_millis(300);

/// The duration of the exclusion check, and how long each thread then holds the lock.
const CHECK: Duration = Duration::from_secs(1);
const INSIDE: Duration = Duration::from_millis(1);

/// How long one bare thread runs alone between two turns.
const PAIRS: Duration = Duration::from_millis(500);

/// The worker processes of one contender.
pub(crate) struct Workers {
    pub(crate) who: Contender,
    pub(crate) parts: Vec<Part>,
}

impl Workers {
    pub(crate) fn start(
        plan: &Plan,
        who: Contender,
        server: &RedisServer,
        name: &str,
        processes: usize,
        threads: usize,
    ) -> Workers {
        let url = server.url();
        let name = format!("{name}:{}", who.name());
        let threads = threads.to_string();
        let workers = [who.name(), &url, &name, &threads];
        let parts = (0..processes).map(|_| {
            let mut part = match plan.peers.as_ref().filter(|_| who.is_peer()) {
                Some(peers) => {
                    let peers = peers.to_str().expect("a path of UTF-8");
                    Part::start("peers", &[&[peers], &workers[..]].concat())
                }
                None => Part::start("workers", &workers),
            };
            part.receive();
            part
        });
        Workers {
            who,
            parts: parts.collect(),
        }
    }

    fn rush(&mut self, length: Duration, inside: Duration, recorder: &mut Recorder) -> Turn {
        let start = now() + nanoseconds(AHEAD);
        let end = start + nanoseconds(length);
        let before = recorder.requests(self.who);
        let files: Vec<_> = (0..self.parts.len())
            .map(|part| recorder.folder.path().join(part.to_string()))
            .collect();
        for (part, file) in self.parts.iter_mut().zip(&files) {
            let file = file.to_str().expect("a path of UTF-8").to_owned();
            let order = Order::Load(Load {
                start,
                end,
                inside,
                file,
            });
            part.send(&order.to_string());
        }
        let (mut cpu, mut failed) = (0, 0);
        for part in &mut self.parts {
            let [used, failures] = part.receive()[..] else {
                panic!("a workers says two numbers")
            };
            cpu += used;
            failed += failures;
        }
        let requests = recorder.requests(self.who) - before;
        let processes: Vec<Vec<Notes>> = files.iter().map(|file| read(file)).collect();
        Turn::of(&processes, start, end, requests, cpu, failed)
    }
}

/// The rounds of one contender.
struct Series {
    workers: Workers,
    turns: Vec<Turn>,
    /// How often two threads held the lock at once.
    overlaps: usize,
}

impl Series {
    /// A value of all turns, in ascending order.
    fn sorted(&self, value: impl Fn(&Turn) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.turns.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median(&self, value: impl Fn(&Turn) -> f64) -> f64 {
        median(&mut self.sorted(value))
    }
}

/// The result of one turn.
struct Turn {
    per_s: f64,
    /// Relative to the pairs of one bare thread before and after.
    ratio: f64,
    fairness: f64,
    /// Like `fairness`, but between processes.
    staircase: f64,
    requests: f64,
    cpu_us: f64,
    wait_p99_ms: f64,
    wait_max_ms: f64,
    overlaps: usize,
    failed: u64,
}

impl Turn {
    fn of(
        processes: &[Vec<Notes>],
        start: u64,
        end: u64,
        requests: u64,
        cpu: u64,
        failed: u64,
    ) -> Turn {
        let in_time = |notes: &Notes| notes.iter().filter(|stay| stay.had < end).count();
        let count = |threads: &Vec<Notes>| threads.iter().map(in_time).sum();
        let threads: Vec<usize> = processes.iter().flatten().map(in_time).collect();
        let each: Vec<usize> = processes.iter().map(count).collect();
        let mut stays: Vec<Acquisition> = processes.iter().flatten().flatten().copied().collect();
        let all = stays.len().max(1) as f64;
        let mut waits: Vec<u64> = stays.iter().map(|stay| stay.had - stay.asked).collect();
        waits.sort_unstable();
        let wait = |index: usize| waits.get(index).map_or(0.0, |wait| *wait as f64 / 1e6);
        Turn {
            per_s: each.iter().sum::<usize>() as f64 / ((end - start) as f64 / 1e9),
            ratio: 0.0,
            fairness: fewest_by_most(&threads),
            staircase: fewest_by_most(&each),
            requests: requests as f64 / all,
            cpu_us: cpu as f64 / 1000.0 / all,
            wait_p99_ms: wait(waits.len() * 99 / 100),
            wait_max_ms: wait(waits.len().saturating_sub(1)),
            overlaps: overlaps(&mut stays),
            failed,
        }
    }
}

fn fewest_by_most(counts: &[usize]) -> f64 {
    let fewest = counts.iter().min().copied().unwrap_or_default();
    let most = counts.iter().max().copied().unwrap_or_default();
    fewest as f64 / most.max(1) as f64
}

/// How often a thread acquired before another one began to release.
pub(crate) fn overlaps(stays: &mut [Acquisition]) -> usize {
    stays.sort_unstable_by_key(|stay| stay.had);
    let mut left = 0;
    stays
        .iter()
        .filter(|stay| {
            let early = stay.had < left;
            left = left.max(stay.left);
            early
        })
        .count()
}

/// Counts requests, and has the folder of the results.
struct Recorder {
    connection: Connection,
    folder: TempDir,
}

impl Recorder {
    fn new(server: &RedisServer) -> Recorder {
        Recorder {
            connection: bare::connect(&server.url()),
            folder: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// The requests so far; only differences are meaningful.
    fn requests(&mut self, who: Contender) -> u64 {
        let info: String = redis::cmd("INFO")
            .arg("everything")
            .query(&mut self.connection)
            .expect("INFO");
        let number = |name: &str| -> u64 {
            let value = info.lines().find_map(|line| line.strip_prefix(name));
            let value = value.and_then(|value| value.split(',').next());
            value.and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        if who.is_peer() {
            ["set", "eval", "evalsha"]
                .map(|command| number(&format!("cmdstat_{command}:calls=")))
                .iter()
                .sum()
        } else {
            number("total_reads_processed:")
        }
    }
}

/// 8 threads of one process.
pub(crate) fn one_process(plan: &Plan, server: &RedisServer, report: &mut Report) {
    let keys = ["w3_fairness", "w3_requests_per_acq", "w3_vs_bare_pairs"];
    let title = "W3: 8 threads of one process, one name";
    measure(plan, server, report, ("w3", 1, 8), title, keys);
}

/// 2 threads in each of 4 processes.
pub(crate) fn four_processes(plan: &Plan, server: &RedisServer, report: &mut Report) {
    let keys = ["w5_fairness", "w5_requests_per_acq", "w5_vs_bare_pairs"];
    let title = "W5: 4 processes with 2 threads each, one name";
    measure(plan, server, report, ("w5", 4, 2), title, keys);
}

fn measure(
    plan: &Plan,
    server: &RedisServer,
    report: &mut Report,
    (name, processes, threads): (&str, usize, usize),
    title: &str,
    keys: [&'static str; 3],
) {
    let mut recorder = Recorder::new(server);
    let mut all_series: Vec<Series> = plan
        .who
        .iter()
        .map(|who| {
            let mut workers = Workers::start(plan, *who, server, name, processes, threads);
            workers.rush(WARM_UP, Duration::ZERO, &mut recorder);
            let check = workers.rush(CHECK, INSIDE, &mut recorder);
            Series {
                workers,
                turns: Vec::new(),
                overlaps: check.overlaps,
            }
        })
        .collect();

    let mut bare = Bare::new(&server.url(), &format!("{name}:alone"), 0);
    pairs_per_s(&mut bare);
    let mut before = pairs_per_s(&mut bare);
    let mut pairs = vec![before];
    for _ in 0..plan.turns {
        for series in &mut all_series {
            let mut turn = series
                .workers
                .rush(plan.turn, Duration::ZERO, &mut recorder);
            let after = pairs_per_s(&mut bare);
            turn.ratio = turn.per_s / f64::midpoint(before, after);
            series.overlaps += turn.overlaps;
            series.turns.push(turn);
            pairs.push(after);
            before = after;
        }
    }

    let mut table = Table::new(
        &format!(
            "{title} ({} turns of {:.1} s; one bare thread alone: {:.0} pairs/s)",
            plan.turns,
            plan.turn.as_secs_f64(),
            median(&mut pairs)
        ),
        &[
            "",
            "acq/s",
            "/ bare pairs",
            "(range)",
            "fewest/most",
            "(worst)",
            "requests per acq",
            "client CPU µs per acq",
            "p99 wait ms",
            "longest ms",
            "two holders",
            "failed",
        ],
    );
    for series in &all_series {
        let ratios = series.sorted(|turn| turn.ratio);
        let ratio = series.median(|turn| turn.ratio);
        let fairness = series.median(|turn| turn.fairness);
        let requests = series.median(|turn| turn.requests);
        let longest = series.sorted(|turn| turn.wait_max_ms);
        let failed: u64 = series.turns.iter().map(|turn| turn.failed).sum();
        table.row(vec![
            series.workers.who.name().to_owned(),
            format!("{:.0}", series.median(|turn| turn.per_s)),
            format!("{ratio:.2}"),
            format!("{:.2} to {:.2}", ratios[0], ratios[ratios.len() - 1]),
            format!("{fairness:.3}"),
            format!("{:.3}", series.sorted(|turn| turn.fairness)[0]),
            format!("{requests:.2}"),
            format!("{:.1}", series.median(|turn| turn.cpu_us)),
            format!("{:.2}", series.median(|turn| turn.wait_p99_ms)),
            format!("{:.0}", longest[longest.len() - 1]),
            series.overlaps.to_string(),
            failed.to_string(),
        ]);
        if series.workers.who == Contender::Redlatch {
            report.values(keys[0], series.sorted(|turn| turn.fairness));
            report.values(keys[1], series.sorted(|turn| turn.requests));
            report.values(keys[2], ratios);
            report.range(&format!("{name}: longest wait, ms"), longest);
            if name == "w5" {
                report.values("w5_staircase", series.sorted(|turn| turn.staircase));
            }
            report.two_holders(series.overlaps);
        } else {
            let who = series.workers.who.name();
            let mut range = |of, figures| report.range(&format!("{name} of {who}: {of}"), figures);
            range("fewest / most", series.sorted(|turn| turn.fairness));
            range("requests", series.sorted(|turn| turn.requests));
            range("acquisitions / bare pairs", ratios);
            range("longest wait, ms", longest);
        }
    }
    report.table(table);
}

/// One bare thread without competitors.
fn pairs_per_s(bare: &mut Bare) -> f64 {
    let start = Instant::now();
    let mut pairs = 0;
    while start.elapsed() < PAIRS {
        bare.lock();
        bare.unlock();
        pairs += 1;
    }
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a benchmark of less than 500 years")
}
