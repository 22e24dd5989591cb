//! Two clients, which stand for two processes, acquire one lock in turn.
//!
//!     cargo run --example quickstart
//!
//! The example needs no server. If `REDIS_URL` is set, the lock is on that Redis server:
//!
//!     REDIS_URL=redis://127.0.0.1:6379 cargo run --example quickstart
#![allow(clippy::print_stdout, reason = "the output is the example")]

use std::env;
use std::error::Error;
use std::thread;
use std::time::Duration;

use redlatch::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let (here, there) = match env::var("REDIS_URL") {
        Ok(url) => (Client::open(&url)?, Client::open(&url)?),
        Err(_) => {
            let here = Client::in_memory();
            let there = here.another().ok_or("not an in-memory client")?;
            (here, there)
        }
    };
    let mine = here.lock("lock:orders:42");
    let theirs = there.lock("lock:orders:42");

    // Waits for the lock. The lease is renewed until the guard is dropped or unlocked.
    let guard = mine.guard()?;
    println!("here:  holds the lock, is_valid {}", guard.is_valid());

    // The lock is reentrant: its thread may acquire it again.
    let inner = mine.guard()?;
    println!(
        "here:  acquired it again, hold count {}",
        mine.hold_count()?
    );
    inner.unlock()?;

    println!("there: try_guard {:?}", theirs.try_guard()?);
    thread::scope(|scope| {
        // `run` waits, runs the closure under the lock, and unlocks.
        let waiter = scope.spawn(|| theirs.run(|_guard| println!("there: holds the lock")));
        thread::sleep(Duration::from_millis(100));
        println!("here:  unlocks");
        guard.unlock()?;
        waiter.join().map_err(|_| "the waiter panicked")??;
        Ok::<(), Box<dyn Error>>(())
    })?;

    println!("is_locked {}", mine.is_locked()?);
    Ok(())
}
