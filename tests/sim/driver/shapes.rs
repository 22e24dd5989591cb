//! Directed seeds: worlds and programs in which a few rare events happen often.
//!
//! Half of all seeds are free. A shape changes a drawn free plan, so it keeps the plan's pace and clocks.

use std::collections::BTreeSet;

use fastrand::Rng;
use redlatch_world::scheduler::{MILLI, Nanos, SECOND};

use crate::conditions;
use crate::counter_programs;
use crate::plan::{
    FaultMode, Flavour, NAMES, Op, Plan, PlannedFault, Process, Target, Thread, pick,
};
use crate::queues;
use crate::sides;
use crate::topology::{Replicated, Topology};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As drawn.
    Free,
    /// Many threads wait for one lock in calm, some with short timeouts.
    Waiters,
    /// Many threads wait for one lock on a server that pauses from time to time.
    Pauses,
    /// A process is partitioned for longer than half a minute, with long leases.
    Outage,
    /// Nodes of a quorum forget a hold, and a client arrives that does not know them.
    Newcomers,
    /// Connections are cut during requests, and not all can be opened again at once.
    Cuts,
    /// Holds are force-unlocked.
    Forced,
    /// Clients are shut down among short holds.
    Closing,
    /// Many clients try one lock on a quorum whose nodes reply late.
    Split,
    /// Connections fall silent under short leases.
    Silence,
    /// Levels with longer leases are added and released while replies are late.
    Orders,
    /// Only one sentinel is left, which does not know the present master, and which cannot reach it.
    Behind,
    /// Holds of many minutes, which survive faults shorter than their leases.
    Long,
    /// Short holds with data writes, while requests are late or repeated.
    Writes,
    /// Permits of semaphores are acquired and released under all faults of network and processes.
    Permits,
    /// Like `Permits`, with ids, some of which any process releases.
    PermitIds,
    /// The same with latches.
    Latches,
    /// The same with read-write locks.
    Sides,
    /// The same with fair locks.
    Queues,
    /// The same with conditions of locks.
    Conditions,
    /// Few clients poll for a lock that others hold for longer than any pause.
    Spins,
}

/// Long holds come more often, as they are cheap to simulate; and so do the shapes with the rarest bugs.
const SHAPES: [Shape; 15] = [
    Shape::Waiters,
    Shape::Pauses,
    Shape::Outage,
    Shape::Newcomers,
    Shape::Newcomers,
    Shape::Cuts,
    Shape::Forced,
    Shape::Closing,
    Shape::Split,
    Shape::Silence,
    Shape::Orders,
    Shape::Behind,
    Shape::Long,
    Shape::Long,
    Shape::Long,
];

/// The effects of earlier faults on connections are noticed within this time, unless a connection is silent or hangs.
pub(crate) const SOON: Nanos = 5 * SECOND;

impl Shape {
    pub(crate) fn of(seed: u64) -> Shape {
        // Drawn from another generator, so that the other seeds stay the same.
        match Rng::with_seed(seed ^ 0xc0_0417).u8(..24) {
            0 | 1 => return Shape::Permits,
            2 | 3 => return Shape::Latches,
            5 | 6 => return Shape::Sides,
            4 => return Shape::Writes,
            7 | 8 => return Shape::PermitIds,
            9 => return Shape::Spins,
            10 | 11 => return Shape::Queues,
            12 | 13 => return Shape::Conditions,
            _ => {}
        }
        let draw = &mut Rng::with_seed(seed ^ 0x0005_4a9e);
        match draw.bool() {
            true => Shape::Free,
            false => pick(draw, &SHAPES),
        }
    }

