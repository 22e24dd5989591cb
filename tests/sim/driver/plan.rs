//! The plan of a seed: processes, the programs of their threads, and faults.

use fastrand::Rng;
use redlatch_world::network::Faults;
use redlatch_world::scheduler::{MILLI, Nanos, Pace, SECOND};

use crate::conditions::Await;
use crate::counter_programs::{End, Want};
use crate::shapes::Shape;
use crate::spread;
use crate::topology::Topology;

/// The operations of one thread in order. Each can be left out of a program.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Lock(Target),
    Try(Target),
    TryFor(Target, u64),
    /// Interrupted after this many ms.
    Interruptibly(Target, u64),
    Unlock(Target),
    Force(Target),
    /// A guard held for this many ms, with or without a re-entry.
    Guarded(Target, u64, bool),
    Sleep(u64),
    /// A guarded write of data.
    Write(Target),
    /// Queries.
    Ask(Target),
    /// Sets the semaphore or latch of this number to this count.
    Set(usize, u32, bool),
    Take(Want),
    GiveBack(End),
    /// Acquires a permit that no handle owns.
    TakeId(Want),
    /// Releases a permit that no handle owns, with two simultaneous requests or one.
    GiveIdBack(bool),
    CountDown(usize),
    /// Waits for a latch for this many ms.
    WaitForLatch(usize, u64),
    /// Puts this many things under a lock, and signals all waiters.
    Produce(Target, u32, bool),
    /// Takes a thing from under a lock, or waits for it.
    Consume(Target, Await),
}

/// A lock, and the requested lease in ms; `None` for the watchdog's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Target {
    pub(crate) name: usize,
    pub(crate) lease: Option<u64>,
    pub(crate) is_token: bool,
    /// Of a read-write lock, whether it is the write side.
    pub(crate) side: Option<bool>,
}

/// How the locks of a number are made that are not token locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Plain,
    Fenced,
    Spin,
    /// Plain in one half of the processes, and a spin lock in the other.
    Mixed,
    Fair,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Thread {
    pub(crate) program: Vec<Op>,
    /// Whether it ends without releasing its holds.
    pub(crate) leaves: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(crate) threads: Vec<Thread>,
    pub(crate) begins_at: Nanos,
    /// How much faster its clocks run, in millionths.
    pub(crate) rate: i64,
    pub(crate) booted: u64,
    /// When its client is shut down though its threads are at work.
    pub(crate) shut_down_at: Option<Nanos>,
}

/// A fault at a given time, independent of the network's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlannedFault {
    PauseProcess(usize, Nanos),
    KillProcess(usize),
    PauseServer(usize, Nanos),
    Restart(usize, Nanos),
    /// With the loss of its last ms, or of all.
    Forget(usize, Nanos, Option<i64>),
    Flush(usize),
    ForgetScripts(usize),
    /// After this time a replica without the last holds replaces the server.
    Replace(usize, Nanos),
    Part(usize, usize, Nanos),
    /// The clock of a server is set, by this many microseconds.
    SetClock(usize, i64),
    /// The machine of a process is suspended.
    Suspend(usize, Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultMode {
    Calm,
    Lossy,
    Slow,
    Partitioned,
    Restarting,
    Stray,
    Processes,
    All,
    /// Clocks of servers are set, and machines sleep.
    Clocks,
    /// Only failovers, lying sentinels and slot migrations happen.
    Failing,
}

const MOODS: [FaultMode; 8] = [
    FaultMode::Calm,
    FaultMode::Lossy,
    FaultMode::Slow,
    FaultMode::Partitioned,
    FaultMode::Restarting,
    FaultMode::Stray,
    FaultMode::Processes,
    FaultMode::All,
];

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    pub(crate) fault_mode: FaultMode,
    pub(crate) topology: Topology,
    pub(crate) pace: Pace,
    /// Of each server how far its clock is ahead, in microseconds, and faster, in millionths.
    pub(crate) servers: Vec<(i64, i64)>,
    /// The node timeout of a Redlock, if it is one, ms.
    pub(crate) redlock: Option<u64>,
    pub(crate) processes: Vec<Process>,
    pub(crate) lease: u64,
    pub(crate) command: u64,
    pub(crate) outage: u64,
    pub(crate) pool: u32,
    pub(crate) planned_faults: Vec<(Nanos, PlannedFault)>,
    pub(crate) faults: Faults,
    pub(crate) trouble_at: Nanos,
    pub(crate) calm: Faults,
    pub(crate) calm_at: Nanos,
    /// How long after the faults their effect on connections may be noticed.
    pub(crate) settle: Nanos,
    pub(crate) flavours: [Flavour; NAMES],
    /// For how long a waiter for a fair lock counts as alive, ms.
    pub(crate) patience: u64,
}

/// The most locks that free programs have.
pub(crate) const NAMES: usize = 3;

