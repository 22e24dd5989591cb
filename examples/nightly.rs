//! Four processes start a job at the same time, and one of them runs it.
//!
//!     tests/with-redis cargo run --example nightly
//!
//! `tests/with-redis` starts a Redis server. To use another server, set `REDIS_URL` instead.
#![allow(clippy::print_stdout, reason = "the output is the example")]

use std::env;
use std::error::Error;
use std::process::{self, Command};
use std::thread;
use std::time::Duration;

use redlatch::Client;

const PROCESSES: usize = 4;

/// Longer than the machines' clocks, and so their starts, differ.
const LEASE: Duration = Duration::from_secs(20);

/// The exit code of the process that ran the job.
const RAN: i32 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL")
        .map_err(|_| "REDIS_URL is not set; try `tests/with-redis cargo run --example nightly`")?;
    match env::args().nth(1) {
        Some(job) => run_once(&url, &job),
        None => start_processes(),
    }
}

fn run_once(url: &str, job: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::open(url)?;
    let me = process::id();
    // The lease is fixed and never released, so a machine that starts later finds the lock held.
    if client.lock(job).with_lease_time(LEASE).try_lock()? {
        println!("process {me}: runs {job}");
        thread::sleep(Duration::from_millis(200));
        println!("process {me}: done");
        process::exit(RAN);
    }
    println!("process {me}: another process runs it");
    Ok(())
}

fn start_processes() -> Result<(), Box<dyn Error>> {
    // A real name would contain the date.
    let job = format!("lock:nightly:{}", process::id());
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
        Err("exactly one process must run the job".into())
    }
}