    /// Gives a plan this shape.
    pub(crate) fn form(self, plan: &mut Plan, draw: &mut Rng) {
        if self == Shape::Free {
            return;
        }
        plan.planned_faults.clear();
        plan.servers.truncate(1);
        plan.redlock = None;
        plan.pace.jump = 0.0;
        plan.pool = 32;
        plan.fault_mode = FaultMode::Calm;
        plan.faults = plan.calm.clone();
        plan.calm_at = SECOND;
        match self {
            Shape::Free => {}
            Shape::Waiters => {
                plan.lease = pick(draw, &[10_000, 30_000]);
                let threads = draw.usize(2..=6);
                people(plan, draw, threads, &|draw| waiter(draw, 30, 60));
            }
            Shape::Pauses => {
                plan.fault_mode = FaultMode::Processes;
                plan.lease = pick(draw, &[3_000, 10_000]);
                plan.command = 2_000;
                plan.calm_at = 6 * SECOND;
                let threads = draw.usize(3..=6);
                people(plan, draw, threads, &|draw| waiter(draw, 200, 800));
                for _ in 0..12 {
                    let at = draw.u64(..6_000) * MILLI;
                    let span = draw.u64(100..1_800) * MILLI;
                    plan.planned_faults
                        .push((at, PlannedFault::PauseServer(0, span)));
                }
            }
            Shape::Outage => outage(plan, draw),
            Shape::Newcomers => newcomers(plan, draw),
            Shape::Cuts => {
                counter_programs::cuts(plan, draw);
                let has_tokens = draw.bool();
                people(plan, draw, 3, &|draw| {
                    let mut ops = waiter(draw, 100, 300);
                    for op in &mut ops {
                        if let Some(target) = op.target() {
                            target.is_token = has_tokens;
                        }
                    }
                    ops
                });
            }
            Shape::Forced => {
                plan.lease = pick(draw, &[10_000, 30_000]);
                people(plan, draw, 3, &|draw| {
                    (0..draw.usize(2..6))
                        .map(|_| {
                            let target = Target {
                                name: draw.usize(..2),
                                ..one(pick(draw, &[None, None, Some(60_000)]))
                            };
                            match draw.u8(..4) {
                                0 => Op::Force(target),
                                1 => Op::Sleep(draw.u64(..4_000)),
                                2 => Op::TryFor(target, 6_000),
                                _ => Op::Guarded(target, draw.u64(500..6_000), false),
                            }
                        })
                        .collect()
                });
            }
            Shape::Closing => {
                plan.lease = pick(draw, &[1_000, 3_000]);
                people(plan, draw, 4, &|draw| {
                    let target = Target {
                        name: draw.usize(..3),
                        ..one(None)
                    };
                    let mut ops = vec![Op::Sleep(draw.u64(..20))];
                    for _ in 0..draw.usize(1..20) {
                        ops.extend([Op::Lock(target), Op::Unlock(target)]);
                    }
                    ops.extend([Op::Lock(target), Op::Sleep(12_000)]);
                    ops
                });
                for process in &mut plan.processes {
                    process.shut_down_at = Some(draw.u64(1_000..60_000) * 1_000);
                }
            }
            Shape::Split => {
                plan.fault_mode = FaultMode::Slow;
                plan.lease = pick(draw, &[10_000, 30_000]);
                quorum(plan, draw);
                plan.calm_at = 3 * SECOND;
                plan.settle = SOON;
                plan.faults.late = pick(draw, &[0.1, 0.3]);
                plan.faults.longest = pick(draw, &[100, 400]) * MILLI;
                people(plan, draw, 2, &|draw| waiter(draw, 100, 300));
            }
            Shape::Orders => {
                plan.fault_mode = FaultMode::Slow;
                plan.lease = pick(draw, &[1_000, 3_000]);
                plan.command = 2_000;
                plan.calm_at = 10 * SECOND;
                plan.settle = 60 * SECOND + plan.longest_lease() * MILLI;
                plan.faults.late = pick(draw, &[0.1, 0.3]);
                plan.faults.longest = plan.lease / 5 * MILLI;
                let lease = plan.lease;
                people(plan, draw, 2, &|draw| levels(draw, lease));
            }
            Shape::Behind => behind(plan, draw),
            Shape::Long => long(plan, draw),
            Shape::Writes => {
                plan.fault_mode = FaultMode::Stray;
                plan.lease = pick(draw, &[1_000, 3_000, 10_000]);
                plan.command = pick(draw, &[500, 2_000]);
                plan.calm_at = 4 * SECOND;
                plan.settle = 60 * SECOND + plan.longest_lease() * MILLI;
                plan.faults.cut = pick(draw, &[0.0, 0.1, 0.2]);
                plan.faults.stray = pick(draw, &[0.0, 0.2, 0.4]);
                plan.faults.late = pick(draw, &[0.0, 0.1, 0.3]);
                plan.faults.longest = pick(draw, &[100, 1_000, 3_000]) * MILLI;
                let is_token = draw.bool();
                let lease = plan.lease;
                // No other client acquires what a late copy starts again.
                let is_alone = is_token && draw.bool();
                if is_alone {
                    plan.command = 2_000;
                    plan.faults.cut = 0.0;
                    plan.faults.late = 0.0;
                    plan.faults.stray = pick(draw, &[0.1, 0.2]);
                    plan.faults.longest = pick(draw, &[100, 1_000]) * MILLI;
                }
                people(plan, draw, 3, &|draw| {
                    let target = Target {
                        is_token,
                        ..one(pick(draw, &[None, Some(200), Some(lease * 2)]))
                    };
                    let holds = (0..draw.usize(1..6)).flat_map(|_| {
                        let mut ops = vec![Op::TryFor(target, 3_000)];
                        for _ in 0..draw.usize(1..4) {
                            ops.push(Op::Write(target));
                            if !is_alone {
                                ops.push(Op::Sleep(draw.u64(..60)));
                            }
                        }
                        ops.push(Op::Unlock(target));
                        ops
                    });
                    holds.collect()
                });
                if is_alone {
                    plan.processes.truncate(1);
                    let alone = plan.processes.iter_mut();
                    alone.for_each(|process| process.threads.truncate(1));
                }
            }
            Shape::Permits => counter_programs::permits(plan, draw, false),
            Shape::PermitIds => counter_programs::permits(plan, draw, true),
            Shape::Spins => spins(plan, draw),
            Shape::Latches => counter_programs::latches(plan, draw),
            Shape::Sides => sides::sides(plan, draw),
            Shape::Queues => queues::queues(plan, draw),
            Shape::Conditions => conditions::conditions(plan, draw),
            Shape::Silence => {
                plan.fault_mode = FaultMode::Lossy;
                plan.lease = pick(draw, &[300, 1_000]);
                plan.command = 2_000;
                plan.calm_at = 5 * SECOND;
                plan.settle = 60 * SECOND + plan.longest_lease() * MILLI;
                plan.faults.silent = pick(draw, &[0.01, 0.05]);
                people(plan, draw, 4, &|draw| {
                    (0..draw.usize(3..8))
                        .map(|_| {
                            let target = Target {
                                name: draw.usize(..3),
                                ..one(None)
                            };
                            Op::Guarded(target, draw.u64(..2_000), false)
                        })
                        .collect()
                });
            }
        }
    }
}

