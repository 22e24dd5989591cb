//! A seller that is paused for longer than its lease, and sells when it goes on: the last item is sold twice, unless the
//! server checks the lock in the step in which it writes.
//!
//! The slow seller is a process of its own (this program, started anew), which is stopped by a signal. It takes about
//! three seconds.
//!
//!     tests/with-redis cargo run --example guarded
//!
//! or, with a Redis server at hand,
//!
//!     REDIS_URL=redis://127.0.0.1:6379 cargo run --example guarded
#![allow(clippy::print_stdout, reason = "it is there to be read")]

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{self, Child, Command, Stdio};
use std::time::Duration;

use redlatch::{Batch, Client, Lock, Reply};
use rustix::process::{Pid, Signal, kill_process};

/// The pause is longer.
const LEASE: Duration = Duration::from_secs(1);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// One item, the lock over it, and who has bought it.
struct Shop {
    lock: Lock,
    stock: String,
    sold: String,
}

impl Shop {
    fn open(url: &str, name: &str) -> redlatch::Result<Shop> {
        let client = Client::builder().watchdog_timeout(LEASE).open(url)?;
        Ok(Shop {
            // With the same part in braces, the keys are on one server in a cluster, too.
            lock: client.lock(&format!("{{{name}}}:lock")),
            stock: format!("{{{name}}}:stock"),
            sold: format!("{{{name}}}:sold"),
        })
    }

    fn sell(&self, batch: &mut Batch, seller: &str) {
        batch.incr_by(&self.stock, -1);
        batch.command("RPUSH").key(&self.sold).arg(seller);
    }
}

fn main() -> Outcome {
    let url = env::var("REDIS_URL")
        .map_err(|_| "REDIS_URL is not set; try `tests/with-redis cargo run --example guarded`")?;
    let args: Vec<String> = env::args().skip(1).collect();
    if let [name, how] = &*args {
        return sell_slowly(&url, name, how == "guarded");
    }
    let without = sold(&url, "unguarded")?;
    println!("without the guard: {without} sold of 1\n");
    let with = sold(&url, "guarded")?;
    println!("with the guard:    {with} sold of 1");
    match (without, with) {
        (2, 1) => Ok(()),
        other => Err(format!("expected 2 and 1, not {other:?}").into()),
    }
}

/// The slow seller: it sees an item, is paused, and sells it.
fn sell_slowly(url: &str, name: &str, is_guarded: bool) -> Outcome {
    let shop = Shop::open(url, name)?;
    let guard = shop.lock.guard()?;
    let stock = guard.write(|batch| {
        batch.get(&shop.stock);
    })?;
    if stock.first().and_then(Reply::as_int) != Some(1) {
        return Err("there is no item".into());
    }
    println!("ready");
    // It is stopped while it waits here.
    stdin().lock().read_line(&mut String::new())?;

    if is_guarded {
        match guard.write(|batch| shop.sell(batch, "slow")) {
            Err(error) if error.is_lost() => println!("{error}"),
            outcome => println!("{outcome:?}"),
        }
    } else {
        let mut redis = redis::Client::open(url)?.get_connection()?;
        let mut sale = redis::pipe();
        sale.atomic().decr(&shop.stock, 1).ignore();
        sale.rpush(&shop.sold, "slow").ignore();
        sale.query::<()>(&mut redis)?;
        println!("sold it as well, is_valid() says {}", guard.is_valid());
    }
    Ok(())
}

/// Lets the slow seller and a quick one sell one item. Returns how often it was sold.
fn sold(url: &str, how: &str) -> Outcome<usize> {
    let name = format!("redlatch-{how}-{}", process::id());
    let shop = Shop::open(url, &name)?;
    shop.lock.run(|guard| {
        guard.write(|batch| {
            batch.set(&shop.stock, "1");
        })
    })??;

    let mut slow = Slow::start(&name, how)?;
    slow.says()?;
    println!("  slow:  has the lock, sees the last item, and is paused");
    slow.signal(Signal::STOP)?;
    let guard = shop.lock.guard()?;
    guard.write(|batch| shop.sell(batch, "quick"))?;
    guard.unlock()?;
    println!("  quick: has the lock when the lease is over, and sells it");
    slow.signal(Signal::CONT)?;
    slow.goes_on()?;
    println!("  slow:  {}", slow.says()?);
    slow.0.wait()?;

    let buyers = shop.lock.run(|guard| {
        guard.write(|batch| {
            batch.command("LRANGE").key(&shop.sold).arg("0").arg("-1");
            batch.del(&shop.sold).del(&shop.stock);
        })
    })??;
    match buyers.into_iter().next() {
        Some(Reply::List(buyers)) => Ok(buyers.len()),
        other => Err(format!("the buyers are {other:?}").into()),
    }
}

/// The process of the slow seller, killed when it is dropped.
struct Slow(Child);

impl Slow {
    fn start(name: &str, how: &str) -> Outcome<Slow> {
        let slow = Command::new(env::current_exe()?)
            .args([name, how])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Slow(slow))
    }

    /// The next line that it says.
    fn says(&mut self) -> Outcome<String> {
        let mut line = String::new();
        let pipe = self.0.stdout.as_mut().ok_or("it has no output")?;
        // A line at a time, so nothing is read ahead.
        BufReader::with_capacity(1, pipe).read_line(&mut line)?;
        match line.trim_end() {
            "" => Err("the slow seller has ended".into()),
            line => Ok(line.to_owned()),
        }
    }

    fn goes_on(&mut self) -> Outcome {
        let pipe = self.0.stdin.as_mut().ok_or("it has no input")?;
        Ok(writeln!(pipe, "go on")?)
    }

    fn signal(&self, signal: Signal) -> Outcome {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        // It may have ended by itself, and nobody is left to be told.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
