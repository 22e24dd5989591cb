//! A guard unlocks when it goes out of scope: on a return, on an error, on a panic.
//!
//!     cargo run --example guard
//!
//! The example needs no server. If `REDIS_URL` is set, the lock is on that Redis server.
#![allow(clippy::print_stdout, reason = "the output is the example")]

use std::env;
use std::error::Error;
use std::panic;

use redlatch::{Client, Lock};

fn main() -> Result<(), Box<dyn Error>> {
    let client = match env::var("REDIS_URL") {
        Ok(url) => Client::open(&url)?,
        Err(_) => Client::in_memory(),
    };
    let lock = client.lock("lock:orders:42");

    {
        let guard = lock.guard()?;
        println!(
            "in the scope:       locked {}, {guard:?}",
            lock.is_locked()?
        );

        // A second guard of the same thread is a re-entry. Other threads and processes get none.
        let inner = lock.try_guard()?.ok_or("a re-entry was refused")?;
        println!("re-entered:         hold count {}", lock.hold_count()?);
        drop(inner);
    }
    println!("after the scope:    locked {}", lock.is_locked()?);

    if let Err(error) = parse_under_lock(&lock, "forty-two") {
        println!("after an early `?`: locked {} ({error})", lock.is_locked()?);
    }

    // Keeps the panic message out of the output.
    panic::set_hook(Box::new(|_| {}));
    let panicked = panic::catch_unwind(|| lock.run(|_| panic!("in the critical section"))).is_err();
    println!(
        "after a panic:      locked {} (panicked {panicked})",
        lock.is_locked()?
    );

    // `unlock` and `run` report a lock that was lost, a drop cannot.
    let guard = lock.guard()?;
    lock.force_unlock()?;
    match guard.unlock() {
        Ok(()) => println!("unlocked"),
        Err(error) => println!("unlock:             {error}"),
    }
    Ok(())
}

fn parse_under_lock(lock: &Lock, text: &str) -> Result<i32, Box<dyn Error>> {
    let _guard = lock.guard()?;
    Ok(text.parse()?)
}
