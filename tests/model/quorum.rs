//! The quorum as a state machine: clients, nodes, and the requests between them.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use stateright::{Model, Property};

use crate::served::{Request, served};

/// The nodes.
pub(crate) const NODES: usize = 3;
/// The clients, which all request the same lock.
pub(crate) const CLIENTS: usize = 2;
/// The most faults in a run.
const MAX_FAULTS: usize = 2;
/// The lease in ticks, for which a node keeps a key.
pub(crate) const LEASE: u8 = 3;

/// The rules of the clients; the default is the library's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// How many nodes have to grant.
    pub(crate) quorum: usize,
    /// The instant a hold's validity counts from.
    pub(crate) counted_from: Origin,
    /// The safety margin of the validity for unequal clocks, in ticks.
    pub(crate) drift: u8,
    /// For how long after its restart a node has no vote, in ticks.
    pub(crate) away: u8,
    /// How a node that lost the key of a hold is restored.
    pub(crate) restore: Restore,
    /// Whether each hold has its own id, so that no request of an earlier hold can touch it.
    pub(crate) fresh_ids: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            quorum: NODES / 2 + 1,
            counted_from: Origin::FirstSend,
            drift: 0,
            away: LEASE,
            restore: Restore::SecondStep,
            fresh_ids: true,
        }
    }
}

/// The start of the validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Before the first request leaves.
    FirstSend,
    /// When the quorum is decided.
    Decision,
}

/// How a node gets a lost key back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restore {
    /// After an extension that a majority granted, unless the node is absent, and without a vote.
    SecondStep,
    /// With the extension itself, as a vote for it, also on an absent node.
    Vote,
}

/// The faults of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeFault {
    /// It crashes and restarts without its keys, or is replaced by a server that lacks them.
    Emptied,
    /// It loses its keys without notice: they are flushed, evicted or deleted.
    Flushed,
    /// It crashes and restarts with its keys.
    Restarted,
    /// Its clock jumps by as many ticks.
    Jump(i8),
    /// Requests of a hold arrive after the hold has ended, its release among them.
    Late,
}

/// The model. Messages are lost and delayed in all of it.
#[derive(Debug, Default)]
pub(crate) struct Quorum {
    pub(crate) rules: Rules,
    /// The faults, each at most once and at any time. At most `MAX_FAULTS`.
    pub(crate) faults: &'static [NodeFault],
    /// Whether exclusion was breached. Only the first time counts, because its trace is the shortest.
    pub(crate) breached: AtomicBool,
}

/// A key at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) owner: usize,
    /// Whether it belongs to an ended hold.
    pub(crate) old: bool,
    /// In how many ticks it expires.
    pub(crate) left: u8,
}

/// How far a client's current request to a node is, an acquire or an extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Vote {
    /// None was sent, it was refused, or its client no longer waits for it.
    #[default]
    None,
    /// It is in flight, forever if it is lost.
    Asked,
    /// The node granted it.
    Yes,
    /// The node granted it while it was absent, which counts once it is back.
    WhileAway,
    /// The node has no key to extend.
    Missing,
}

/// A request in flight whose reply is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Uncounted {
    /// None.
    #[default]
    None,
    /// An extension that was decided without its reply.
    Extend,
    /// An acquisition, or the restoration of a key, that was decided without its reply.
    Acquire,
}

/// The messages between a client and a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    vote: Vote,
    uncounted: Uncounted,
    /// An acquisition of an ended hold is in flight.
    old_acquire: bool,
    /// A release of an ended hold is in flight.
    old_release: bool,
}

/// A node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    key: Option<Key>,
    /// For how many ticks it has no vote.
    away: u8,
    links: [Link; CLIENTS],
}

/// The state of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Client {
    /// It neither holds nor requests the lock.
    #[default]
    Idle,
    /// It has requested the lock for `age` ticks.
    Asking {
        /// Ticks since the first send.
        age: u8,
    },
    /// It holds the lock, which is valid for `left` more ticks.
    Holding {
        /// The remaining validity, never 0.
        left: u8,
        /// Ticks since the first send of the present extension.
        extending: Option<u8>,
    },
}

