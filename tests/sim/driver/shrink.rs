//! Shrinking a seed that breaks a rule: parts of its plan that are not needed for that are left out.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use redlatch_world::network::Faults;

use crate::plan::{Op, Plan};
use crate::report::{kind_of, verdict_of};

/// How many kinds of faults a network has.
const FAULTS: usize = 8;

/// The time limit for leaving out more.
const LONGEST: Duration = Duration::from_secs(120);

impl Plan {
    /// The number of operations and faults that can be left out.
    pub(crate) fn parts(&self) -> usize {
        let threads = self.processes.iter().flat_map(|process| &process.threads);
        let ops: usize = threads.map(|thread| thread.program.len()).sum();
        ops + self.planned_faults.len() + FAULTS
    }

    /// The plan without some of its operations and faults, by their numbers.
    pub(crate) fn without(mut self, left_out: &[usize]) -> Plan {
        let mut number = 0;
        let mut is_kept = || {
            number += 1;
            !left_out.contains(&(number - 1))
        };
        let threads = self.processes.iter_mut().flat_map(|it| &mut it.threads);
        for thread in threads {
            thread.program.retain(|_| is_kept());
        }
        self.planned_faults.retain(|_| is_kept());
        let Faults {
            late,
            cut,
            silent,
            stray,
            surplus,
            drip,
            refuse,
            hang,
            ..
        } = &mut self.faults;
        let chances: [&mut f64; FAULTS] = [late, cut, silent, stray, surplus, drip, refuse, hang];
        for chance in chances {
            if !is_kept() {
                *chance = 0.0;
            }
        }
        self
    }
}

/// The parts left out of the plan of the one seed that is run.
pub(crate) fn left_out() -> Vec<usize> {
    let list = std::env::var("LEFT_OUT").unwrap_or_default();
    list.split(',').filter_map(|it| it.parse().ok()).collect()
}

/// The outcome of a seed without some of its plan.
fn verdict(seed: u64, left_out: &[usize], is_quiet: bool) -> Option<(String, String)> {
    let list: Vec<String> = left_out.iter().map(usize::to_string).collect();
    let mut run = Command::new(std::env::current_exe().ok()?);
    run.env("SEED", seed.to_string())
        .env("LEFT_OUT", list.join(","))
        .env_remove("SHRUNK");
    if is_quiet {
        run.env("QUIET", "1");
    }
    let output = run.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, verdict) = verdict_of(text.lines().last()?)?;
    Some((verdict.to_owned(), text.clone()))
}

/// Shows the shortest program and the fewest faults that were found to break the same rule, with their trace.
pub(crate) fn shrink(seed: u64) -> ExitCode {
    let began = Instant::now();
    let plan = Plan::of(seed);
    let all = plan.parts();
    let Some((first, _)) = verdict(seed, &[], true).filter(|(verdict, _)| verdict != "ok") else {
        println!("seed {seed} breaks no rule");
        return ExitCode::SUCCESS;
    };
    let breaks = |left_out: &[usize]| {
        let verdict = verdict(seed, left_out, true);
        verdict.is_some_and(|(verdict, _)| kind_of(&verdict) == kind_of(&first))
    };
    let rest = |kept: &[usize]| (0..all).filter(|it| !kept.contains(it)).collect::<Vec<_>>();
    let kept = redlatch_server_checks::shrunk((0..all).collect(), &mut |kept| {
        began.elapsed() < LONGEST && breaks(&rest(kept))
    });
    let left_out = rest(&kept);
    let Some((verdict, trace)) = verdict(seed, &left_out, false) else {
        return ExitCode::FAILURE;
    };
    print!("{trace}");
    println!("seed {seed}: {verdict}");
    for (process, it) in plan.clone().without(&left_out).processes.iter().enumerate() {
        for (thread, it) in it.threads.iter().enumerate() {
            let ops: Vec<&Op> = it.program.iter().collect();
            if !ops.is_empty() {
                println!("p{}.t{thread}: {ops:?}", process + 1);
            }
        }
    }
    println!("shrunk from {all} operations and faults to {}", kept.len());
    ExitCode::from(1)
}
