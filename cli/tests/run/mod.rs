//! `run`: the laws L1 to L10 of a command under a lock.

mod blocked_stderr;
mod command;
mod credential_changes;
mod faults;
mod forwarded_signals;
#[cfg(target_os = "linux")]
mod job_control;
mod machines;
mod once_per;
#[cfg(target_os = "linux")]
mod pid_1;
#[cfg(target_os = "linux")]
mod switch;
mod topologies;
mod validity;
mod waiting;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::support::{RedisServer, eventually, is_long, ms};
use crate::{at, client_of, ends_with, redlatch, stderr, stdout};

/// How much a busy machine may delay a step.
const SLACK: Duration = ms(25_000);

fn run_at(url: &str, args: &[&str]) -> Command {
    let mut command = redlatch();
    command.env("REDLATCH_URL", url).arg("run").args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn spawn(server: &RedisServer, args: &[&str]) -> Child {
    run_at(&server.url(), args).spawn().unwrap()
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Reads the process id that the command prints.
fn command_pid(child: &mut Child) -> Pid {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    Pid::from_raw(line.trim().parse().unwrap_or_else(|_| panic!("{line:?}"))).unwrap()
}

/// Reads two process ids. The second process is a child of the first.
fn both_of(child: &mut Child) -> [Pid; 2] {
    both_in(&mut BufReader::new(child.stdout.take().unwrap()))
}

fn both_in(printed: &mut impl BufRead) -> [Pid; 2] {
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    let mut pids = line.split_whitespace().map(|pid| pid.parse().unwrap());
    [(); 2].map(|()| Pid::from_raw(pids.next().unwrap()).unwrap())
}

fn is_alive(pid: Pid) -> bool {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let stat = fs::read_to_string(path).unwrap_or_default();
    // A zombie counts as ended.
    test_kill_process(pid).is_ok() && !stat.contains(") Z")
}

/// Returns the random numbers of a test. `REDLATCH_SEED` repeats the numbers of an earlier run.
fn drawn() -> fastrand::Rng {
    let seed = std::env::var("REDLATCH_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("REDLATCH_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
