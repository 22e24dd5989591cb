//! Additions to a plan: the topology of its servers, and rarer operations and faults.

use fastrand::Rng;
use redlatch_world::scheduler::MILLI;

use crate::plan::{FaultMode, Flavour, Op, Plan, PlannedFault, Target, pick};
use crate::topology::{Kind, Parts, Replicated, Topology};

/// Draws more of a plan.
pub(crate) fn spread(plan: &mut Plan, draw: &mut Rng) {
    plan.topology = Topology::of(draw);
    if draw.u8(..100) < 6 {
        clocks(plan, draw);
    }
    writes(plan, &mut Rng::with_seed(draw.clone().u64(..)));
    match plan.topology.clone() {
        Topology::Plain => {}
        Topology::Parts(parts) => over_parts(plan, &parts, draw),
        Topology::Replicated(shape) => over_shards(plan, shape, draw),
    }
}

fn clocks(plan: &mut Plan, draw: &mut Rng) {
    plan.fault_mode = FaultMode::Clocks;
    plan.faults = plan.calm.clone();
    plan.planned_faults.clear();
    for _ in 0..draw.usize(1..=6) {
        let at = draw.u64(..plan.calm_at);
        let longest = pick(draw, &[20, 1_000, 20_000]);
        let span = draw.u64(1..=longest);
        let micros = i64::try_from(span).unwrap_or_default() * 1_000;
        let server = draw.usize(..plan.servers.len());
        let blow = match draw.u8(..4) {
            0 => PlannedFault::SetClock(server, micros),
            1 => PlannedFault::SetClock(server, -micros),
            _ => PlannedFault::Suspend(draw.usize(..plan.processes.len()), span * MILLI),
        };
        plan.planned_faults.push((at, blow));
    }
}

/// Lets some threads write data under their holds.
fn writes(plan: &mut Plan, draw: &mut Rng) {
    for thread in plan.processes.iter_mut().flat_map(|it| &mut it.threads) {
        if draw.u8(..3) > 0 {
            continue;
        }
        let mut written = Vec::new();
        for mut op in std::mem::take(&mut thread.program) {
            let target = op.target().map(|target| Target {
                lease: None,
                ..*target
            });
            written.push(op);
            let target = target.filter(|_| draw.u8(..3) == 0);
            written.extend(target.map(Op::Write));
        }
        thread.program = written;
    }
}

/// Turns some locks into other kinds.
pub(crate) fn flavour(plan: &mut Plan, draw: &mut Rng) {
    let is_fit = match &plan.topology {
        Topology::Plain => plan.redlock.is_none(),
        Topology::Parts(_) => false,
        // Slots with the keys of plain locks move.
        Topology::Replicated(shape) => shape.kind != Kind::Cluster,
    };
    if !is_fit || draw.bool() {
        return;
    }
    let flavours = [
        Flavour::Plain,
        Flavour::Fenced,
        Flavour::Fenced,
        Flavour::Spin,
        Flavour::Mixed,
    ];
    plan.flavours = plan.flavours.map(|_| pick(draw, &flavours));
}

/// Lets programs choose among locks on several servers, and locks with several members.
fn over_parts(plan: &mut Plan, parts: &Parts, draw: &mut Rng) {
    plan.redlock = (parts.nodes > 0).then(|| 10 + 4 * plan.calm.latency.1 / MILLI);
    widen(plan, parts.servers, draw);
    // Each member has its share of the time, and may have to be connected to within it.
    plan.command = plan.command.max(500);
    let threads = plan.processes.iter_mut().flat_map(|it| &mut it.threads);
    for op in threads.flat_map(|thread| &mut thread.program) {
        if let Some(target) = op.target() {
            target.name = draw.usize(..parts.locks());
            target.is_token = false;
        }
    }
}

/// Replaces the drawn servers by masters with replicas, and plans failovers.
fn over_shards(plan: &mut Plan, mut shape: Replicated, draw: &mut Rng) {
    if plan.fault_mode != FaultMode::Calm || draw.u8(..4) > 0 {
        shape.befall(3, plan.calm_at, draw);
    }
    if plan.fault_mode == FaultMode::Calm {
        if shape.is_calm() {
            // All replicas acknowledge in time.
            shape.lag = shape.lag.min(MILLI);
        } else {
            plan.fault_mode = FaultMode::Failing;
        }
    }
    // Error replies have no number, so the reply to an unexpected `WAIT` would be matched with the next request.
    plan.faults.spares_errors = shape.wait.is_some();
    // Finding a master takes several round trips.
    plan.command = plan.command.max(500);
    // A hold survives a failover only among servers whose clocks agree.
    let ahead = plan.servers[0].0;
    plan.redlock = None;
    widen(plan, shape.servers(), draw);
    plan.servers = vec![(ahead, 0); shape.servers()];
    let may_restart = shape.takeovers.is_empty() && shape.kind != Kind::Cluster;
    plan.planned_faults.retain(|(_, blow)| match blow {
        PlannedFault::Forget(..) | PlannedFault::Flush(_) | PlannedFault::SetClock(..) => false,
        PlannedFault::Restart(..) => may_restart,
        _ => true,
    });
    plan.topology = Topology::Replicated(shape);
}

/// Multiplies the drawn servers, and spreads the faults over them.
fn widen(plan: &mut Plan, servers: usize, draw: &mut Rng) {
    let of_before = plan.servers.clone();
    let clocks = (0..servers).map(|number| of_before[number % of_before.len()]);
    plan.servers = clocks.collect();
    for (_, blow) in &mut plan.planned_faults {
        blow.aim(draw.usize(..servers));
    }
}

impl Op {
    pub(crate) fn target(&mut self) -> Option<&mut Target> {
        match self {
            Op::Lock(target)
            | Op::Try(target)
            | Op::TryFor(target, _)
            | Op::Interruptibly(target, _)
            | Op::Unlock(target)
            | Op::Force(target)
            | Op::Guarded(target, ..)
            | Op::Write(target)
            | Op::Ask(target)
            | Op::Produce(target, ..)
            | Op::Consume(target, _) => Some(target),
            Op::Sleep(_)
            | Op::Set(..)
            | Op::Take(_)
            | Op::GiveBack(_)
            | Op::TakeId(_)
            | Op::GiveIdBack(_)
            | Op::CountDown(_)
            | Op::WaitForLatch(..) => None,
        }
    }
}

impl PlannedFault {
    /// Redirects a fault of a server to this one.
    fn aim(&mut self, at: usize) {
        match self {
            PlannedFault::PauseServer(server, _)
            | PlannedFault::Restart(server, _)
            | PlannedFault::Forget(server, ..)
            | PlannedFault::Flush(server)
            | PlannedFault::ForgetScripts(server)
            | PlannedFault::Replace(server, _)
            | PlannedFault::SetClock(server, _)
            | PlannedFault::Part(_, server, _) => *server = at,
            PlannedFault::PauseProcess(..)
            | PlannedFault::KillProcess(_)
            | PlannedFault::Suspend(..) => {}
        }
    }
}
