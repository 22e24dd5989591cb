//! One run: the plan of a seed, carried out.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redlatch_server_checks::Persistence;
use redlatch_world::events;
use redlatch_world::network::{self, Faults};
use redlatch_world::scheduler::{self, JoinHandle, MILLI, Nanos, SECOND};

use crate::causes::Causes;
use crate::machine::Redis;
use crate::plan::{FaultMode, Op, Plan, PlannedFault};
use crate::process::live;
use crate::rules::Expectations;
use crate::shards;
use crate::topology::Topology;
use crate::{conditions, counter_programs, counters, names, queues, rules};

static IS_TRACED: AtomicBool = AtomicBool::new(false);
static SEED: AtomicU64 = AtomicU64::new(0);

/// Ends the run, and with it this process of the operating system, because a rule is broken.
pub(crate) fn violated(what: &str) -> ! {
    scheduler::note(|| format!("VIOLATED: {what}"));
    conclude(Some(what))
}

/// The text of a panic, with the position in `src` where the library's copy has its own.
fn in_source(panic: &str) -> String {
    let begin = panic.find(" at ").map_or(0, |at| at + " at ".len());
    match panic.find("/out/src/") {
        Some(end) if begin < end => format!("{}{}", &panic[..begin], &panic[end + "/out/".len()..]),
        _ => panic.to_owned(),
    }
}

fn conclude(violation: Option<&str>) -> ! {
    let (steps, switches, hash) = scheduler::figures();
    let (held, looks) = rules::figures();
    let mut out = std::io::stdout().lock();
    if IS_TRACED.load(Ordering::Relaxed) {
        // The reader may have gone.
        let _ = out.write_all(scheduler::take_trace().as_bytes());
    }
    let _ = writeln!(out, "events {}", events::line());
    let verdict = violation.unwrap_or("ok").replace('\n', " ");
    let (seed, time) = (SEED.load(Ordering::Relaxed), scheduler::now());
    let _ = writeln!(
        out,
        "{seed} {steps} {switches} {looks} {time} {held} {hash:016x} {verdict}"
    );
    let _ = out.flush();
    std::process::exit(i32::from(violation.is_some()));
}

