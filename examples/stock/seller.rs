//! One process that sells, with many threads.

use std::fmt;
use std::io;
use std::process;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Guard, Lock};

use crate::Failure;
use crate::options::{Options, Seller};
use crate::shelf::Shelf;

/// Sells until there is nothing left, and prints the report. Returns whether no thread failed.
pub(crate) fn run(options: &Options, seller: &Seller) -> Result<bool, Failure> {
    thread::spawn(end_with_parent);
    let client = Client::builder()
        .watchdog_timeout(options.watchdog)
        .open(&options.lock_url)?;
    let lock = client.lock(&format!("stock:{{{}}}", seller.run));
    let began = Instant::now();
    let deadline = began + options.limit;

    let mut total = Tally::default();
    let mut all_well = true;
    thread::scope(|scope| {
        let start = |thread| {
            let lock = &lock;
            let name = format!("{}.{thread}", seller.process);
            scope.spawn(move || {
                let shelf = Shelf::open(&options.stock_url, &seller.run, &name)?;
                sell(options, lock, shelf, &name, deadline)
            })
        };
        let threads: Vec<_> = (1..=options.threads).map(start).collect();
        for (thread, number) in threads.into_iter().zip(1..) {
            match thread.join() {
                Ok(Ok(tally)) => total.add(tally),
                Ok(Err(error)) => {
                    eprintln!("process {}, thread {number}: {error}", seller.process);
                    all_well = false;
                }
                // The panic has printed itself.
                Err(_) => all_well = false,
            }
        }
    });
    println!("{}", total.report(began.elapsed()));
    Ok(all_well)
}

/// Ends this process when its parent has ended, which closes the standard input.
fn end_with_parent() {
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    process::exit(1);
}

/// Runs in each thread: acquires the lock, reads the stock, writes it back, one less.
fn sell(
    options: &Options,
    lock: &Lock,
    mut shelf: Shelf,
    name: &str,
    deadline: Instant,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    loop {
        let asked = Instant::now();
        let guard = if options.without_lock {
            None
        } else {
            // Waits through any outage that ends before the deadline.
            let guard = lock.try_guard_for(deadline.saturating_duration_since(asked))?;
            tally.waits.push(asked.elapsed());
            guard
        };
        if Instant::now() >= deadline {
            return Err(format!("not sold out after {:?}", options.limit).into());
        }

        let left = shelf.left()?;
        if left == 0 {
            return Ok(tally);
        }
        thread::sleep(options.hold);
        if !shelf.sell(left, name, || guard.as_ref().is_none_or(Guard::is_valid))? {
            tally.lost += 1;
        }

        match guard.map_or(Ok(()), Guard::unlock) {
            Ok(()) => {}
            // The next acquisition waits until the store is back, or the hold is over.
            Err(error) if error.is_lost() || error.is_ambiguous() || error.is_retryable() => {
                tally.in_doubt += 1
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The measurements of threads; their sales are in the list.
#[derive(Default)]
struct Tally {
    waits: Vec<Duration>,
    /// Writes omitted because the guard was no longer valid.
    lost: u64,
    /// Unlocks that failed: the hold was lost, or the server did not answer.
    in_doubt: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.waits.extend(other.waits);
        self.lost += other.lost;
        self.in_doubt += other.in_doubt;
    }

    fn report(mut self, took: Duration) -> Report {
        self.waits.sort_unstable();
        let last = self.waits.len().saturating_sub(1);
        let percentile = |share: usize| {
            self.waits
                .get(last * share / 100)
                .copied()
                .unwrap_or_default()
        };
        Report {
            acquisitions: self.waits.len() as u64,
            took,
            p50: percentile(50),
            p99: percentile(99),
            lost: self.lost,
            in_doubt: self.in_doubt,
        }
    }
}

/// What a process reports to its parent, in one line of numbers.
pub(crate) struct Report {
    pub(crate) acquisitions: u64,
    pub(crate) took: Duration,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) lost: u64,
    pub(crate) in_doubt: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [took, p50, p99] = [self.took, self.p50, self.p99].map(|span| span.as_micros());
        write!(
            f,
            "{} {took} {p50} {p99} {} {}",
            self.acquisitions, self.lost, self.in_doubt
        )
    }
}

impl FromStr for Report {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Report, Failure> {
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        let Ok([acquisitions, took, p50, p99, lost, in_doubt]) = <[u64; 6]>::try_from(numbers?)
        else {
            return Err("not a report".into());
        };
        let [took, p50, p99] = [took, p50, p99].map(Duration::from_micros);
        Ok(Report {
            acquisitions,
            took,
            p50,
            p99,
            lost,
            in_doubt,
        })
    }
}
