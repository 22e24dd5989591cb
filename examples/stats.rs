//! The numbers of a lock that several threads want, once a second as a table, and at the end as a page for Prometheus.
//!
//!     cargo run --example stats
//!
//! With `REDIS_URL` set its locks are on that Redis server.
#![allow(clippy::print_stdout, reason = "it is there to be read")]

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Result};

fn main() -> Result<()> {
    let client = match std::env::var("REDIS_URL") {
        Ok(url) => Client::open(&url)?,
        Err(_) => Client::in_memory(),
    };
    let end = Instant::now() + Duration::from_secs(3);
    thread::scope(|scope| {
        for reviewer in 0..4 {
            let client = &client;
            scope.spawn(move || -> Result<()> {
                let mut task = reviewer;
                while Instant::now() < end {
                    // Two names, one class: "task".
                    let lock = client.lock(&format!("task:{}", task % 2));
                    if let Some(guard) = lock.try_guard_for(Duration::from_millis(20))? {
                        thread::sleep(Duration::from_millis(10));
                        guard.unlock()?;
                    }
                    task += 1;
                }
                Ok(())
            });
        }
        while Instant::now() < end {
            thread::sleep(Duration::from_secs(1));
            println!("{}\n", client.stats());
        }
    });
    let stats = client.stats();
    for line in stats.to_openmetrics().lines() {
        if line.starts_with("redlatch_acquisitions_total") {
            println!("{line}");
        }
    }
    let tasks = stats
        .class("task")
        .map_or(0, |task| task.acquisitions.total());
    println!("{tasks} tasks were reviewed");
    Ok(())
}
