//! Many processes with many threads sell from one stock, and no item is sold twice.
//!
//!     tests/with-redis cargo run --example stock -- --processes 4 --threads 8 --items 2000
//!
//! Each seller reads the stock from Redis and writes it back, one less, under the lock. Without the lock, the same items are
//! sold several times:
//!
//!     tests/with-redis cargo run --example stock -- --without-lock
//!
//! `tests/with-redis` starts a Redis server. A server of your own can be named in `REDIS_URL` instead. `--help` lists the
//! options. The exit code is 0 if every item was sold exactly once, and with `--without-lock` if some were not.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is a program for the terminal"
)]

mod options;
mod progress;
mod seller;
mod shelf;

use std::collections::HashSet;
use std::env;
use std::error::Error;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use options::Options;
use progress::Progress;
use seller::Report;
use shelf::Shelf;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let options = match Options::from_command_line() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let outcome = match &options.seller {
        Some(seller) => seller::run(&options, seller),
        None => sell_out(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("stock: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the sellers, and checks the list of sales. Returns whether the result is the expected one.
fn sell_out(options: &Options) -> Result<bool, Failure> {
    // Each run has its own stock.
    let run = uuid::Uuid::new_v4().simple().to_string();
    let mut shelf = Shelf::open(&options.stock_url, &run, "shop")?;
    shelf
        .fill(options.items)
        .map_err(|error| format!("{} does not take the stock: {error}", shelf.node()))?;

    let began = Instant::now();
    let sellers =
        start_sellers(options, &run).and_then(|sellers| attend(sellers, options, &mut shelf));
    let took = began.elapsed();
    let sales = shelf.sales();
    shelf.clear()?;
    let (reports, sales) = (sellers?, sales?);

    let count = Count::of(&sales, options);
    print_table(&count, &reports);
    let (sold, oversold, unsold) = (sales.len(), count.all_oversold(), count.unsold);
    let failed = reports.iter().filter(|report| report.is_none()).count();
    println!(
        "{} items in stock, {sold} sold in {took:.1?}: {oversold} oversold, {unsold} unsold",
        options.items
    );
    if failed > 0 {
        println!("{failed} of {} processes failed", options.processes);
        return Ok(false);
    }
    if options.without_lock && oversold == 0 {
        println!("by luck nothing was oversold; try more --threads or a longer --hold-ms");
    }
    Ok(if options.without_lock {
        oversold > 0
    } else {
        oversold == 0 && unsold == 0
    })
}

/// Starts this program anew for each process that sells.
fn start_sellers(options: &Options, run: &str) -> Result<Vec<Child>, Failure> {
    let program = env::current_exe()?;
    let start = |process: usize| {
        Command::new(&program)
            .args(env::args_os().skip(1))
            .args(["--seller", &process.to_string(), "--run", run])
            // A seller ends when this pipe closes, so it does not outlive this process.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::from)
    };
    (1..=options.processes).map(start).collect()
}

/// Waits for the sellers and collects their reports; `None` means that a seller failed.
fn attend(
    mut sellers: Vec<Child>,
    options: &Options,
    shelf: &mut Shelf,
) -> Result<Vec<Option<Report>>, Failure> {
    let mut progress = Progress::new(options.items);
    loop {
        let mut all_ended = true;
        for seller in &mut sellers {
            // Not `wait`, which closes the pipe.
            all_ended &= seller.try_wait()?.is_some();
        }
        if all_ended {
            break;
        }
        // An outage of the server is not an error: the sellers retry.
        if let Ok(left) = shelf.peek() {
            progress.show(options.items.saturating_sub(left));
        }
        thread::sleep(Duration::from_millis(100));
    }
    progress.end();

    let mut reports = Vec::new();
    for (seller, process) in sellers.into_iter().zip(1..) {
        let output = seller.wait_with_output()?;
        let report = String::from_utf8_lossy(&output.stdout).parse().ok();
        if !output.status.success() {
            eprintln!("process {process} failed: {}", output.status);
        }
        reports.push(report.filter(|_| output.status.success()));
    }
    Ok(reports)
}

/// The totals of the list of sales.
struct Count {
    /// By process: items sold, and those of them that were sold before or never existed.
    by_process: Vec<(usize, usize)>,
    unsold: u64,
}

impl Count {
    fn of(sales: &[shelf::Sale], options: &Options) -> Count {
        let mut by_process = vec![(0, 0); options.processes];
        let mut seen = HashSet::new();
        for sale in sales {
            let is_fair = (1..=options.items).contains(&sale.item) && seen.insert(sale.item);
            if let Some((sold, oversold)) = by_process.get_mut(sale.process.wrapping_sub(1)) {
                *sold += 1;
                *oversold += usize::from(!is_fair);
            }
        }
        Count {
            by_process,
            unsold: (1..=options.items)
                .filter(|item| !seen.contains(item))
                .count() as u64,
        }
    }

    fn all_oversold(&self) -> usize {
        self.by_process.iter().map(|(_, oversold)| oversold).sum()
    }
}

fn print_table(count: &Count, reports: &[Option<Report>]) {
    println!("process    sold  oversold  acquisitions/s   wait p50   wait p99  lost  in doubt");
    for ((process, (sold, oversold)), report) in (1..).zip(&count.by_process).zip(reports) {
        print!("{process:>7} {sold:>7} {oversold:>9}");
        match report {
            Some(report) if report.acquisitions > 0 => println!(
                "  {:>14.0} {:>10} {:>10} {:>5} {:>9}",
                report.acquisitions as f64 / report.took.as_secs_f64(),
                format!("{:.1?}", report.p50),
                format!("{:.1?}", report.p99),
                report.lost,
                report.in_doubt,
            ),
            Some(_) => println!("         no lock"),
            None => println!("          failed"),
        }
    }
}
