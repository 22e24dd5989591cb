//! The topology of the servers of a world, and where a lock of a program is on them.

use fastrand::Rng;

use redlatch_world::scheduler::{MILLI, Nanos};

use crate::plan::pick;
use crate::sentinels::SENTINELS;

#[derive(Clone, Debug)]
pub(crate) enum Topology {
    /// One server, or a Redlock of all.
    Plain,
    /// Servers of their own, and locks that are made of parts on them.
    Parts(Parts),
    /// Masters with replicas.
    Replicated(Replicated),
}

/// Locks on several servers, and locks with several members.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// The first servers, this many, are the nodes of a Redlock.
    pub(crate) nodes: usize,
    pub(crate) servers: usize,
    pub(crate) parts: Vec<Part>,
    /// The members of each by number, in the order of their names.
    pub(crate) multis: Vec<Vec<usize>>,
}

/// A lock that may be a member of a MultiLock.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) home: Location,
    pub(crate) name: String,
    pub(crate) is_token: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// The server of this number.
    Server(usize),
    /// The majority of all nodes.
    Quorum,
    /// The present master; in a cluster the master of its slot.
    Master,
}

impl Topology {
    pub(crate) fn of(draw: &mut Rng) -> Topology {
        match draw.u8(..100) {
            0..15 => Topology::Parts(Parts::of(draw)),
            15..40 => Topology::Replicated(Replicated::of(draw)),
            _ => Topology::Plain,
        }
    }

    /// Its name in a filter.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Topology::Plain => "Plain",
            Topology::Parts(_) => "Parts",
            Topology::Replicated(replicated) => match replicated.kind {
                Kind::Fixed => "Replicas",
                Kind::Sentinels => "Sentinel",
                Kind::Cluster => "Cluster",
            },
        }
    }

    /// The number of clients and MultiLocks of a process, which end in order.
    pub(crate) fn ends(&self, servers: usize, is_redlock: bool) -> usize {
        match self {
            // A Redlock has its own client beside those of its nodes.
            Topology::Plain => servers + usize::from(is_redlock),
            Topology::Parts(parts) => servers + usize::from(is_redlock) + parts.multis.len(),
            Topology::Replicated(_) => 1,
        }
    }

    /// Whether a thread that holds one lock and waits for another one may block itself or others.
    pub(crate) fn has_overlaps(&self) -> bool {
        matches!(self, Topology::Parts(_))
    }

    /// The locks that have to exist for this one to be held, of `servers` servers.
    pub(crate) fn parts_of(&self, name: &str, servers: usize) -> Vec<Part> {
        if let Topology::Parts(parts) = self {
            let of = |name: &str| parts.parts.iter().find(|part| part.name == name).cloned();
            return name.split(" + ").filter_map(of).collect();
        }
        let home = match servers {
            _ if matches!(self, Topology::Replicated(_)) => Location::Master,
            1 => Location::Server(0),
            _ => Location::Quorum,
        };
        vec![Part {
            home,
            name: name.to_owned(),
            is_token: name.starts_with("token"),
        }]
    }
}

impl Parts {
    fn of(draw: &mut Rng) -> Parts {
        let nodes = if draw.u8(..4) == 0 { 3 } else { 0 };
        let servers = nodes + draw.usize(1..=3);
        let parts = (0..draw.usize(2..=3)).map(|number| {
            let home = match number {
                0 if nodes > 0 => Location::Quorum,
                _ => Location::Server(draw.usize(nodes..servers)),
            };
            let is_token = home != Location::Quorum && draw.u8(..4) == 0;
            let kind = if is_token { "token" } else { "lock" };
            Part {
                home,
                name: format!("{kind}{number}"),
                is_token,
            }
        });
        let parts: Vec<Part> = parts.collect();
        let multis = (0..draw.usize(1..=2)).map(|_| {
            let mut all: Vec<usize> = (0..parts.len()).collect();
            draw.shuffle(&mut all);
            all.truncate(pick(draw, &[2, 2, 3]));
            all
        });
        let mut multis: Vec<Vec<usize>> = multis.collect();
        // Two locks with one name would be the same lock.
        multis.dedup();
        Parts {
            nodes,
            servers,
            parts,
            multis,
        }
    }

    /// The number of locks that programs choose from.
    pub(crate) fn locks(&self) -> usize {
        self.parts.len() + self.multis.len()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The addresses of a master and its replicas.
    Fixed,
    /// Three sentinels name the master.
    Sentinels,
    Cluster,
}

/// Masters with replicas, and their faults.
#[derive(Clone, Debug)]
pub(crate) struct Replicated {
    pub(crate) kind: Kind,
    pub(crate) shards: usize,
    /// Of each master.
    pub(crate) replicas: usize,
    /// The number of replicas that have to acknowledge a hold, and the timeout in ms.
    pub(crate) wait: Option<(u32, u64)>,
    pub(crate) has_sharded_messages: bool,
    /// The longest delay of replication; of the news of a master or a slot; the duration of a slot migration.
    pub(crate) lag: Nanos,
    pub(crate) longest_news: Nanos,
    /// The sentinel that is not notified of a new master.
    pub(crate) late: Option<usize>,
    pub(crate) longest_move: Nanos,
    pub(crate) takeovers: Vec<(Nanos, usize, Takeover)>,
    pub(crate) troubles: Vec<(Nanos, usize, SentinelFault, Nanos)>,
    /// Locks whose slots move.
    pub(crate) moves: Vec<(Nanos, String)>,
}

/// A failover.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takeover {
    /// The new master has all data, and nothing is lost.
    pub(crate) is_planned: bool,
    /// The old master dies; otherwise it continues.
    pub(crate) dies: bool,
    /// After which time the promotion comes, and after which further time the old master is a replica.
    pub(crate) takes: Nanos,
    pub(crate) returns: Nanos,
}

