//! Many threads on many names, with a few popular names.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::Client;

use crate::harness::bare::Bare;
use crate::harness::report::{Report, Table};
use crate::harness::{Part, median, orders, say};
use crate::support::RedisServer;
use crate::{Contender, Plan};

const THREADS: usize = 16;
const NAMES: usize = 1000;
const INSIDE: Duration = Duration::from_millis(1);

/// Connects and loads scripts.
const WARM_UP: Duration = Duration::from_millis(300);

pub(crate) fn measure(plan: &Plan, server: &RedisServer, report: &mut Report) {
    let who = plan.who.iter().filter(|who| !who.is_peer());
    let mut all_series: Vec<(Contender, Part, Vec<f64>)> = who
        .map(|who| {
            let mut part = Part::start("names", &[who.name(), &server.url()]);
            part.receive();
            per_s(&mut part, WARM_UP);
            (*who, part, Vec::new())
        })
        .collect();
    for _ in 0..plan.turns {
        for (_, part, rates) in &mut all_series {
            rates.push(per_s(part, plan.turn));
        }
    }
    let of = |wanted| {
        let found = all_series.iter().find(|(who, ..)| *who == wanted);
        found.map(|(_, _, rates)| rates.clone()).unwrap_or_default()
    };
    let (ours, bare) = (of(Contender::Redlatch), of(Contender::Bare));
    let ratios: Vec<f64> = ours
        .iter()
        .zip(&bare)
        .map(|(ours, bare)| ours / bare)
        .collect();
    let mut table = Table::new(
        &format!(
            "W8: {THREADS} threads of one process on {NAMES} names by Zipf, 1 ms inside ({} turns)",
            plan.turns
        ),
        &["", "acq/s", "(range)"],
    );
    for (who, _, rates) in &mut all_series {
        let middle = median(rates);
        table.row(vec![
            who.name().to_owned(),
            format!("{middle:.0}"),
            format!("{:.0} to {:.0}", rates[0], rates[rates.len() - 1]),
        ]);
    }
    report.table(table);
    if !ratios.is_empty() {
        report.values("w8_vs_bare", ratios);
    }
}

fn per_s(part: &mut Part, length: Duration) -> f64 {
    part.send(&length.as_millis().to_string());
    part.receive()[0] as f64 / length.as_secs_f64()
}

/// A thread's acquisition and release of the lock with this number.
type Work<'a> = Box<dyn FnMut(usize) + Send + 'a>;

/// Prints how many acquisitions began within the given time, in ms. Arguments: contender, server.
pub(crate) fn run(args: &[String]) {
    let [who, url] = args else {
        panic!("two arguments")
    };
    let names: Vec<String> = (0..NAMES).map(|name| format!("w8:{who}:{name}")).collect();
    let client = (who == Contender::Redlatch.name()).then(|| Client::open(url).expect("a client"));
    let locks = client.map(|client| {
        names
            .iter()
            .map(|name| client.lock(name))
            .collect::<Vec<_>>()
    });
    let mut works: Vec<Work<'_>> = (0..THREADS)
        .map(|thread| -> Work<'_> {
            match &locks {
                Some(locks) => Box::new(|name| {
                    locks[name].lock().expect("the lock comes");
                    thread::sleep(INSIDE);
                    locks[name].unlock().expect("the lock is held");
                }),
                None => {
                    let mut bare = Bare::new(url, &names[0], thread);
                    let names = &names;
                    Box::new(move |name| {
                        bare.go_to(&names[name]);
                        while !bare.try_lock() {}
                        thread::sleep(INSIDE);
                        bare.unlock();
                    })
                }
            }
        })
        .collect();
    let share = shares();
    say(&[]);
    for order in orders() {
        let length = Duration::from_millis(order.parse().expect("a number"));
        let end = Instant::now() + length;
        let done: u64 = thread::scope(|scope| {
            let threads: Vec<_> = works
                .iter_mut()
                .map(|work| {
                    scope.spawn(|| {
                        let mut done = 0;
                        while Instant::now() < end {
                            let drawn = fastrand::f64();
                            work(share.partition_point(|share| *share < drawn).min(NAMES - 1));
                            done += 1;
                        }
                        done
                    })
                })
                .collect();
            let threads = threads.into_iter().map(|thread| thread.join());
            threads.map(|done| done.expect("a thread")).sum()
        });
        say(&[done]);
    }
}

/// The cumulative probability of each name: the n-th one has the weight 1 / n.
fn shares() -> Vec<f64> {
    let weights = (1..=NAMES).map(|name| 1.0 / name as f64);
    let all: f64 = weights.clone().sum();
    let sums = weights.scan(0.0, |sum, weight| {
        *sum += weight / all;
        Some(*sum)
    });
    sums.collect()
}