fn one(lease: Option<u64>) -> Target {
    Target {
        lease,
        ..Target::default()
    }
}

fn quorum(plan: &mut Plan, draw: &mut Rng) {
    let nodes = pick(draw, &[3, 3, 5]);
    let clock = plan.servers[0];
    plan.servers = vec![clock; nodes];
    plan.redlock = Some(10 + 4 * plan.calm.latency.1 / MILLI);
}

/// One to three processes of up to this many threads, each with a program drawn by `write`.
pub(crate) fn people(
    plan: &mut Plan,
    draw: &mut Rng,
    threads: usize,
    write: &dyn Fn(&mut Rng) -> Vec<Op>,
) {
    let processes = (0..draw.usize(1..=3)).map(|_| {
        let threads = (0..draw.usize(1..=threads)).map(|_| Thread {
            program: write(draw),
            ..Thread::default()
        });
        Process {
            threads: threads.collect(),
            ..Process::default()
        }
    });
    plan.processes = processes.collect();
}

/// Holds of up to `span` ms, and waits that mostly end within `wait` ms.
fn waiter(draw: &mut Rng, span: u64, wait: u64) -> Vec<Op> {
    let target = one(None);
    let ops = (0..draw.usize(3..10)).flat_map(|_| {
        let held = Op::Sleep(draw.u64(..=span));
        match draw.u8(..8) {
            0..=2 => vec![Op::Guarded(target, draw.u64(..=span), false)],
            3 => vec![Op::Lock(target), held, Op::Unlock(target)],
            4 | 5 => vec![
                Op::TryFor(target, draw.u64(..=wait)),
                held,
                Op::Unlock(target),
            ],
            6 => vec![
                Op::Interruptibly(target, draw.u64(..=wait)),
                held,
                Op::Unlock(target),
            ],
            _ => vec![held],
        }
    });
    ops.collect()
}

