//! A job that several machines start at the same time, and one of them runs.
//!
//! Four processes (this program, started anew) try the lock; the three that come too late go home.
//!
//!     tests/with-redis cargo run --example nightly
//!
//! or, with a Redis server at hand,
//!
//!     REDIS_URL=redis://127.0.0.1:6379 cargo run --example nightly
#![allow(clippy::print_stdout, reason = "it is there to be read")]

use std::env;
use std::error::Error;
use std::process::{self, Command};
use std::thread;
use std::time::Duration;

use redlatch::Client;

const PROCESSES: usize = 4;

/// Longer than the clocks of the machines, and with them their starts, can be apart.
const NIGHT: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL")
        .map_err(|_| "REDIS_URL is not set; try `tests/with-redis cargo run --example nightly`")?;
    match env::args().nth(1) {
        Some(job) => work(&url, &job),
        None => start_all(),
    }
}

fn work(url: &str, job: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::open(url)?;
    let me = process::id();
    // With a lease time of its own, and never unlocked: a machine whose clock is late would otherwise find the lock
    // free again, and run a job that is done.
    if client.lock(job).with_lease_time(NIGHT).try_lock()? {
        println!("process {me}: runs {job}");
        thread::sleep(Duration::from_millis(200));
        println!("process {me}: done");
        process::exit(RAN);
    }
    println!("process {me}: somebody else runs it");
    Ok(())
}

/// The exit code of the process that ran the job.
const RAN: i32 = 10;

fn start_all() -> Result<(), Box<dyn Error>> {
    // In real life the name has the date in it.
    let job = format!("redlatch-nightly-{}", process::id());
    let start = |_| Command::new(env::current_exe()?).arg(&job).spawn();
    let children = (0..PROCESSES).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut ran = 0;
    for mut child in children {
        match child.wait()?.code() {
            Some(RAN) => ran += 1,
            Some(0) => {}
            code => return Err(format!("a process ended with {code:?}").into()),
        }
    }
    println!("{ran} of {PROCESSES} processes ran the job");
    if ran == 1 {
        Ok(())
    } else {
        Err("it has to be one".into())
    }
}