/// Runs the plan of a seed. The process of the operating system ends with it.
pub(crate) fn run(seed: u64, plan: &Plan, is_traced: bool) -> ! {
    IS_TRACED.store(is_traced, Ordering::Relaxed);
    SEED.store(seed, Ordering::Relaxed);
    scheduler::begin(seed, plan.pace, is_traced);
    scheduler::on_stuck(|text| violated(&text));
    std::panic::set_hook(Box::new(|info| {
        violated(&in_source(&info.to_string()));
    }));
    if is_traced {
        names::introduce();
    }
    scheduler::note(|| format!("seed {seed}: {plan:?}"));
    queues::begin(plan);
    let servers = (0..plan.servers.len()).map(|number| Redis::start(number, seed, plan));
    let servers: Vec<Redis> = servers.collect();
    let patience = rules::patience(plan.command * MILLI);
    let is_plain = matches!(plan.topology, Topology::Plain);
    let is_calm = is_plain && plan.fault_mode == FaultMode::Calm && plan.redlock.is_none();
    let is_off = plan.fault_mode == FaultMode::Clocks;
    let kills = plan
        .planned_faults
        .iter()
        .any(|(_, blow)| matches!(blow, PlannedFault::KillProcess(_)));
    let expects = Expectations {
        patience,
        messages: is_calm && !plan.may_lose(),
        renewals: is_calm && plan.pace.jump == 0.0 && !plan.shuts_down(),
        losses: !plan.shuts_down() && !is_off,
        longest: longest_lease(plan) * MILLI,
        validities: !is_off,
        owners: plan.lingers() && !kills,
        dead: kills,
        processes: plan.processes.len(),
    };
    let causes = causes(plan, expects.renewals);
    rules::begin(&plan.topology, &servers, expects, causes);
    if let Topology::Replicated(shape) = &plan.topology {
        shards::begin(shape, &servers, plan.command * MILLI);
    }
    set_faults_at(0, &servers, &plan.calm);
    set_faults_at(plan.trouble_at, &servers, &plan.faults);
    set_faults_at(plan.calm_at, &servers, &plan.calm);
    let labels = plan.processes.iter().enumerate().map(|(number, process)| {
        let booted = Duration::from_millis(process.booted);
        scheduler::add_process(&format!("p{}", number + 1), process.rate, booted)
    });
    let labels: Vec<usize> = labels.collect();
    for (at, blow) in &plan.planned_faults {
        let (blow, labels, servers) = (*blow, labels.clone(), servers.clone());
        scheduler::at(*at, move || strike(blow, &labels, &servers));
    }
    scheduler::at(plan.calm_at, || {
        scheduler::note(|| "no more faults".to_owned())
    });
    // The effects of earlier faults on connections may be noticed until then.
    let settled_at = match plan.fault_mode {
        FaultMode::Calm => 0,
        _ if queues::only_kills(plan) => 0,
        _ => plan.calm_at + plan.settle,
    };
    scheduler::at(settled_at, rules::calm);
    let mains = plan.processes.iter().zip(&labels).map(|(process, label)| {
        let (process, plan) = (process.clone(), plan.clone());
        let main = scheduler::spawn("main", Some(*label), move || live(&process, &plan));
        (*label, expect(main))
    });
    let mains: Vec<(usize, JoinHandle<()>)> = mains.collect();
    let limit = plan.calm_at + plan.settle + longest(plan);
    for (label, main) in &mains {
        while !main.is_finished() && !scheduler::is_killed(*label) {
            if main.wait_until((scheduler::now() + SECOND).min(limit)) || scheduler::now() < limit {
                continue;
            }
            violated(&format!(
                "I5: process {label} is not done after all that time"
            ));
        }
    }
    rest(plan, &labels, &servers)
}

/// The longest requested lease of any lock, ms.
fn longest_lease(plan: &Plan) -> u64 {
    let threads = plan.processes.iter().flat_map(|process| &process.threads);
    let ops = threads.flat_map(|thread| thread.program.clone());
    let leases = ops.filter_map(|mut op| op.target().and_then(|target| target.lease));
    leases.max().unwrap_or_default().max(plan.lease)
}

/// The causes of losses that a plan can give.
fn causes(plan: &Plan, is_reached: bool) -> Causes {
    let planned_faults = || plan.planned_faults.iter().map(|(_, blow)| blow);
    let suspended = planned_faults().filter_map(|blow| match blow {
        PlannedFault::Suspend(process, _) => Some(process + 1),
        _ => None,
    });
    let closed = plan.processes.iter().enumerate();
    let closed = closed.filter_map(|(number, it)| Some((number + 1, it.shut_down_at?)));
    let faults = &plan.faults;
    Causes {
        suspended: suspended.collect(),
        closed: closed.collect(),
        is_reached,
        may_come_back: faults.stray + faults.cut + faults.surplus > 0.0,
    }
}

fn set_faults_at(moment: Nanos, servers: &[Redis], faults: &Faults) {
    let (servers, faults) = (servers.to_vec(), faults.clone());
    let set = move || {
        for server in servers {
            network::set_faults(server.place, faults.clone());
        }
    };
    match moment {
        0 => set(),
        _ => scheduler::at(moment, set),
    }
}

pub(crate) fn expect<T>(thread: std::io::Result<T>) -> T {
    match thread {
        Ok(thread) => thread,
        Err(error) => violated(&format!("a thread cannot be started: {error}")),
    }
}

