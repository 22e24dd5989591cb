//! `--once-per` on several machines.

use std::sync::Mutex;

use super::*;
#[cfg(target_os = "linux")]
use crate::support::ClockShim;

const PERIOD: Duration = ms(9000);
/// The slack: how much less than a period may pass between two runs.
const EARLY: Duration = ms(2500);
const APART: Duration = ms(2000);

/// `due` is when the machine's clock reached the start of the round. `over` is when redlatch ended.
struct Call {
    due: Instant,
    over: Instant,
    round: u32,
}

/// Cron starts one job per period on three machines, whose clocks differ by two seconds. In each period, only one machine
/// runs the job.
///
/// redlatch sees the clock of its machine. A busy test machine delays calls, so the strict check applies only if all calls
/// were in time.
#[test]
#[cfg(target_os = "linux")]
fn one_of_three_machines_runs_the_job_per_period() {
    let rounds = if is_long() { 24 } else { 2 };
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let script = format!("date +%s%N >> {}/runs", folder.path().display());
    let clocks = [-2000, 0, 2000].map(|ahead| {
        let clock = ClockShim::build();
        clock.set(ahead);
        clock
    });
    let calls = Mutex::new(Vec::new());
    let begun = Instant::now();
    thread::scope(|scope| {
        for (place, clock) in clocks.iter().enumerate() {
            let (server, script, calls) = (&server, &script, &calls);
            scope.spawn(move || {
                for round in 0..rounds {
                    // The clock that is most ahead reaches the start of the round first.
                    let late = APART * u32::try_from(2 - place).unwrap();
                    let due = begun + PERIOD * round + late;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    let args = [
                        "--quiet",
                        "-E",
                        "0",
                        "--once-per",
                        "9s",
                        "--slack",
                        "2500ms",
                    ];
                    let args = [&args[..], &["job", "--", "sh", "-c", script]].concat();
                    let mut command = run_at(&server.url(), &args);
                    command
                        .env("LD_PRELOAD", clock.library())
                        .env(crate::support::clock::OFFSET_VARIABLE, clock.offset_path());
                    ends_with(&command.output().unwrap(), 0);
                    let over = Instant::now();
                    calls.lock().unwrap().push(Call { due, over, round });
                }
            });
        }
    });
    let runs = fs::read_to_string(folder.path().join("runs")).unwrap();
    let runs: Vec<i64> = runs.lines().map(|line| line.parse().unwrap()).collect();
    // Three different clocks wrote these times, so they are not compared.
    assert!(
        !runs.is_empty() && runs.len() <= rounds as usize,
        "{runs:?}"
    );
    let calls = calls.into_inner().unwrap();
    let is_in_time = |call: &Call| call.over < call.due + EARLY - ms(500);
    let in_time = calls.iter().filter(|call| is_in_time(call)).count();
    let last = calls.iter().map(|call| call.round).max();
    if in_time == calls.len() {
        assert_eq!(runs.len(), rounds as usize, "{last:?}");
    }
}
