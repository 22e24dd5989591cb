//! Ends the wait of another thread: an `Interrupt` is what `Thread.interrupt()` is in Java.
//!
//!     cargo run --example interrupt
//!
//! With `REDIS_URL` set it waits for a lock on that Redis server.
#![allow(clippy::print_stdout, reason = "it is there to be read")]

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Interrupt};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = match env::var("REDIS_URL") {
        Ok(url) => Client::open(&url)?,
        Err(_) => Client::in_memory(),
    };
    let lock = client.lock("redlatch-interrupt");
    let guard = lock.guard()?;

    let interrupt = Interrupt::new();
    let waiter = thread::spawn({
        let (lock, interrupt) = (lock.clone(), interrupt.clone());
        move || {
            let asked = Instant::now();
            (lock.lock_interruptibly(&interrupt), asked.elapsed())
        }
    });

    // Who has other things to do may say so from any thread; a signal handler's thread is the usual one.
    thread::sleep(Duration::from_millis(300));
    interrupt.raise();

    let (outcome, waited) = waiter.join().map_err(|_| "the waiter panicked")?;
    match outcome {
        Err(error @ Error::Interrupted { .. }) => println!("after {waited:.1?}: {error}"),
        other => return Err(format!("expected an interrupt, got {other:?}").into()),
    }

    // It is raised once and for all: later waits that use it end before they begin.
    let again = lock.try_lock_for_interruptibly(Duration::from_secs(5), &interrupt);
    println!(
        "once more:     {}",
        again.map_or_else(|error| error.to_string(), |got| got.to_string())
    );

    guard.unlock()?;
    Ok(())
}
