//! Uncontended pairs of lock and unlock.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Lock};

use crate::Plan;
use crate::harness::bare::Bare;
use crate::harness::{Cores, Counter, median};
use crate::report::Report;
use crate::support::RedisServer;

const THREADS: usize = 8;

/// 8 threads on one core vary more than one does.
const MORE_REPEATS: usize = 2;

/// The number of pairs over which requests are counted.
const COUNTED: u32 = 1000;

/// One thread on the core of the server.
pub(crate) fn one_core(plan: &Plan, cores: &Cores, server: &RedisServer, report: &mut Report) {
    cores.join(server);
    let client = Client::open(&server.url()).expect("a client");
    let lock = client.lock("pair-ours");
    let mut bare = Bare::new(&server.url(), "pair-bare", 1);

    let mut counter = Counter::of(server);
    let mut requests = |pair: &mut dyn FnMut()| {
        pair();
        let before = counter.counts();
        (0..COUNTED).for_each(|_| pair());
        counter.since(before).reads as f64 / f64::from(COUNTED)
    };
    let ours = requests(&mut || pair(&lock));
    let bares = requests(&mut || bare_pair(&mut bare));
    report.value("requests_per_pair", ours);
    report.row(
        "requests per pair",
        format!("{ours}"),
        format!("{bares}"),
        format!("{:.2}", ours / bares),
    );

    let (ratio, ratios) = one_thread(
        plan,
        &lock,
        &mut bare,
        "one thread, one core: pair, p50",
        report,
    );
    report.value("pair_vs_bare", ratio);
    report.range("pair_vs_bare", &ratios);
}

/// One thread on another core than the server.
pub(crate) fn split(plan: &Plan, server: &RedisServer, report: &mut Report) {
    let client = Client::open(&server.url()).expect("a client");
    let lock = client.lock("pair-ours");
    let mut bare = Bare::new(&server.url(), "pair-bare", 1);
    one_thread(
        plan,
        &lock,
        &mut bare,
        "one thread, two cores: pair, p50",
        report,
    );
}

fn one_thread(
    plan: &Plan,
    lock: &Lock,
    bare: &mut Bare,
    what: &str,
    report: &mut Report,
) -> (f64, Vec<f64>) {
    let ([ours, bares, ratio], ratios) = by_turns(
        plan,
        plan.repeats,
        |slice| p50_us(slice, || pair(lock)),
        |slice| p50_us(slice, || bare_pair(bare)),
    );
    report.row(
        what,
        format!("{ours:.1} µs"),
        format!("{bares:.1} µs"),
        format!("{ratio:.3}"),
    );
    report.row(
        &what.replace("pair, p50", "pairs per second"),
        format!("{:.0}", 1e6 / ours),
        format!("{:.0}", 1e6 / bares),
        format!("{:.3}", 1.0 / ratio),
    );
    (ratio, ratios)
}

/// 8 threads, each with its own name.
pub(crate) fn parallel(plan: &Plan, server: &RedisServer, report: &mut Report) {
    let client = Client::open(&server.url()).expect("a client");
    let locks: Vec<Lock> = (0..THREADS)
        .map(|thread| client.lock(&format!("parallel-ours-{thread}")))
        .collect();
    let mut bares: Vec<Bare> = (0..THREADS)
        .map(|thread| Bare::new(&server.url(), &format!("parallel-bare-{thread}"), thread))
        .collect();
    let ([ours, bares, ratio], ratios) = by_turns(
        plan,
        MORE_REPEATS * plan.repeats,
        |slice| pairs_per_s(slice, locks.iter().map(|lock| || pair(lock))),
        |slice| pairs_per_s(slice, bares.iter_mut().map(|bare| || bare_pair(bare))),
    );
    report.value("parallel_vs_bare", ratio);
    report.range("parallel_vs_bare", &ratios);
    report.row(
        "8 threads, own names: pairs per second",
        format!("{ours:.0}"),
        format!("{bares:.0}"),
        format!("{ratio:.3}"),
    );
}

fn pair(lock: &Lock) {
    lock.lock().expect("the lock is free");
    lock.unlock().expect("the lock is held");
}

fn bare_pair(bare: &mut Bare) {
    bare.lock();
    bare.unlock();
}

/// Alternates both sides. Returns the median of each, the median of their ratio within one repeat, and all those
/// ratios.
fn by_turns(
    plan: &Plan,
    repeats: usize,
    mut ours: impl FnMut(Duration) -> f64,
    mut bare: impl FnMut(Duration) -> f64,
) -> ([f64; 3], Vec<f64>) {
    let warm_up = plan.slice / 4;
    ours(warm_up);
    bare(warm_up);
    let (mut all_ours, mut all_bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for repeat in 0..repeats {
        let (one, other);
        if repeat % 2 == 0 {
            one = ours(plan.slice);
            other = bare(plan.slice);
        } else {
            other = bare(plan.slice);
            one = ours(plan.slice);
        }
        all_ours.push(one);
        all_bare.push(other);
        ratios.push(one / other);
    }
    let medians = [
        median(&mut all_ours),
        median(&mut all_bare),
        median(&mut ratios),
    ];
    (medians, ratios)
}

fn p50_us(slice: Duration, mut pair: impl FnMut()) -> f64 {
    let mut times = Vec::with_capacity(1 << 16);
    let end = Instant::now() + slice;
    let mut start = Instant::now();
    while start < end {
        pair();
        let done = Instant::now();
        times.push(u32::try_from((done - start).as_nanos()).unwrap_or(u32::MAX));
        start = done;
    }
    f64::from(median(&mut times)) / 1000.0
}

fn pairs_per_s<P: FnMut() + Send>(slice: Duration, pairs: impl Iterator<Item = P>) -> f64 {
    let start = Instant::now();
    let end = start + slice;
    let done: u64 = thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .map(|mut pair| {
                scope.spawn(move || {
                    let mut done = 0;
                    while Instant::now() < end {
                        pair();
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread of pairs"))
            .sum()
    });
    done as f64 / start.elapsed().as_secs_f64()
}
