//! A guard unlocks when it goes out of scope: on a return, on an error, on a panic.
//!
//!     cargo run --example guard
//!
//! With `REDIS_URL` set it does so on that Redis server.
#![allow(clippy::print_stdout, reason = "it is there to be read")]

use std::env;
use std::error::Error;
use std::panic;

use redlatch::{Client, Lock};

fn main() -> Result<(), Box<dyn Error>> {
    let client = match env::var("REDIS_URL") {
        Ok(url) => Client::open(&url)?,
        Err(_) => Client::in_memory(),
    };
    let lock = client.lock("redlatch-guard");

    {
        let guard = lock.guard()?;
        println!(
            "in the scope:       locked {}, {guard:?}",
            lock.is_locked()?
        );

        // A second guard of the same thread is a re-entry; nobody else gets one.
        let inner = lock.try_guard()?.ok_or("the thread has it already")?;
        println!("re-entered:         hold count {}", lock.hold_count()?);
        drop(inner);
    }
    println!("after the scope:    locked {}", lock.is_locked()?);

    if let Err(error) = parse_under_lock(&lock, "forty-two") {
        println!("after an early `?`: locked {} ({error})", lock.is_locked()?);
    }

    // The message of the panic is not what this is about.
    panic::set_hook(Box::new(|_| {}));
    let panicked = panic::catch_unwind(|| lock.run(|_| panic!("in the critical section"))).is_err();
    println!(
        "after a panic:      locked {} (panicked {panicked})",
        lock.is_locked()?
    );

    // Dropping cannot tell how the unlock went. `unlock` can, and so does `run`.
    let guard = lock.guard()?;
    lock.force_unlock()?;
    match guard.unlock() {
        Ok(()) => println!("unlocked"),
        Err(error) => println!("unlock says:        {error}"),
    }
    Ok(())
}

fn parse_under_lock(lock: &Lock, text: &str) -> Result<i32, Box<dyn Error>> {
    let _guard = lock.guard()?;
    Ok(text.parse()?)
}