/// A lock that is re-entered with a longer lease.
fn levels(draw: &mut Rng, lease: u64) -> Vec<Op> {
    let (outer, inner) = (one(None), one(Some(lease * 3)));
    let ops = (0..draw.usize(1..6)).flat_map(|_| {
        let mut pause = || Op::Sleep(draw.u64(..lease));
        [
            Op::TryFor(outer, lease),
            pause(),
            Op::TryFor(inner, lease),
            pause(),
            Op::Unlock(outer),
            pause(),
            Op::Unlock(outer),
        ]
    });
    ops.collect()
}

/// Holds of some seconds, with few polling waiters.
fn spins(plan: &mut Plan, draw: &mut Rng) {
    plan.lease = pick(draw, &[10_000, 30_000]);
    plan.flavours = [Flavour::Spin; NAMES];
    people(plan, draw, 2, &|draw| {
        let ops = (0..draw.usize(1..4)).flat_map(|_| {
            let held = Op::Guarded(one(None), draw.u64(..6_000), false);
            [held, Op::Sleep(draw.u64(..300))]
        });
        ops.collect()
    });
}

fn outage(plan: &mut Plan, draw: &mut Rng) {
    plan.fault_mode = FaultMode::Partitioned;
    plan.lease = 30_000;
    plan.command = 500;
    plan.settle = SOON;
    let span = draw.u64(25_000..60_000) * MILLI;
    let at = draw.u64(100..1_000) * MILLI;
    plan.planned_faults
        .push((at, PlannedFault::Part(0, 0, span)));
    plan.calm_at = at + span + SECOND;
    people(plan, draw, 2, &|draw| {
        let target = Target {
            name: draw.usize(..2),
            ..one(Some(90_000))
        };
        vec![
            Op::TryFor(target, 100),
            Op::Sleep(draw.u64(..3_000)),
            Op::Unlock(target),
        ]
    });
}

fn long(plan: &mut Plan, draw: &mut Rng) {
    const SPAN: u64 = 600_000;
    plan.fault_mode = pick(
        draw,
        &[
            FaultMode::Calm,
            FaultMode::Restarting,
            FaultMode::Partitioned,
        ],
    );
    plan.lease = pick(draw, &[10_000, 30_000]);
    plan.command = pick(draw, &[500, 2_000]);
    plan.calm_at = SPAN * MILLI;
    plan.settle = SOON;
    people(plan, draw, 2, &|draw| {
        let names = 0..draw.usize(1..=4);
        let names = names.map(|_| draw.usize(..8)).collect::<BTreeSet<_>>();
        let target = |name: &usize| Target {
            name: *name,
            ..one(None)
        };
        let mut ops: Vec<Op> = (names.iter().map(target))
            .map(|target| Op::TryFor(target, 1_000))
            .collect();
        ops.push(Op::Sleep(draw.u64(SPAN / 4..SPAN)));
        ops.extend(names.iter().map(target).map(Op::Unlock));
        ops
    });
    if plan.fault_mode == FaultMode::Calm {
        return;
    }
    // Each ends long before its validity would, and the next one begins when there is a new one.
    let mut at = 5_000;
    while at < SPAN {
        let span = draw.u64(1..plan.lease / 6) * MILLI;
        let process = draw.usize(..plan.processes.len());
        let blow = match plan.fault_mode {
            FaultMode::Partitioned => PlannedFault::Part(process, 0, span),
            _ => PlannedFault::Restart(0, span),
        };
        plan.planned_faults.push((at * MILLI, blow));
        at += plan.lease * draw.u64(2..10);
    }
}