/// An upper bound, from the calm on, for the end of all programs.
fn longest(plan: &Plan) -> Nanos {
    let longest_lease = plan.longest_lease();
    let spans = plan.processes.iter().flat_map(|process| &process.threads);
    let spans = spans.map(|thread| {
        let each = thread.program.iter().map(|op| match op {
            Op::TryFor(_, span) | Op::Interruptibly(_, span) => *span + plan.command,
            Op::WaitForLatch(_, span) => *span + plan.command,
            Op::Consume(_, how) => 4 * (how.wait + plan.command),
            Op::Take(want) => want.wait.unwrap_or(300) + plan.command,
            Op::Sleep(span) | Op::Guarded(_, span, _) => *span,
            _ => 4 * plan.command,
        });
        each.sum::<u64>() + longest_lease + 4_000
    });
    (spans.sum::<u64>() + 10 * longest_lease + plan.outage + 120_000) * MILLI
}

/// Checks the end state when all processes have ended.
fn rest(plan: &Plan, labels: &[usize], servers: &[Redis]) -> ! {
    let soon = scheduler::now() + 10 * SECOND;
    scheduler::sleep_until(soon.max(plan.calm_at + 10 * SECOND));
    for label in labels.iter().filter(|label| !scheduler::is_killed(**label)) {
        let open = network::open_connections(*label);
        if open > 0 {
            violated(&format!(
                "I8: process {label} has ended, and {open} connections are open"
            ));
        }
    }
    if !counters::semaphores().is_empty() {
        let auditor = scheduler::add_process("auditor", 0, Duration::ZERO);
        let plan = plan.clone();
        let audit = scheduler::spawn("main", Some(auditor), move || {
            counter_programs::audit(&plan)
        });
        if expect(audit).join().is_err() {
            violated("the audit has panicked");
        }
    }
    scheduler::sleep_until(scheduler::now() + (plan.longest_lease() + 40_000) * MILLI);
    let left = queues::left_over(&servers[0]);
    if let Some(left) = left.or_else(|| conditions::left_over(&servers[0], plan)) {
        violated(&left);
    }
    for server in servers {
        let remembered = server.remembered();
        if remembered > 0 {
            violated(&format!(
                "I8: at the end {remembered} requests of long ago are remembered"
            ));
        }
        let standing = server.standing();
        if !standing.is_empty() {
            violated(&format!("I8: at the end these stand: {standing:?}"));
        }
        let (_, subscriptions) = server.clients();
        if subscriptions > 0 {
            violated(&format!(
                "I8: at the end there are {subscriptions} subscriptions"
            ));
        }
    }
    conclude(None)
}

fn strike(blow: PlannedFault, labels: &[usize], servers: &[Redis]) {
    scheduler::note(|| format!("{blow:?}"));
    scheduler::note_news();
    let now = scheduler::now();
    match blow {
        PlannedFault::PauseProcess(process, span) => scheduler::pause(labels[process], now + span),
        PlannedFault::KillProcess(process) => {
            scheduler::kill(labels[process]);
            network::bury(labels[process]);
        }
        PlannedFault::PauseServer(server, span) => {
            network::pause(servers[server].place, now + span)
        }
        PlannedFault::Restart(server, span) => restart(&servers[server], span, Persistence::All),
        PlannedFault::Forget(server, span, lost) => {
            let persistence = lost.map_or(Persistence::Nothing, Persistence::Lost);
            restart(&servers[server], span, persistence);
        }
        PlannedFault::Flush(server) => servers[server].flush(),
        PlannedFault::Replace(server, span) => replace(&servers[server], span),
        PlannedFault::ForgetScripts(server) => servers[server].forget_scripts(),
        PlannedFault::SetClock(server, micros) => servers[server].set_clock(micros),
        PlannedFault::Suspend(process, span) => scheduler::suspend(labels[process], now + span),
        PlannedFault::Part(process, server, span) => {
            network::part(labels[process], servers[server].place, now + span);
        }
    }
}

fn replace(server: &Redis, span: Nanos) {
    if network::is_up(server.place) {
        server.go_down();
        let server = server.clone();
        scheduler::at(scheduler::now() + span, move || server.is_replaced());
    }
}

fn restart(server: &Redis, span: Nanos, persistence: Persistence) {
    if network::is_up(server.place) {
        server.go_down();
        let server = server.clone();
        scheduler::at(scheduler::now() + span, move || {
            server.come_back(persistence)
        });
    }
}
