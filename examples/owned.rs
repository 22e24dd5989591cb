//! A hold that no thread owns: one thread takes the lock, others work under it, and another one gives it back.
//!
//! It needs no server:
//!
//!     cargo run --example owned
//!
//! With `REDIS_URL` set it takes the lock on that Redis server.
#![allow(clippy::print_stdout, reason = "it is there to be read")]

use std::env;
use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlatch::{Client, OwnedGuard};

fn main() -> Result<(), Box<dyn Error>> {
    let client = match env::var("REDIS_URL") {
        Ok(url) => Client::open(&url)?,
        Err(_) => Client::in_memory(),
    };
    let lock = client.lock("redlatch-owned");

    // As a thread of a pool that takes a job and ends, or goes on with another one.
    let taker = thread::spawn({
        let lock = lock.clone();
        move || lock.owned()
    });
    let guard = taker.join().map_err(|_| "the taker panicked")??;
    println!("its thread has ended: is_valid {}", guard.is_valid());

    // The guard is the owner, and to the server it is one more thread.
    let owner = guard.owner();
    println!("owner {owner}: {}", lock.is_held_by_thread(owner)?);
    println!("this thread: {}", lock.is_held_by_current_thread()?);
    if let Err(error) = lock.unlock() {
        println!("its unlock(): {error}");
    }

    // Nobody re-enters it.
    println!("try_owned: free {}", lock.try_owned()?.is_some());
    println!("try_lock:  free {}", lock.try_lock()?);

    // Any number of threads may work under it, as long as they can see it.
    thread::scope(|scope| {
        for part in 1..=3 {
            let guard = &guard;
            scope.spawn(move || println!("part {part}: is_valid {}", guard.is_valid()));
        }
    });

    // It is passed on like any other value, and the last one to have it gives it back.
    let (jobs, queue) = mpsc::channel::<OwnedGuard>();
    let worker = thread::spawn(move || {
        for guard in queue {
            thread::sleep(Duration::from_millis(100));
            println!("the worker is done with {}", guard.name());
            guard.unlock_in_background();
        }
    });
    jobs.send(guard)?;
    let next = lock.owned()?;
    println!("the next owner: is_valid {}", next.is_valid());
    next.unlock()?;

    drop(jobs);
    worker.join().map_err(|_| "the worker panicked")?;
    println!("nobody: is_locked {}", lock.is_locked()?);
    Ok(())
}
