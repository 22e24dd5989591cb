//! Many seeds, each in its own process of the operating system, so that none affects another.

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fork::Fork;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::plan::Plan;
use crate::{cores, run, variable};

/// A seed that takes longer than this hangs.
pub(crate) const LONGEST: Duration = Duration::from_secs(20);

/// The process of the seed that runs, and how many there were.
static CHILD: AtomicI32 = AtomicI32::new(0);
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Runs every second seed of the range. With `FIND` it stops at the first seed that breaks a rule.
pub(crate) fn work(core: u64) -> ExitCode {
    let began = Instant::now();
    let seconds = Duration::from_secs(variable("SECONDS").unwrap_or(45));
    let (first, seeds) = (variable("FIRST").unwrap_or(1), variable("SEEDS"));
    let finds = variable("FIND").is_some();
    let only = |name: &str, is: &str| std::env::var(name).is_ok_and(|only| only != is);
    let last = seeds.map_or(u64::MAX, |seeds| first + seeds);
    let step = if finds { 1 } else { cores() };
    let mut seed = if finds { first } else { first + core };
    redlatch_server_checks::warm_up();
    redlatch_sim::thread_holds::warm_up();
    thread::spawn(end_what_hangs);
    while seed < last && began.elapsed() < seconds {
        let plan = Plan::of(seed);
        let is_other = only("MOOD", &format!("{:?}", plan.fault_mode))
            || only("SHAPE", &format!("{:?}", plan.shape))
            || only("TOPOLOGY", plan.topology.label());
        if !is_other {
            match run_apart(seed, &plan) {
                None => return ExitCode::FAILURE,
                Some(false) if finds => break,
                Some(_) => {}
            }
        }
        seed += step;
    }
    ExitCode::SUCCESS
}

/// Returns whether a seed keeps all rules; `None` if no process can be started. Its output line has the details.
fn run_apart(seed: u64, plan: &Plan) -> Option<bool> {
    let child = match fork::fork() {
        Ok(Fork::Child) => run::run(seed, plan, false),
        Ok(Fork::Parent(child)) => child,
        Err(_) => return None,
    };
    RUNS.fetch_add(1, Ordering::SeqCst);
    CHILD.store(child, Ordering::SeqCst);
    let status = waitpid(Pid::from_raw(child), WaitOptions::empty()).ok();
    CHILD.store(0, Ordering::SeqCst);
    let status = status.flatten().map(|(_, status)| status);
    let code = status.and_then(|status| status.exit_status());
    if !matches!(code, Some(0 | 1)) {
        let how = match status.and_then(|status| status.terminating_signal()) {
            Some(9) => format!("I4: it hangs, and was ended after {} s", LONGEST.as_secs()),
            Some(signal) => format!("I0: it ended with signal {signal}"),
            None => format!("I0: it ended with {code:?}"),
        };
        let mut out = std::io::stdout().lock();
        // The reader may have gone.
        let _ = writeln!(out, "{seed} 0 0 0 0 0 0 {how}");
    }
    Some(code == Some(0))
}

/// Ends each run that takes too long. The occasional check costs a run nothing.
fn end_what_hangs() {
    let mut seen = (0, Instant::now());
    loop {
        thread::sleep(Duration::from_millis(500));
        let run = RUNS.load(Ordering::SeqCst);
        if run != seen.0 {
            seen = (run, Instant::now());
        } else if seen.1.elapsed() > LONGEST
            && let Some(pid) = Pid::from_raw(CHILD.load(Ordering::SeqCst))
        {
            // It may have ended just now.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
