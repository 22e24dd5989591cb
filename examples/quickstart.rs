//! The first look: two clients, as if they were two processes, take turns at one lock.
//!
//! It needs no server:
//!
//!     cargo run --example quickstart
//!
//! With a Redis server the same lines lock across machines:
//!
//!     REDIS_URL=redis://127.0.0.1:6379 cargo run --example quickstart
#![allow(clippy::print_stdout, reason = "it is there to be read")]

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
            let there = here.another().ok_or("a memory client has a world")?;
            (here, there)
        }
    };
    let mine = here.lock("redlatch-quickstart");
    let theirs = there.lock("redlatch-quickstart");

    mine.lock()?;
    println!("mine:   locked");

    // It is reentrant: the thread that has it may take it again, and unlocks it as often.
    mine.lock()?;
    println!("mine:   locked again, hold count {}", mine.hold_count()?);
    mine.unlock()?;

    println!("theirs: try_lock says {}", theirs.try_lock()?);

    thread::scope(|scope| {
        let waiter = scope.spawn(|| -> redlatch::Result<()> {
            println!("theirs: waiting");
            theirs.lock()?;
            println!("theirs: locked");
            theirs.unlock()
        });
        thread::sleep(Duration::from_millis(100));
        println!("mine:   unlocking");
        mine.unlock()?;
        waiter
            .join()
            .map_err(|_| "the waiter panicked")?
            .map_err(Box::<dyn Error>::from)
    })?;

    println!("nobody: is_locked says {}", mine.is_locked()?);
    Ok(())
}