impl Plan {
    pub(crate) fn of(seed: u64) -> Plan {
        let mut draw = Rng::with_seed(seed ^ 0x5eed);
        let draw = &mut draw;
        let fault_mode = pick(draw, &MOODS);
        let lease = pick(draw, &[300, 1_000, 3_000, 10_000, 30_000]);
        let names = draw.usize(1..=NAMES);
        let has_tokens = draw.u8(..5) == 0;
        let forces = draw.u8(..6) == 0;
        let calm_at = draw.u64(1..=30) * SECOND;
        let shuts_down = draw.u8(..6) == 0;
        let is_off = draw.u8(..3) == 0;
        // Small plans find more in the same time, and are easier to read.
        let processes = (0..pick(draw, &[1, 1, 2, 2, 2, 3, 4])).map(|_| Process {
            threads: (0..pick(draw, &[1, 1, 1, 2, 2, 2, 3, 6]))
                .map(|_| Thread {
                    program: program(draw, names, lease, has_tokens, forces),
                    leaves: draw.u8(..10) == 0,
                })
                .collect(),
            begins_at: 0,
            rate: if is_off { draw.i64(-4_000..=4_000) } else { 0 },
            booted: draw.u64(..10_000_000),
            shut_down_at: (shuts_down && draw.bool()).then(|| draw.u64(..calm_at)),
        });
        let processes: Vec<_> = processes.collect();
        let nodes = pick(draw, &[1, 1, 1, 1, 3, 3, 5]);
        let servers = (0..nodes).map(|_| {
            let rate = if is_off { draw.i64(-4_000..=4_000) } else { 0 };
            (draw.i64(-5_000_000..=5_000_000), rate)
        });
        let servers = servers.collect();
        let latencies = [(20_000, 200_000), (200_000, 2 * MILLI), (MILLI, 10 * MILLI)];
        let latency = pick(draw, &latencies);
        let calm = Faults {
            latency,
            ..Faults::default()
        };
        let mut plan = Plan {
            shape: Shape::of(seed),
            fault_mode,
            topology: Topology::Plain,
            pace: pace(draw),
            servers,
            redlock: (nodes > 1).then(|| 10 + 4 * latency.1 / MILLI),
            processes,
            lease,
            command: pick(draw, &[200, 500, 2_000]),
            outage: pick(draw, &[1_000, 10_000, 30_000]),
            pool: pick(draw, &[1, 2, 8, 32]),
            planned_faults: Vec::new(),
            faults: calm.clone(),
            trouble_at: 0,
            calm,
            calm_at,
            settle: 0,
            flavours: [Flavour::Plain; NAMES],
            patience: 300_000,
        };
        plan.trouble(draw);
        plan.settle = 60 * SECOND + plan.longest_lease() * MILLI;
        if plan.shape == Shape::Free {
            // Drawn from another generator, so that the other seeds stay the same.
            spread::spread(&mut plan, &mut Rng::with_seed(seed ^ 0x7090_1097));
            plan.settle = 60 * SECOND + plan.longest_lease() * MILLI;
            spread::flavour(&mut plan, &mut Rng::with_seed(seed ^ 0xf1a_7042));
        }
        plan.shape
            .form(&mut plan, &mut Rng::with_seed(seed ^ 0x5ba9e));
        plan
    }

    /// Whether this server is a node of a Redlock, which survives its restart.
    pub(crate) fn is_node(&self, server: usize) -> bool {
        match &self.topology {
            Topology::Plain => self.redlock.is_some(),
            Topology::Parts(parts) => server < parts.nodes,
            Topology::Replicated(_) => false,
        }
    }

    /// The longest requested lease of any lock, ms.
    pub(crate) fn longest_lease(&self) -> u64 {
        self.lease.max(1_000) * 3
    }

    /// Whether a client is shut down while its threads are at work.
    pub(crate) fn shuts_down(&self) -> bool {
        self.processes.iter().any(|it| it.shut_down_at.is_some())
    }

    /// Whether clients stay until in-doubt requests at the end of their programs are resolved.
    pub(crate) fn lingers(&self) -> bool {
        self.shape != Shape::Free && !self.shuts_down()
    }

    /// Whether a hold may be lost without network faults.
    pub(crate) fn may_lose(&self) -> bool {
        self.forces() || self.pace.jump > 0.0 || self.shuts_down()
    }

    /// Whether threads may wait for connections for most of the node timeout.
    pub(crate) fn is_crowded(&self) -> bool {
        self.pool < 8
    }

    /// Whether locks are force-unlocked.
    pub(crate) fn forces(&self) -> bool {
        let threads = self.processes.iter().flat_map(|process| &process.threads);
        let mut ops = threads.flat_map(|thread| &thread.program);
        ops.any(|op| matches!(op, Op::Force(_)))
    }

    /// Whether no fault lasts long enough to lose a hold.
    pub(crate) fn survives(&self) -> bool {
        self.shape == Shape::Long
    }