/// Everything at one instant. Times are relative to it, so runs of any length have finitely many states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    clients: [Client; CLIENTS],
    nodes: [Node; NODES],
    /// Which of the faults have happened.
    happened: [bool; MAX_FAULTS],
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A tick of all clocks.
    Tick,
    /// The client sends an acquire to all nodes.
    Ask(usize),
    /// The client counts enough votes and holds the lock.
    Grant(usize),
    /// The client sends an extension to all nodes; a pending one is abandoned.
    Extend(usize),
    /// The client counts enough votes for its extension.
    Extended(usize),
    /// The client fails to acquire, or stops, and releases on all nodes.
    Release(usize),
    /// The request of the client (first) arrives at the node (second), and the reply at the client.
    Deliver(usize, usize),
    /// A request arrives whose reply is not counted.
    DeliverUncounted(usize, usize),
    /// An acquire of an ended hold arrives.
    DeliverOldAcquire(usize, usize),
    /// A release of an ended hold arrives.
    DeliverOldRelease(usize, usize),
    /// The fault with this index happens to the node.
    Happen(usize, usize),
    /// The fault that the client releases while requests of its hold are still in flight to the node.
    ReleaseLate(usize, usize, usize),
}

impl Model for Quorum {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for (client, phase) in state.clients.iter().enumerate() {
            let decided = state.votes(client) >= self.rules.quorum;
            match phase {
                Client::Idle => actions.push(Action::Ask(client)),
                Client::Asking { .. } => {
                    actions.push(Action::Release(client));
                    if decided {
                        actions.push(Action::Grant(client));
                    }
                }
                Client::Holding { extending, .. } => {
                    actions.push(Action::Release(client));
                    actions.push(Action::Extend(client));
                    if extending.is_some() && decided {
                        actions.push(Action::Extended(client));
                    }
                }
            }
            for (node, Node { links, .. }) in state.nodes.iter().enumerate() {
                if links[client].vote == Vote::Asked {
                    actions.push(Action::Deliver(client, node));
                }
                if links[client].uncounted != Uncounted::None {
                    actions.push(Action::DeliverUncounted(client, node));
                }
                if links[client].old_acquire {
                    actions.push(Action::DeliverOldAcquire(client, node));
                }
                if links[client].old_release {
                    actions.push(Action::DeliverOldRelease(client, node));
                }
            }
        }
        for (index, fault) in self.faults.iter().enumerate() {
            if state.happened[index] {
                continue;
            }
            for node in 0..NODES {
                if *fault != NodeFault::Late {
                    actions.push(Action::Happen(index, node));
                    continue;
                }
                for (client, phase) in state.clients.iter().enumerate() {
                    if *phase != Client::Idle {
                        actions.push(Action::ReleaseLate(index, client, node));
                    }
                }
            }
        }
    }

    /// None where a request arrives and changes nothing, which is equivalent to its loss.
    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = *last;
        match action {
            Action::Tick => self.tick(&mut next),
            Action::Ask(client) => {
                next.clients[client] = Client::Asking { age: 0 };
                next.ask(client);
            }
            Action::Grant(client) => {
                let Client::Asking { age } = last.clients[client] else {
                    return None;
                };
                next.clients[client] = self.holding(age);
                next.stop_counting(client, Uncounted::Acquire);
            }
            Action::Extend(client) => {
                let Client::Holding { left, .. } = last.clients[client] else {
                    return None;
                };
                next.stop_counting(client, Uncounted::Extend);
                next.clients[client] = Client::Holding {
                    left,
                    extending: Some(0),
                };
                next.ask(client);
            }
            Action::Extended(client) => {
                let Client::Holding {
                    extending: Some(age),
                    ..
                } = last.clients[client]
                else {
                    return None;
                };
                next.clients[client] = self.holding(age);
                for node in &mut next.nodes {
                    if node.links[client].vote == Vote::Missing && node.away == 0 {
                        node.links[client].uncounted = Uncounted::Acquire;
                    }
                }
                next.stop_counting(client, Uncounted::Extend);
            }
            Action::Release(client) => next.end(client, None),
            Action::ReleaseLate(index, client, node) => {
                next.happened[index] = true;
                next.end(client, Some(node));
            }
            Action::Deliver(client, node) => self.deliver(&mut next, client, node)?,
            Action::DeliverUncounted(client, node) => {
                let at = &mut next.nodes[node];
                let request = match std::mem::take(&mut at.links[client].uncounted) {
                    Uncounted::Acquire => Request::Acquire,
                    Uncounted::Extend | Uncounted::None => Request::Extend,
                };
                at.serve(request, client, false).then_some(())?;
            }
            Action::DeliverOldAcquire(client, node) => {
                let at = &mut next.nodes[node];
                at.links[client].old_acquire = false;
                at.serve(Request::Acquire, client, true).then_some(())?;
            }
            Action::DeliverOldRelease(client, node) => {
                let at = &mut next.nodes[node];
                at.links[client].old_release = false;
                let is_done = at.serve(Request::Release, client, true);
                let has_same_id = !self.rules.fresh_ids && at.has(client);
                (is_done || has_same_id).then_some(())?;
                at.key = None;
            }
            Action::Happen(index, node) => {
                next.happened[index] = true;
                next.nodes[node] = self.after(self.faults[index], next.nodes[node]);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Quorum>> {
        vec![Property::always(
            "exclusion",
            |model: &Quorum, state: &State| {
                state.holders() <= 1 || model.breached.swap(true, Ordering::Relaxed)
            },
        )]
    }
}

impl Quorum {
    /// The longest validity there is.
    fn validity(&self) -> u8 {
        LEASE - self.rules.drift
    }

    /// A hold whose quorum was decided `age` ticks after the first send.
    fn holding(&self, age: u8) -> Client {
        let elapsed = match self.rules.counted_from {
            Origin::FirstSend => age,
            Origin::Decision => 0,
        };
        Client::Holding {
            left: self.validity() - elapsed,
            extending: None,
        }
    }

    /// Lets a tick pass at all nodes and clients.
    fn tick(&self, state: &mut State) {
        for node in &mut state.nodes {
            node.key = node
                .key
                .map(|key| Key {
                    left: key.left - 1,
                    ..key
                })
                .filter(|key| key.left > 0);
            let was_away = node.away > 0;
            node.away = node.away.saturating_sub(1);
            if was_away && node.away == 0 {
                for link in &mut node.links {
                    if link.vote == Vote::WhileAway {
                        link.vote = Vote::Yes;
                    }
                }
            }
        }
        for client in 0..CLIENTS {
            match &mut state.clients[client] {
                Client::Idle => {}
                Client::Asking { age } => {
                    *age += 1;
                    if *age >= self.validity() {
                        state.end(client, None);
                    }
                }
                Client::Holding { left, extending } => {
                    *left -= 1;
                    *extending = extending.map(|age| age + 1);
                    if *left == 0 {
                        state.end(client, None);
                    } else if extending.is_some_and(|age| age >= self.validity()) {
                        *extending = None;
                        state.stop_counting(client, Uncounted::Extend);
                    }
                }
            }
        }
    }

    /// The node after the fault.
    fn after(&self, fault: NodeFault, mut node: Node) -> Node {
        match fault {
            NodeFault::Jump(ticks) => {
                let later = |key: Key| Key {
                    left: key.left.saturating_add_signed(-ticks),
                    ..key
                };
                node.key = node.key.map(later).filter(|key| key.left > 0);
                return node;
            }
            NodeFault::Emptied => {
                node.key = None;
                node.away = self.rules.away;
            }
            NodeFault::Flushed => {
                node.key = None;
                return node;
            }
            NodeFault::Restarted | NodeFault::Late => {}
        }
        // The connections are closed, but earlier replies arrive.
        for link in &mut node.links {
            let vote = match link.vote {
                Vote::Asked => Vote::None,
                answered => answered,
            };
            *link = Link {
                vote,
                ..Link::default()
            };
        }
        node
    }

    /// The request arrives at the node, and the reply at the client; none for a refusal, which is equivalent to the
    /// loss of the request.
    fn deliver(&self, state: &mut State, client: usize, node: usize) -> Option<()> {
        let asking = matches!(state.clients[client], Client::Asking { .. });
        let at = &mut state.nodes[node];
        let counted = if at.away == 0 {
            Vote::Yes
        } else {
            Vote::WhileAway
        };
        let request = if asking {
            Request::Acquire
        } else {
            Request::Extend
        };
        let (before, is_done) = (at.key, at.serve(request, client, false));
        let vote = match before {
            _ if is_done => counted,
            // The other rules are not the library's, except for the loss of a key.
            None if self.rules.restore == Restore::Vote => {
                at.set(client);
                Vote::Yes
            }
            None => Vote::Missing,
            Some(key) if asking && key.owner == client && !self.rules.fresh_ids => {
                at.set(client);
                counted
            }
            Some(_) => return None,
        };
        at.links[client].vote = vote;
        Some(())
    }
}

impl State {
    /// How many clients consider the lock held.
    fn holders(&self) -> usize {
        self.clients
            .iter()
            .filter(|client| matches!(client, Client::Holding { .. }))
            .count()
    }

    /// How many nodes granted the client's present request.
    fn votes(&self, client: usize) -> usize {
        self.nodes
            .iter()
            .filter(|node| node.links[client].vote == Vote::Yes)
            .count()
    }

    /// Sends the client's request to all nodes.
    fn ask(&mut self, client: usize) {
        for node in &mut self.nodes {
            node.links[client].vote = Vote::Asked;
        }
    }

    /// Reduces the requests that no client waits for to the effect that they still have on arrival.
    fn stop_counting(&mut self, client: usize, still: Uncounted) {
        for node in &mut self.nodes {
            let link = &mut node.links[client];
            if link.vote == Vote::Asked && link.uncounted == Uncounted::None {
                link.uncounted = still;
            }
            link.vote = Vote::None;
        }
    }

    /// The client neither holds the lock nor requests it, and releases on all nodes. Late releases can only refuse,
    /// like the loss of a request, so they take effect at once, except on the late node.
    fn end(&mut self, client: usize, late: Option<usize>) {
        let asking = matches!(self.clients[client], Client::Asking { .. });
        self.clients[client] = Client::Idle;
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let link = std::mem::take(&mut node.links[client]);
            if late == Some(index) {
                node.links[client].old_acquire =
                    asking && link.vote == Vote::Asked || link.uncounted == Uncounted::Acquire;
                node.links[client].old_release = true;
                node.key = node.key.map(|key| Key {
                    old: key.old || key.owner == client,
                    ..key
                });
            } else {
                node.links[client].old_acquire = link.old_acquire;
                node.links[client].old_release = link.old_release;
                node.serve(Request::Release, client, false);
            }
        }
    }

    /// The state as numbers: the nodes sorted, with the clients in the order of `clients`.
    fn code(&self, clients: [usize; CLIENTS]) -> (u64, [u64; NODES]) {
        let mut nodes = self.nodes.map(|node| node.code(clients));
        nodes.sort_unstable();
        let head = clients.iter().fold(0, |code, client| {
            code << 8
                | match self.clients[*client] {
                    Client::Idle => 0,
                    Client::Asking { age } => 1 << 6 | u64::from(age),
                    Client::Holding { left, extending } => {
                        2 << 6
                            | u64::from(left) << 3
                            | extending.map_or(0, |age| u64::from(age) + 1)
                    }
                }
        });
        let flags = self.happened.into_iter();
        let head = flags.fold(head, |code, flag| code << 1 | u64::from(flag));
        (head, nodes)
    }
}

