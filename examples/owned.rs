//! An `OwnedGuard` belongs to no thread. One thread acquires the lock, others work under it, another thread unlocks.
//!
//!     cargo run --example owned
//!
//! The example needs no server. If `REDIS_URL` is set, the lock is on that Redis server.
#![allow(clippy::print_stdout, reason = "the output is the example")]

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
    let lock = client.lock("lock:orders:42");

    // A thread of a pool acquires the lock for a job, and ends.
    let dispatcher = thread::spawn({
        let lock = lock.clone();
        move || lock.owned()
    });
    let guard = dispatcher.join().map_err(|_| "the dispatcher panicked")??;
    println!("its thread has ended: is_valid {}", guard.is_valid());

    // The guard itself is the holder. No thread holds the lock or can re-enter it.
    println!(
        "this thread holds it: {}",
        lock.is_held_by_current_thread()?
    );
    println!("try_owned: free {}", lock.try_owned()?.is_some());
    println!("try_guard: free {}", lock.try_guard()?.is_some());

    // Threads share it by reference.
    thread::scope(|scope| {
        for part in 1..=3 {
            let guard = &guard;
            scope.spawn(move || println!("part {part}: is_valid {}", guard.is_valid()));
        }
    });

    // The guard moves to the thread that ends the job.
    let (jobs, queue) = mpsc::channel::<OwnedGuard>();
    let worker = thread::spawn(move || {
        for guard in queue {
            thread::sleep(Duration::from_millis(100));
            println!("the worker is done with {}", guard.name());
            guard.unlock_in_background();
        }
    });
    jobs.send(guard)?;
    let next = lock.owned()?; // waits for the worker
    println!("the next owner: is_valid {}", next.is_valid());
    next.unlock()?;

    drop(jobs);
    worker.join().map_err(|_| "the worker panicked")?;
    println!("is_locked {}", lock.is_locked()?);
    Ok(())
}