    pub(crate) fn trouble(&mut self, draw: &mut Rng) {
        let all = self.fault_mode == FaultMode::All;
        let is = |fault_mode: FaultMode, this: FaultMode| fault_mode == this || all;
        let fault_mode = self.fault_mode;
        let faults = &mut self.faults;
        faults.longest = pick(draw, &[50, 500, 5_000]) * MILLI;
        if is(fault_mode, FaultMode::Lossy) {
            faults.cut = pick(draw, &[0.005, 0.03]);
            faults.silent = pick(draw, &[0.0, 0.005]);
            faults.drip = pick(draw, &[0.0, 0.05]);
            faults.refuse = pick(draw, &[0.0, 0.1]);
            faults.hang = pick(draw, &[0.0, 0.05]);
        }
        if is(fault_mode, FaultMode::Slow) {
            faults.late = pick(draw, &[0.02, 0.1]);
            faults.drip = pick(draw, &[0.0, 0.05]);
        }
        if is(fault_mode, FaultMode::Stray) {
            faults.stray = pick(draw, &[0.02, 0.1]);
            faults.surplus = pick(draw, &[0.0, 0.01]);
            faults.late = pick(draw, &[0.0, 0.03]);
        }
        let spans = [20, 200, 2_000, 6_000];
        let (processes, servers) = (self.processes.len(), self.servers.len());
        for _ in 0..draw.usize(1..=6) {
            let at = draw.u64(..self.calm_at);
            let longest = pick(draw, &spans);
            let span = draw.u64(1..=longest) * MILLI;
            let (process, server) = (draw.usize(..processes), draw.usize(..servers));
            let kind = draw.u8(..10);
            let blow = match fault_mode {
                FaultMode::Partitioned => PlannedFault::Part(process, server, span),
                FaultMode::Restarting => restart(draw, server, span, kind),
                FaultMode::Processes if kind == 0 => PlannedFault::KillProcess(process),
                FaultMode::Processes if kind < 7 => PlannedFault::PauseProcess(process, span),
                FaultMode::Processes => PlannedFault::PauseServer(server, span),
                FaultMode::All if kind < 3 => PlannedFault::Part(process, server, span),
                FaultMode::All if kind < 5 => restart(draw, server, span, kind),
                FaultMode::All if kind < 8 => PlannedFault::PauseProcess(process, span),
                FaultMode::All if kind < 9 => PlannedFault::PauseServer(server, span),
                FaultMode::All => PlannedFault::KillProcess(process),
                _ => continue,
            };
            self.planned_faults.push((at, blow));
        }
    }
}

fn restart(draw: &mut Rng, server: usize, span: Nanos, kind: u8) -> PlannedFault {
    match kind {
        0 => PlannedFault::Forget(server, span, Some(draw.i64(..2_000))),
        1 => PlannedFault::Forget(server, span, None),
        2 => PlannedFault::Flush(server),
        3 => PlannedFault::ForgetScripts(server),
        _ => PlannedFault::Restart(server, span),
    }
}

pub(crate) fn pick<T: Clone>(draw: &mut Rng, of: &[T]) -> T {
    of[draw.usize(..of.len())].clone()
}

fn pace(draw: &mut Rng) -> Pace {
    Pace {
        switch: pick(draw, &[0.02, 0.1, 0.5]),
        ranks: draw.u8(..3) == 0,
        jump: pick(draw, &[0.0, 0.000_5, 0.005]),
        longest_jump: pick(draw, &[MILLI, 20 * MILLI]),
    }
}

fn program(draw: &mut Rng, names: usize, lease: u64, has_tokens: bool, forces: bool) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..pick(draw, &[2, 3, 4, 5, 6, 7, 8, 14]) {
        let target = Target {
            name: draw.usize(..names),
            lease: match draw.u8(..6) {
                0 => Some(draw.u64(100..1_000)),
                1 => Some(lease / 2),
                2 => Some(lease * 3),
                _ => None,
            },
            is_token: has_tokens && draw.u8(..3) == 0,
            side: None,
        };
        // The time between operations: mostly less than a lease, sometimes more.
        let span = match draw.u8(..8) {
            0 => draw.u64(..=lease * 2),
            1..=3 => draw.u64(..=lease / 4),
            _ => draw.u64(..=20),
        };
        ops.push(match draw.u8(..24) {
            0..=4 => Op::Lock(target),
            5..=6 => Op::Try(target),
            7..=9 => Op::TryFor(target, draw.u64(..=lease)),
            10 => Op::Interruptibly(target, draw.u64(..=lease / 2)),
            11..=16 => Op::Unlock(target),
            17 if forces => Op::Force(target),
            17..=18 => Op::Guarded(target, span, draw.bool()),
            19 => Op::Guarded(target, span, false),
            20 => Op::Ask(target),
            _ => Op::Sleep(span),
        });
    }
    ops
}
