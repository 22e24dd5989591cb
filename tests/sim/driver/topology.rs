//! How the servers of a world belong together, and where a lock of a program stands on them.

use fastrand::Rng;

use crate::plan::pick;

#[derive(Clone, Debug)]
pub(crate) enum Topology {
    /// One server, or a Redlock of all.
    Plain,
    /// Servers of their own, and locks that are made of parts on them.
    Parts(Parts),
}

/// Locks on several servers, and those that are made of them.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// So many servers, the first ones, are the nodes of a Redlock.
    pub(crate) nodes: usize,
    pub(crate) servers: usize,
    pub(crate) parts: Vec<Part>,
    /// The parts of each, by their numbers, in the order in which they are named.
    pub(crate) multis: Vec<Vec<usize>>,
}

/// A lock that may be a part of another one.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) home: Home,
    pub(crate) name: String,
    pub(crate) is_token: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// The server of this number.
    Server(usize),
    /// The majority of all nodes.
    Quorum,
}

impl Topology {
    pub(crate) fn of(draw: &mut Rng) -> Topology {
        match draw.u8(..100) {
            0..15 => Topology::Parts(Parts::of(draw)),
            _ => Topology::Plain,
        }
    }

    /// The name by which a filter calls it.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Topology::Plain => "Plain",
            Topology::Parts(_) => "Parts",
        }
    }

    /// How many clients and multi-locks a process has, which end one after the other.
    pub(crate) fn ends(&self, servers: usize, is_redlock: bool) -> usize {
        match self {
            // A Redlock has a client of its own beside those of its nodes.
            Topology::Plain => servers + usize::from(is_redlock),
            Topology::Parts(parts) => servers + usize::from(is_redlock) + parts.multis.len(),
        }
    }

    /// Whether a thread that holds one lock and waits for another one may be in the way of itself or others.
    pub(crate) fn has_overlaps(&self) -> bool {
        matches!(self, Topology::Parts(_))
    }

    /// The locks that have to stand for this one to be held, of `servers` servers.
    pub(crate) fn parts_of(&self, name: &str, servers: usize) -> Vec<Part> {
        if let Topology::Parts(parts) = self {
            let of = |name: &str| parts.parts.iter().find(|part| part.name == name).cloned();
            return name.split(" + ").filter_map(of).collect();
        }
        let home = match servers {
            1 => Home::Server(0),
            _ => Home::Quorum,
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
                0 if nodes > 0 => Home::Quorum,
                _ => Home::Server(draw.usize(nodes..servers)),
            };
            let is_token = home != Home::Quorum && draw.u8(..4) == 0;
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
        // Two of one name would be two locks.
        multis.dedup();
        Parts {
            nodes,
            servers,
            parts,
            multis,
        }
    }

    /// How many locks programs have to choose from.
    pub(crate) fn locks(&self) -> usize {
        self.parts.len() + self.multis.len()
    }
}
