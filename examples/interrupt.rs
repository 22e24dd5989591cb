//! One thread ends the wait of another with an `Interrupt`, as `Thread.interrupt()` does in Java.
//!
//!     cargo run --example interrupt
//!
//! The example needs no server. If `REDIS_URL` is set, the lock is on that Redis server.
#![allow(clippy::print_stdout, reason = "the output is the example")]

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Interrupt};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = match env::var("REDIS_URL") {
        Ok(url) => Client::open(&url)?,
        Err(_) => Client::in_memory(),
    };
    let lock = client.lock("lock:orders:42");
    let guard = lock.guard()?;

    let interrupt = Interrupt::new();
    let waiter = thread::spawn({
        let (lock, interrupt) = (lock.clone(), interrupt.clone());
        move || {
            let began = Instant::now();
            let outcome = lock.guard_interruptibly(&interrupt).map(drop);
            (outcome, began.elapsed())
        }
    });

    // Any thread may raise it; usually it is the thread that handles signals.
    thread::sleep(Duration::from_millis(300));
    interrupt.raise();

    let (outcome, waited) = waiter.join().map_err(|_| "the waiter panicked")?;
    match outcome {
        Err(error @ Error::Interrupted { .. }) => println!("after {waited:.1?}: {error}"),
        other => return Err(format!("expected an interrupt, got {other:?}").into()),
    }

    // It stays raised: later waits with it end at once.
    match lock.guard_interruptibly(&interrupt) {
        Ok(_) => return Err("expected an interrupt".into()),
        Err(error) => println!("once more:     {error}"),
    }

    guard.unlock()?;
    Ok(())
}