/// The fault of a sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentinelFault {
    Lies,
    Dies,
}

impl Replicated {
    fn of(draw: &mut Rng) -> Replicated {
        let kind = pick(draw, &[Kind::Fixed, Kind::Sentinels, Kind::Cluster]);
        let replicas = draw.usize(1..=2);
        let waits = draw.bool();
        let wait = (draw.usize(1..=replicas) as u32, draw.u64(20..=100));
        Replicated {
            shards: if kind == Kind::Cluster { 3 } else { 1 },
            replicas,
            wait: waits.then_some(wait),
            has_sharded_messages: draw.bool(),
            lag: pick(draw, &[1, 5, 200]) * MILLI,
            longest_news: pick(draw, &[1, 20, 1_000]) * MILLI,
            longest_move: pick(draw, &[5, 100, 1_000]) * MILLI,
            ..Replicated::plain(kind)
        }
    }

    /// One master with one replica, without faults.
    fn plain(kind: Kind) -> Replicated {
        Replicated {
            kind,
            shards: 1,
            replicas: 1,
            wait: None,
            has_sharded_messages: false,
            lag: MILLI,
            longest_news: 20 * MILLI,
            late: None,
            longest_move: MILLI,
            takeovers: Vec::new(),
            troubles: Vec::new(),
            moves: Vec::new(),
        }
    }

    /// A demoted master that continues, and sentinels of which one is not notified and the others die.
    pub(crate) fn behind(draw: &mut Rng) -> Replicated {
        let takeover = Takeover {
            is_planned: false,
            dies: false,
            takes: draw.u64(1..50) * MILLI,
            returns: 12_000 * MILLI,
        };
        let late = draw.usize(..SENTINELS);
        let others = (0..SENTINELS).filter(|sentinel| *sentinel != late);
        let dies = |sentinel| {
            let at = draw.u64(4_000..4_500) * MILLI;
            (at, sentinel, SentinelFault::Dies, 5_000 * MILLI)
        };
        let troubles = others.map(dies).collect();
        Replicated {
            late: Some(late),
            takeovers: vec![(draw.u64(300..900) * MILLI, 0, takeover)],
            troubles,
            ..Replicated::plain(Kind::Sentinels)
        }
    }

    /// Draws the faults until `end`.
    pub(crate) fn befall(&mut self, names: usize, end: Nanos, draw: &mut Rng) {
        // Most programs end early.
        let ends = [end, end, end.min(2_000 * MILLI), end.min(200 * MILLI)];
        let at = |draw: &mut Rng| {
            let end = pick(draw, &ends);
            draw.u64(..end)
        };
        for _ in 0..pick(draw, &[0, 1, 1, 2, 4]) {
            let is_planned = draw.u8(..3) == 0;
            let longest = pick(draw, &[MILLI, 50 * MILLI, 2_000 * MILLI]);
            let takeover = Takeover {
                is_planned,
                dies: !is_planned && draw.bool(),
                takes: draw.u64(1..=longest),
                returns: draw.u64(MILLI..=5_000 * MILLI),
            };
            let shard = draw.usize(..self.shards);
            self.takeovers.push((at(draw), shard, takeover));
        }
        if self.kind == Kind::Sentinels {
            for _ in 0..draw.usize(..=3) {
                let trouble = pick(draw, &[SentinelFault::Lies, SentinelFault::Dies]);
                let span = draw.u64(MILLI..=5_000 * MILLI);
                let sentinel = draw.usize(..SENTINELS);
                self.troubles.push((at(draw), sentinel, trouble, span));
            }
        }
        if self.kind == Kind::Cluster {
            for _ in 0..draw.usize(..=4) {
                let lock = format!("lock{}", draw.usize(..names));
                self.moves.push((at(draw), lock));
            }
        }
    }

    /// Whether it has no faults.
    pub(crate) fn is_calm(&self) -> bool {
        self.takeovers.is_empty() && self.troubles.is_empty() && self.moves.is_empty()
    }

    /// Whether a valid hold is on all servers that may ever be master.
    pub(crate) fn is_safe(&self) -> bool {
        self.wait
            .is_some_and(|(count, _)| count as usize == self.replicas)
            && self.moves.is_empty()
    }

    pub(crate) fn servers(&self) -> usize {
        let sentinels = if self.kind == Kind::Sentinels {
            SENTINELS
        } else {
            0
        };
        self.shards * (1 + self.replicas) + sentinels
    }

    /// Whether this server is a sentinel.
    pub(crate) fn is_sentinel(&self, number: usize) -> bool {
        number >= self.shards * (1 + self.replicas)
    }
}