impl Hash for State {
    /// Nodes are interchangeable, and so are clients: states that differ only by a permutation count as one.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.code([0, 1]).min(self.code([1, 0])).hash(hasher);
    }
}

impl Node {
    /// Whether it has the key of the client's current hold.
    fn has(&self, client: usize) -> bool {
        self.key.is_some_and(|key| key.owner == client && !key.old)
    }

    /// Keeps the key of the client's current hold for a whole lease from now.
    fn set(&mut self, owner: usize) {
        self.key = Some(Key {
            owner,
            old: false,
            left: LEASE,
        });
    }

    /// Executes a request of a hold of the client, the current or an old one. Returns whether the node reports
    /// success.
    fn serve(&mut self, request: Request, client: usize, is_old: bool) -> bool {
        let (key, is_done) = served(self.key, request, client, is_old);
        self.key = key;
        is_done
    }

    /// The node in one number, with the clients in the order of `clients`.
    fn code(&self, clients: [usize; CLIENTS]) -> u64 {
        let key = self.key.map_or(0, |key| {
            let owner = u64::from(key.owner == clients[0]);
            1 << 5 | owner << 4 | u64::from(key.old) << 3 | u64::from(key.left)
        });
        clients
            .iter()
            .fold(key << 3 | u64::from(self.away), |code, client| {
                let Link {
                    vote,
                    uncounted,
                    old_acquire,
                    old_release,
                } = self.links[*client];
                code << 7
                    | (vote as u64) << 4
                    | (uncounted as u64) << 2
                    | u64::from(old_acquire) << 1
                    | u64::from(old_release)
            })
    }
}
