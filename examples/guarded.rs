//! A seller is paused for longer than its lease, and sells an item when it continues. Another seller has sold this item
//! meanwhile. The item is sold twice, unless the server checks the hold and writes in one atomic step (`Guard::write`).
//!
//!     tests/with-redis cargo run --example guarded
//!
//! `tests/with-redis` starts a Redis server. To use another server, set `REDIS_URL` instead.
#![allow(clippy::print_stdout, reason = "the output is the example")]

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{self, Child, Command, Stdio};
use std::time::Duration;

use redlatch::{Batch, Client, Lock, Reply};
use rustix::process::{Pid, Signal, kill_process};

const LEASE: Duration = Duration::from_secs(1);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// One item, its lock, and the list of its sales.
struct Shop {
    lock: Lock,
    stock: String,
    sales: String,
}

impl Shop {
    fn open(url: &str, name: &str) -> redlatch::Result<Shop> {
        let client = Client::builder().watchdog_timeout(LEASE).open(url)?;
        Ok(Shop {
            // The common part in braces keeps the keys on one server of a cluster.
            lock: client.lock(&format!("{{{name}}}:lock")),
            stock: format!("{{{name}}}:stock"),
            sales: format!("{{{name}}}:sales"),
        })
    }

    fn sell(&self, batch: &mut Batch, seller: &str) {
        batch.incr_by(&self.stock, -1);
        batch.command("RPUSH").key(&self.sales).arg(seller);
    }
}

fn main() -> Outcome {
    let url = env::var("REDIS_URL")
        .map_err(|_| "REDIS_URL is not set; try `tests/with-redis cargo run --example guarded`")?;
    let args: Vec<String> = env::args().skip(1).collect();
    if let [name, how] = &*args {
        return sell_slowly(&url, name, how == "guarded");
    }
    let without = sales(&url, "unguarded")?;
    println!("without Guard::write: {without} sold of 1\n");
    let with = sales(&url, "guarded")?;
    println!("with Guard::write:    {with} sold of 1");
    match (without, with) {
        (2, 1) => Ok(()),
        other => Err(format!("expected 2 and 1, not {other:?}").into()),
    }
}

/// Runs in a process of its own: acquires the lock, is paused, and sells the item.
fn sell_slowly(url: &str, name: &str, is_guarded: bool) -> Outcome {
    let shop = Shop::open(url, name)?;
    let guard = shop.lock.guard()?;
    println!("ready");
    // The parent stops this process while it waits here.
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
        sale.rpush(&shop.sales, "slow").ignore();
        sale.query::<()>(&mut redis)?;
        println!("sold it too, is_valid {}", guard.is_valid());
    }
    Ok(())
}

/// Has a slow and a quick seller sell one item. Returns the number of sales.
fn sales(url: &str, how: &str) -> Outcome<usize> {
    let name = format!("redlatch-{how}-{}", process::id());
    let shop = Shop::open(url, &name)?;
    shop.lock.run(|guard| {
        guard.write(|batch| {
            batch.set(&shop.stock, "1");
        })
    })??;

    let mut command = Command::new(env::current_exe()?);
    command.args([&name, how]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut slow = SlowSeller(command.spawn()?);
    slow.read_line()?;
    println!("  slow:  holds the lock, and is paused");
    slow.signal(Signal::STOP)?;
    let guard = shop.lock.guard()?;
    guard.write(|batch| shop.sell(batch, "quick"))?;
    guard.unlock()?;
    println!("  quick: acquires the lock when the lease has ended, and sells the item");
    slow.signal(Signal::CONT)?;
    slow.0.stdin.take().ok_or("no stdin")?.write_all(b"\n")?;
    println!("  slow:  {}", slow.read_line()?);
    slow.0.wait()?;

    let replies = shop.lock.run(|guard| {
        guard.write(|batch| {
            batch.command("LRANGE").key(&shop.sales).arg("0").arg("-1");
            batch.del(&shop.sales).del(&shop.stock);
        })
    })??;
    match replies.into_iter().next() {
        Some(Reply::List(sales)) => Ok(sales.len()),
        other => Err(format!("the sales are {other:?}").into()),
    }
}

/// A process of this program, killed on drop.
struct SlowSeller(Child);

impl SlowSeller {
    fn read_line(&mut self) -> Outcome<String> {
        let stdout = self.0.stdout.as_mut().ok_or("no stdout")?;
        let mut line = String::new();
        // A capacity of 1, so that nothing of the next line is buffered and lost.
        BufReader::with_capacity(1, stdout).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn signal(&self, signal: Signal) -> Outcome {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }
}

impl Drop for SlowSeller {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