fn behind(plan: &mut Plan, draw: &mut Rng) {
    plan.fault_mode = FaultMode::Failing;
    plan.lease = pick(draw, &[1_000, 3_000]);
    plan.command = 500;
    plan.calm_at = 12 * SECOND;
    plan.settle = 60 * SECOND + plan.longest_lease() * MILLI;
    let shape = Replicated::behind(draw);
    let clock = (plan.servers[0].0, 0);
    plan.servers = vec![clock; shape.servers()];
    plan.topology = Topology::Replicated(shape);
    // The replica is the master by then.
    let span = draw.u64(2_000..5_000) * MILLI;
    plan.planned_faults
        .push((4_500 * MILLI, PlannedFault::Part(0, 1, span)));
    people(plan, draw, 2, &|draw| {
        let ops = (0..10).flat_map(|_| {
            [
                Op::TryFor(one(None), 300),
                Op::Sleep(draw.u64(..600)),
                Op::Unlock(one(None)),
                Op::Sleep(draw.u64(..300)),
            ]
        });
        ops.collect()
    });
}

/// The first process holds a lock on a bare majority; one node of that forgets it, and other clients arrive.
fn newcomers(plan: &mut Plan, draw: &mut Rng) {
    plan.fault_mode = FaultMode::Restarting;
    plan.lease = 3_000;
    plan.command = 20_000;
    plan.outage = 30_000;
    let clock = plan.servers[0];
    plan.servers = vec![clock; 3];
    plan.redlock = Some(10 + 4 * plan.calm.latency.1 / MILLI);
    plan.calm_at = 12 * SECOND;
    plan.faults.late = pick(draw, &[0.0, 0.3, 0.3]);
    plan.faults.longest = pick(draw, &[4, 8]) * SECOND;
    let lease = plan.longest_lease();
    let (bare, forgetful) = pick(draw, &[(0, 1), (1, 2), (2, 0)]);
    let at = draw.u64(600..1_400) * MILLI;
    plan.trouble_at = at;
    // It has connected to all nodes by then.
    let cut_off = PlannedFault::Part(0, bare, 12 * SECOND);
    plan.planned_faults.push((300 * MILLI, cut_off));
    let span = draw.u64(1..20) * MILLI;
    plan.planned_faults.push((
        at,
        match draw.bool() {
            true => PlannedFault::Forget(forgetful, span, None),
            false => PlannedFault::Replace(forgetful, span),
        },
    ));
    let process = |program: Vec<Op>, begins_at| Process {
        threads: vec![Thread {
            program,
            ..Thread::default()
        }],
        begins_at,
        ..Process::default()
    };
    let target = one(Some(lease));
    let first = vec![Op::Sleep(400), Op::TryFor(target, 900), Op::Sleep(lease)];
    plan.processes = vec![process(first, 0)];
    for _ in 0..draw.usize(1..=3) {
        let comer = vec![Op::TryFor(one(None), 9_000), Op::Sleep(500)];
        let begins_at = at + span + draw.u64(..500) * MILLI;
        plan.processes.push(process(comer, begins_at));
    }
}
