//! Redlock: a lock on several independent servers, of which a majority decides.
//!
//! The algorithm is that of the [Redis documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
//! All nodes are asked before the first answer is read. What counts is counted from before the first request was sent,
//! so a hold that this store grants has the validity that the engine gives it. A node that may have forgotten what it
//! granted has no vote (`quarantine.rs`).

mod links;
pub(crate) mod quarantine;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use smallvec::{SmallVec, smallvec};

use crate::ground::claim::{Claim, Kind, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, NodeAnswer, Nodes, Result};
use crate::ground::loss::LossCause;
use crate::ground::notify::{Notifier, Parker};
use crate::ground::sync::Mutex;
use crate::store::{
    Aloft, Attempt, Delivery, Flight, HealthWarning, Holding, InDoubt, Purpose, Refusal, Release,
    Renewal, SETTLED, Store, Subscription, Transfer,
};
use crate::stores::quorum::links::{Line, Links, Outcome, Want};
use crate::stores::quorum::quarantine::{Membership, NodeHandle, Quarantined};

/// A bit for each in a word.
pub(crate) const MOST_NODES: usize = 64;

/// A node that does not answer is left alone for this long, then for twice as long, at most for the latter.
const FIRST_SHUN: Duration = Duration::from_millis(250);
const LONGEST_SHUN: Duration = Duration::from_secs(1);

/// The default time-out of a node: this share of the lease, within these bounds.
const NODE_SHARE: u32 = 200;
const NODE_TIMEOUTS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(150)];

/// One round trip before it was measured.
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(2);

/// The settings of a quorum.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `None` for a share of the lease.
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) max_lease: Duration,
    pub(crate) max_extensions: Option<u32>,
    pub(crate) trusts_new_nodes: bool,
    /// How long it may take to connect to a node.
    pub(crate) connect_timeout: Duration,
}

/// One of the servers.
struct Node {
    index: usize,
    store: Arc<dyn Store>,
    handle: NodeHandle,
    links: Arc<Links>,
    /// Whether its connection for renewals was made, or tried to be made, before it was needed.
    got_ready: AtomicBool,
    shunned: Mutex<Breaker>,
    /// Whatever keeps the store open.
    _keep: Arc<dyn Any + Send + Sync>,
}

/// Whether a node is left alone because it did not answer.
#[derive(Default)]
struct Breaker {
    deadline: Option<Instant>,
    pause: Duration,
    reason: String,
}

/// What is known of one hold of this process.
#[derive(Clone, Debug, Default)]
struct Placement {
    /// The nodes that may have it, a bit each.
    nodes: u64,
    extensions: u32,
    /// The nodes where a request for it may still arrive.
    open: SmallVec<[Open; 2]>,
}

/// A request for a hold without an answer.
#[derive(Clone, Copy, Debug)]
struct Open {
    node: usize,
    /// The node refuses it after this time of its own clock, in ms.
    not_after: i64,
    /// Its connection was left behind, so that what follows on it comes after the request. Else that may come first.
    is_behind: bool,
}

/// The store that is made of others.
pub(crate) struct Quorum {
    nodes: Vec<Arc<Node>>,
    links: Arc<Links>,
    needed: usize,
    settings: Settings,
    notifier: Arc<Notifier>,
    spreads: Mutex<HashMap<VisitorId, Placement>>,
    /// What could not be freed and nobody else is told of.
    leftovers: Mutex<Vec<InDoubt>>,
    /// How long it takes to get an answer, in ns, smoothed.
    round_trip: AtomicU64,
}

/// What one node said to a request for the lock.
enum Vote {
    Granted,
    Refused(Refusal),
    Lacks(LossCause),
    /// It may have done it, until its own time in ms.
    Unknown(i64, Error),
    Failed(Error),
    /// It was asked, and has not answered.
    Silent,
}

/// Which nodes are asked.
#[derive(Default)]
struct Order {
    /// At once.
    first: Vec<usize>,
    /// Those that are left alone for a while, for the case that the others do not do.
    aside: Vec<usize>,
}

impl Order {
    /// These, and no others.
    fn of(first: Vec<usize>) -> Order {
        Order {
            first,
            ..Order::default()
        }
    }
}

impl Quorum {
    /// Fails if two of the stores are one server.
    pub(crate) fn new(
        stores: Vec<(Arc<dyn Store>, Arc<dyn Any + Send + Sync>)>,
        settings: Settings,
        deadline: Instant,
    ) -> Result<Quorum> {
        let membership =
            Membership::new(stores.len(), settings.max_lease, settings.trusts_new_nodes);
        let membership = Arc::new(membership);
        let links = Arc::new(Links::new(stores.len(), settings.connect_timeout));
        let nodes: Vec<Arc<Node>> = stores
            .into_iter()
            .enumerate()
            .map(|(index, (store, keep))| {
                Arc::new(Node {
                    index,
                    links: Arc::clone(&links),
                    got_ready: AtomicBool::new(false),
                    handle: NodeHandle::new(&membership, index, store.can_fail_over()),
                    store,
                    shunned: Mutex::default(),
                    _keep: keep,
                })
            })
            .collect();
        let quorum = Quorum {
            needed: nodes.len() / 2 + 1,
            nodes,
            links,
            settings,
            notifier: Arc::default(),
            spreads: Mutex::default(),
            leftovers: Mutex::default(),
            round_trip: AtomicU64::new(0),
        };
        let all: Vec<usize> = (0..quorum.nodes.len()).collect();
        for (node, enlisted) in quorum.nodes.iter().zip(quorum.enlist(&all, deadline)) {
            match enlisted {
                Ok(Err(Quarantined::SameAs(other))) => {
                    let other = quorum
                        .nodes
                        .get(other)
                        .map(|node| node.name())
                        .unwrap_or_default();
                    return Err(Error::InvalidConfig {
                        setting: "the nodes of a quorum",
                        reason: format!(
                            "{other} and {} are the same server, so they would have one opinion and two votes",
                            node.name()
                        ),
                    });
                }
                Ok(Err(abstention @ Quarantined::InCluster)) => {
                    return Err(Error::InvalidConfig {
                        setting: "the nodes of a quorum",
                        reason: format!("{}: {abstention}", node.name()),
                    });
                }
                // What cannot be asked now is asked when it can.
                Err(error) if error.may_pass() => node.trip(&error),
                Err(error @ Error::InvalidConfig { .. }) => return Err(error),
                _ => {}
            }
        }
        Ok(quorum)
    }

    /// Connects to the nodes `cold`, all at the same time, and asks them who they are.
    fn enlist(&self, cold: &[usize], deadline: Instant) -> Vec<Result<Result<(), Quarantined>>> {
        let nodes = cold.iter().filter_map(|index| self.nodes.get(*index));
        let enlist = |node: &Arc<Node>| {
            let purpose = Purpose::Request(None);
            node.store.enlist(&node.handle, purpose, deadline)
        };
        if cold.len() < 2 {
            return nodes.map(enlist).collect();
        }
        // Names are looked up and connections made by calls that block; a dead node must not take the others' time.
        thread::scope(|scope| {
            let started: Vec<_> = nodes
                .map(|node| {
                    let named = thread::Builder::new().name("redlatch-connect".to_owned());
                    (node, named.spawn_scoped(scope, move || enlist(node)))
                })
                .collect();
            started
                .into_iter()
                .map(|(node, thread)| match thread.map(|thread| thread.join()) {
                    Ok(Ok(enlisted)) => enlisted,
                    // There is no room for a thread; it does not panic.
                    _ => enlist(node),
                })
                .collect()
        })
    }

    fn round_trip(&self) -> Duration {
        match self.round_trip.load(Ordering::Relaxed) {
            0 => FIRST_ROUND_TRIP,
            nanos => Duration::from_nanos(nanos),
        }
    }

    fn note_round_trip(&self, took: Duration) {
        let before = self.round_trip();
        let smoothed = (before * 7 + took) / 8;
        let nanos = u64::try_from(smoothed.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.store(nanos.max(1), Ordering::Relaxed);
    }

    /// How long a node may take for a request.
    fn node_timeout(&self, lease: Duration) -> Duration {
        self.settings.node_timeout.unwrap_or_else(|| {
            let [least, most] = NODE_TIMEOUTS;
            (lease / NODE_SHARE).clamp(least, most)
        })
    }

    /// The nodes of `among` that are not left alone, unless there are too few others, or too few of those that have one
    /// of the holds that it is about.
    fn in_order(&self, among: u64, holds: &[u64], purpose: Purpose<'_>) -> Order {
        let all = (0..self.nodes.len()).filter(|index| among & bit(*index) != 0);
        let is_shunned = |index: &usize| {
            let node = self.nodes.get(*index);
            node.is_some_and(|node| node.is_shunned(purpose))
        };
        let (shunned, mut order): (Vec<usize>, Vec<usize>) = all.partition(is_shunned);
        let asked = bits(&order);
        let is_short = |hold: &&u64| ((*hold & asked).count_ones() as usize) < self.needed;
        let short = holds.iter().filter(is_short);
        let short = short.fold(0, |nodes, hold| nodes | hold);
        let is_needed = |index: &usize| order.len() < self.needed || short & bit(*index) != 0;
        let (needed, aside): (Vec<usize>, Vec<usize>) = shunned.into_iter().partition(is_needed);
        order.extend(needed);
        Order {
            first: order,
            aside,
        }
    }

    fn all(&self) -> u64 {
        (0..self.nodes.len()).fold(0, |nodes, index| nodes | bit(index))
    }

    /// The nodes that may have the hold of this visitor.
    fn spread(&self, visitor: &VisitorId) -> u64 {
        let spreads = self.spreads.lock();
        spreads
            .get(visitor)
            .map_or(self.all(), |spread| spread.nodes)
    }

    /// Takes out what is known of the hold of this visitor, and notes in `in_doubt` what of it may still arrive.
    fn forget(&self, in_doubt: &mut InDoubt) {
        let spread = self.spreads.lock().remove(&in_doubt.visitor);
        let not_after = (0..self.nodes.len()).map(|index| in_doubt.not_after(index));
        in_doubt.not_after = not_after.collect();
        for open in spread.iter().flat_map(|spread| &spread.open) {
            if let Some(place) = in_doubt.not_after.get_mut(open.node) {
                *place = (*place).max(open.not_after);
            }
        }
    }

    /// Keeps what may still arrive of a hold, for whoever frees it.
    fn note_open(&self, visitor: &VisitorId, in_doubt: &InDoubt) {
        if let Some(spread) = self.spreads.lock().get_mut(visitor) {
            let open = in_doubt.not_after.iter().enumerate();
            let open = open.filter(|(_, not_after)| **not_after > 0);
            for (node, not_after) in open {
                spread.note(node, *not_after, false);
            }
        }
    }

    /// Says why no majority did what it was asked.
    fn no_quorum(&self, lock: &Arc<str>, said: &[Option<Vote>]) -> Error {
        let hopeless = |said: &Vote| match said {
            Vote::Failed(error) if !error.may_pass() => Some(error.clone()),
            _ => None,
        };
        let mut hopeless: Vec<Error> = said.iter().flatten().filter_map(hopeless).collect();
        if self.nodes.len() - hopeless.len() < self.needed
            && let Some(error) = hopeless.pop()
        {
            // Asking again cannot mend it.
            return error;
        }
        let is = |what: fn(&Vote) -> bool| said.iter().flatten().filter(|said| what(said)).count();
        let granted = is(|said| matches!(said, Vote::Granted));
        let refused = is(|said| matches!(said, Vote::Refused(_) | Vote::Lacks(_)));
        Error::NoQuorum {
            lock: Arc::clone(lock),
            granted,
            refused,
            unreachable: self.nodes.len() - granted - refused,
            needed: self.needed,
            nodes: self.answers(said),
        }
    }

    fn answers(&self, said: &[Option<Vote>]) -> Vec<NodeAnswer> {
        let answers = self.nodes.iter().zip(said);
        answers
            .map(|(node, said)| NodeAnswer {
                node: node.name(),
                answer: match said {
                    Some(Vote::Granted) => "granted".to_owned(),
                    Some(Vote::Refused(_)) => "refused".to_owned(),
                    Some(Vote::Lacks(_)) => "has no such hold".to_owned(),
                    Some(Vote::Unknown(_, error) | Vote::Failed(error)) => reason_of(error),
                    Some(Vote::Silent) => "no reply in time".to_owned(),
                    None => match &*node.shunned.lock().reason {
                        "" => "not asked".to_owned(),
                        reason => format!("not asked, because of a moment ago: {reason}"),
                    },
                },
            })
            .collect()
    }

    /// Frees what a refused attempt has taken at the nodes `open`, each with the expiry of its request. Returns the
    /// doubt about those that do not answer.
    fn undo(&self, claim: &Claim, open: &[(usize, i64)], deadline: Instant) -> Option<InDoubt> {
        if open.is_empty() {
            return None;
        }
        let mut in_doubt = InDoubt {
            not_after: smallvec![SETTLED; self.nodes.len()],
            ..claim.in_doubt(0)
        };
        for (index, not_after) in open {
            if let Some(place) = in_doubt.not_after.get_mut(*index) {
                *place = *not_after;
            }
        }
        let is_settled = self.settle(&mut in_doubt, claim.lease, deadline);
        (!is_settled).then_some(in_doubt)
    }

    /// Withdraws at all nodes that are in doubt. Returns whether none is any more.
    fn settle(&self, in_doubt: &mut InDoubt, lease: Duration, deadline: Instant) -> bool {
        let not_after: Vec<i64> = (0..self.nodes.len())
            .map(|index| in_doubt.not_after(index))
            .collect();
        in_doubt.not_after = not_after.into();
        let purpose = Purpose::Request(Some(&in_doubt.visitor));
        let open = in_doubt.not_after.iter().zip(&self.nodes).enumerate();
        let open = open
            .filter(|(_, (not_after, node))| **not_after != SETTLED && !node.is_shunned(purpose))
            .map(|(index, _)| index)
            .collect();
        let asked = in_doubt.clone();
        let mut sky = self.launch(
            Order::of(open),
            purpose,
            lease,
            deadline,
            move |index, node, by| {
                let in_doubt = InDoubt {
                    not_after: smallvec![asked.not_after(index)],
                    ..asked.clone()
                };
                node.store.launch_resolve(in_doubt, by)
            },
            Err,
        );
        sky.is_needed = false;
        while let Some((index, answer)) = sky.next() {
            let Some(node) = self.nodes.get(index) else {
                continue;
            };
            match answer {
                Ok(true) => {
                    node.reset();
                    if let Some(place) = in_doubt.not_after.get_mut(index) {
                        *place = SETTLED;
                    }
                }
                Ok(false) => node.reset(),
                Err(error) => node.trip(&error),
            }
        }
        in_doubt
            .not_after
            .iter()
            .all(|not_after| *not_after == SETTLED)
    }

    fn hear(&self, index: usize, answer: Result<Attempt>) -> Vote {
        let said = match answer {
            Ok(Attempt::Granted { .. }) => Vote::Granted,
            Ok(Attempt::Refused(refusal)) => Vote::Refused(refusal),
            Ok(Attempt::Lost(cause)) => Vote::Lacks(cause),
            Ok(Attempt::Unknown { in_doubt, error }) => Vote::Unknown(in_doubt.not_after(0), error),
            Err(error) => Vote::Failed(error),
        };
        if let Some(node) = self.nodes.get(index) {
            match &said {
                Vote::Unknown(_, error) | Vote::Failed(error) => node.trip(error),
                _ => node.reset(),
            }
        }
        said
    }

    /// Understands why too few nodes granted a first acquisition, all of which have answered or had their time.
    fn refuse(
        &self,
        claim: &Claim,
        said: &[Option<Vote>],
        leftover: Option<InDoubt>,
    ) -> Result<Attempt> {
        let granted = said
            .iter()
            .filter(|said| matches!(said, Some(Vote::Granted)))
            .count();
        let refusals: Vec<&Refusal> = said
            .iter()
            .filter_map(|said| match said {
                Some(Vote::Refused(refusal)) => Some(refusal),
                _ => None,
            })
            .collect();
        if granted + refusals.len() < self.needed {
            let error = self.no_quorum(&claim.name, said);
            return match leftover {
                Some(in_doubt) => Ok(Attempt::Unknown { in_doubt, error }),
                None => Err(error),
            };
        }
        // When so many of the holds that are in the way have ended that the rest is no majority any more.
        let mut ends: Vec<Duration> = refusals
            .iter()
            .map(|refusal| refusal.retry_after.unwrap_or(Duration::MAX))
            .collect();
        ends.sort_unstable();
        let retry_after = self
            .needed
            .checked_sub(granted + 1)
            .and_then(|last| ends.get(last))
            .filter(|end| **end != Duration::MAX)
            .copied();
        let mut holders: HashMap<&str, usize> = HashMap::new();
        for refusal in &refusals {
            *holders
                .entry(refusal.holder.as_deref().unwrap_or_default())
                .or_default() += 1;
        }
        let most = holders.values().copied().max().unwrap_or_default();
        let silent = self.nodes.len() - granted - refusals.len();
        Ok(Attempt::Refused(Refusal {
            retry_after,
            holder: None,
            split: (most + silent < self.needed).then(|| self.round_trip()),
            leftover,
        }))
    }

    /// Puts the count back that a re-entry has raised at these nodes.
    fn put_back(&self, claim: &Claim, open: &[(usize, i64)], deadline: Instant) {
        let raised = Claim {
            count: claim.count.saturating_add(1),
            ..claim.clone()
        };
        let raised_at = open.iter().map(|(index, _)| *index).collect();
        let purpose = Purpose::Request(Some(&claim.visitor));
        let mut sky = self.launch(
            Order::of(raised_at),
            purpose,
            claim.lease,
            deadline,
            |_, node, by| node.store.launch_release_level(&raised, by),
            Err,
        );
        sky.is_needed = false;
        // A node that does not answer keeps the higher count, which the last release frees all the same.
        while sky.next().is_some() {}
    }

    /// Gives a hold back to nodes that lost it, now that a majority has confirmed it.
    fn give_back(&self, claim: &Claim, nodes: &[usize], deadline: Instant) {
        let may_have = nodes.iter().fold(0, |bits, index| bits | bit(*index));
        // Before it is sent, so that a release from now on goes there, too.
        match self.spreads.lock().get_mut(&claim.visitor) {
            Some(spread) => spread.nodes |= may_have,
            None => return,
        }
        let purpose = Purpose::Vote(&claim.visitor);
        let mut sky = self.launch(
            Order::of(nodes.to_vec()),
            purpose,
            claim.lease,
            deadline,
            |_, node, by| {
                let handle = &node.handle;
                node.store.launch_acquire(claim, true, handle, by)
            },
            Err,
        );
        sky.is_needed = false;
        let mut tally = Tally::new(self.nodes.len());
        while let Some((index, answer)) = sky.next() {
            tally.note(index, self.hear(index, answer));
        }
        let open = tally.open();
        let mut spreads = self.spreads.lock();
        if let Some(spread) = spreads.get_mut(&claim.visitor) {
            spread.note_unknown(&open);
            return;
        }
        drop(spreads);
        // It was released meanwhile, maybe before this came.
        if let Some(leftover) = self.undo(claim, &open, deadline) {
            self.leftovers.lock().push(leftover);
        }
    }

    /// Renews what may be renewed once more. The rest is not asked for.
    fn renew_unspent(
        &self,
        claims: &[Claim],
        is_spent: &[bool],
        deadline: Instant,
    ) -> Vec<Renewal> {
        let pairs = claims.iter().zip(is_spent);
        let unspent = pairs.filter(|(_, is_spent)| !**is_spent);
        let unspent: Vec<Claim> = unspent.map(|(claim, _)| claim.clone()).collect();
        let mut outcomes = self.renew(&unspent, deadline).into_iter();
        let outcome = |is_spent: &bool| match is_spent {
            true => None,
            false => outcomes.next(),
        };
        let outcomes = is_spent.iter().map(outcome).collect::<Vec<_>>();
        let spent = "it was extended as often as max_extensions allows";
        let outcomes = outcomes.into_iter();
        let outcomes = outcomes.map(|it| it.unwrap_or_else(|| Renewal::Unknown(spent.to_owned())));
        outcomes.collect()
    }

    /// What comes of what the nodes said to one renewal.
    fn renewal_of(&self, renewals: &[(usize, Renewal)]) -> Renewal {
        let renewed = renewals
            .iter()
            .filter(|(_, renewal)| *renewal == Renewal::Renewed)
            .count();
        if renewed >= self.needed {
            return Renewal::Renewed;
        }
        let losses: Vec<&LossCause> = renewals
            .iter()
            .filter_map(|(_, renewal)| match renewal {
                Renewal::Lost(cause) => Some(cause),
                _ => None,
            })
            .collect();
        if losses.len() > self.nodes.len() - self.needed {
            let held = losses.iter().find(|cause| ***cause != LossCause::Gone);
            return Renewal::Lost(held.copied().cloned().unwrap_or(LossCause::Gone));
        }
        let mut reason = format!(
            "{renewed} of {} confirmed it, it takes {}",
            Nodes(self.nodes.len()),
            self.needed
        );
        for (index, renewal) in renewals {
            if let (Some(node), Renewal::Unknown(why)) = (self.nodes.get(*index), renewal) {
                reason.push_str(&format!("; {}: {why}", node.name()));
            }
        }
        Renewal::Unknown(reason)
    }
}

impl Store for Quorum {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Attempt> {
        let begun = Instant::now();
        let purpose = Purpose::Vote(&claim.visitor);
        let own = match claim.count {
            0 => None,
            _ => Some(self.spread(&claim.visitor)),
        };
        let order = self.in_order(self.all(), own.as_slice(), purpose);
        let mut tally = Tally::new(self.nodes.len());
        let mut sky = self.launch(
            order,
            purpose,
            claim.lease,
            deadline,
            |_, node, by| {
                let handle = &node.handle;
                node.store.launch_acquire(claim, false, handle, by)
            },
            Err,
        );
        while !tally.is_decided(self.needed, sky.len()) {
            let Some((index, answer)) = sky.next() else {
                break;
            };
            tally.note(index, self.hear(index, answer));
        }
        let is_first = claim.count == 0;
        if tally.granted() >= self.needed {
            self.note_round_trip(sky.elapsed());
            // The others get it too, so that the hold survives the end of one of those that have it.
            sky.launch_rest();
            // What is there need not be read by whoever uses the connection next. And a re-entry that a node has not
            // answered may run there behind later requests of the hold.
            while let Some((index, answer)) = match is_first {
                true => sky.next_arrived(begun),
                false => sky.next(),
            } {
                tally.note(index, self.hear(index, answer));
            }
            let is_open = !is_first && tally.is_in_doubt();
            let open = tally.open();
            let granted = open.iter().fold(0, |bits, (index, _)| bits | bit(*index));
            let may_have = granted | sky.bits();
            let mut spreads = self.spreads.lock();
            let spread = spreads.entry(claim.visitor.clone()).or_default();
            spread.nodes |= may_have;
            spread.note_unknown(&open);
            for landing in sky.aloft.iter().chain(&sky.arrived) {
                spread.note(landing.index, landing.flight.not_after(), true);
            }
            return Ok(Attempt::Granted {
                sent: sky.first_sent,
                fence: None,
                leftover: is_open.then(|| claim.in_doubt(0)),
            });
        }
        // Whoever has not answered yet may say who is in the way.
        loop {
            sky.is_needed = tally.answered() < self.needed;
            let Some((index, answer)) = sky.next() else {
                break;
            };
            tally.note(index, self.hear(index, answer));
        }
        sky.note_rest(&mut tally.said);
        let open = tally.open();
        if is_first {
            let leftover = self.undo(claim, &open, deadline);
            return self.refuse(claim, &tally.said, leftover);
        }
        if let Some(cause) = tally.lacking(self.nodes.len() - self.needed) {
            // The few that still have it are in the way of whoever comes next.
            if let Some(leftover) = self.undo(claim, &open, deadline) {
                self.note_open(&claim.visitor, &leftover);
            }
            return Ok(Attempt::Lost(cause));
        }
        self.put_back(claim, &open, deadline);
        Ok(Attempt::Unknown {
            in_doubt: claim.in_doubt(0),
            error: self.no_quorum(&claim.name, &tally.said),
        })
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        let Some(lease) = claims.iter().map(|claim| claim.lease).min() else {
            return Vec::new();
        };
        let (holds, is_spent): (Vec<u64>, Vec<bool>) = {
            let spreads = self.spreads.lock();
            let most = self.settings.max_extensions;
            let of = |claim: &Claim| match spreads.get(&claim.visitor) {
                Some(spread) => (
                    spread.nodes,
                    most.is_some_and(|most| spread.extensions >= most),
                ),
                None => (self.all(), false),
            };
            claims.iter().map(of).unzip()
        };
        if is_spent.contains(&true) {
            return self.renew_unspent(claims, &is_spent, deadline);
        }
        let mut said: Vec<SmallVec<[(usize, Renewal); 5]>> =
            claims.iter().map(|_| SmallVec::new()).collect();
        let order = self.in_order(self.all(), &holds, Purpose::Renewal);
        let failed = |error| vec![Renewal::Unknown(reason_of(&error)); claims.len()];
        let mut sky = self.launch(
            order,
            Purpose::Renewal,
            lease,
            deadline,
            |_, node, by| node.store.launch_renew(claims, &node.handle, by),
            failed,
        );
        let mut answered = 0;
        while let Some((index, answers)) = sky.next() {
            let is_unknown = |answer: &Renewal| matches!(answer, Renewal::Unknown(_));
            answered += usize::from(!answers.iter().all(is_unknown));
            sky.is_needed = answered < self.needed;
            for (said, answer) in said.iter_mut().zip(answers) {
                said.push((index, answer));
            }
        }
        let mut outcomes = Vec::with_capacity(claims.len());
        for (claim, said) in claims.iter().zip(&said) {
            let outcome = self.renewal_of(said);
            if outcome == Renewal::Renewed {
                if let Some(spread) = self.spreads.lock().get_mut(&claim.visitor) {
                    spread.extensions = spread.extensions.saturating_add(1);
                }
                let gone = Renewal::Lost(LossCause::Gone);
                let without = said.iter().filter(|(_, renewal)| *renewal == gone);
                let without: Vec<usize> = without.map(|(index, _)| *index).collect();
                if !without.is_empty() {
                    self.give_back(claim, &without, deadline);
                }
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn release(&self, claim: &Claim, deadline: Instant) -> Result<Release> {
        let known = self.spreads.lock().remove(&claim.visitor);
        let spread = known.as_ref().map_or(self.all(), |spread| spread.nodes);
        let may_come = |index: usize| {
            let open = known.iter().flat_map(|spread| &spread.open);
            let mut open = open.filter(|open| open.node == index && !open.is_behind);
            open.next().map(|open| open.not_after)
        };
        let mut said: Vec<Option<Vote>> = self.nodes.iter().map(|_| None).collect();
        let mut in_doubt = InDoubt {
            not_after: smallvec![SETTLED; self.nodes.len()],
            ..claim.in_doubt(0)
        };
        for (index, place) in in_doubt.not_after.iter_mut().enumerate() {
            if spread & bit(index) != 0 {
                *place = 0;
            }
        }
        let lease = self.settings.max_lease;
        let mut sky = self.launch_at(
            spread,
            Purpose::Request(Some(&claim.visitor)),
            lease,
            deadline,
            |_, node, by| node.store.launch_release(claim, by),
            Err,
        );
        // A node that was never asked for the hold is free of it, and so is one that lacks it.
        let absent = self.nodes.len() - spread.count_ones() as usize;
        let (mut done, mut lacking, mut others_wait) = (0, 0, false);
        let mut patience = None;
        while let Some((index, answer)) = sky.next_within(patience) {
            let Some(node) = self.nodes.get(index) else {
                continue;
            };
            let what = match answer {
                Ok(Release::Done {
                    others_wait: waiting,
                    ..
                }) => {
                    others_wait |= waiting;
                    done += 1;
                    Vote::Granted
                }
                Ok(Release::NotHeld(cause)) => match may_come(index) {
                    Some(not_after) => Vote::Unknown(
                        not_after,
                        Error::Unavailable {
                            lock: Arc::clone(&claim.name),
                            node: node.name(),
                            reason: "the request for it may still be on its way".to_owned(),
                        },
                    ),
                    None => {
                        lacking += 1;
                        Vote::Lacks(cause)
                    }
                },
                Ok(Release::Unknown { in_doubt, error }) => {
                    Vote::Unknown(in_doubt.not_after(0), error)
                }
                Err(error) => Vote::Failed(error),
            };
            match &what {
                Vote::Unknown(not_after, error) => {
                    node.trip(error);
                    if let Some(place) = in_doubt.not_after.get_mut(index) {
                        *place = *not_after;
                    }
                }
                Vote::Failed(error) => node.trip(error),
                _ => {
                    node.reset();
                    if let Some(place) = in_doubt.not_after.get_mut(index) {
                        *place = SETTLED;
                    }
                }
            }
            if let Some(place) = said.get_mut(index) {
                *place = Some(what);
            }
            if done == self.needed {
                // The rest mostly comes at once. What does not is looked after in the background.
                patience = Some(Instant::now() + sky.elapsed() / 2 + SOON);
            }
            sky.is_needed = done + lacking + absent < self.needed;
        }
        let took = sky.elapsed();
        sky.note_rest(&mut said);
        let open = in_doubt
            .not_after
            .iter()
            .filter(|not_after| **not_after != SETTLED)
            .count();
        if done >= self.needed {
            self.note_round_trip(took);
        }
        // It was a majority's for all that is known, and a majority is free of it now.
        let is_free = done + open >= self.needed && done + lacking + absent >= self.needed;
        if done >= self.needed || (done > 0 && is_free) {
            return Ok(Release::Done {
                others_wait,
                leftover: (open > 0).then_some(in_doubt),
            });
        }
        let cause = said.iter().find_map(|said| match said {
            Some(Vote::Lacks(cause)) => Some(cause.clone()),
            _ => None,
        });
        match cause {
            Some(cause) if done + open < self.needed => Ok(Release::NotHeld(cause)),
            _ => Ok(Release::Unknown {
                error: self.no_quorum(&claim.name, &said),
                in_doubt,
            }),
        }
    }

    fn release_level(&self, claim: &Claim, deadline: Instant) -> Result<Release> {
        let mut tally = Tally::new(self.nodes.len());
        let spread = self.spread(&claim.visitor);
        let mut sky = self.launch_at(
            spread,
            Purpose::Request(Some(&claim.visitor)),
            claim.lease,
            deadline,
            |_, node, by| node.store.launch_release_level(claim, by),
            Err,
        );
        // What a node has not answered may run there behind later requests of the hold. And where no majority can be had
        // any more, the error says of each node what it has done.
        while let Some((index, answer)) = sky.next() {
            let answer = match answer {
                Ok(Release::Done { .. }) => Ok(Attempt::Granted {
                    sent: BootInstant::now(),
                    fence: None,
                    leftover: None,
                }),
                Ok(Release::NotHeld(cause)) => Ok(Attempt::Lost(cause)),
                Ok(Release::Unknown { in_doubt, error }) => {
                    Ok(Attempt::Unknown { in_doubt, error })
                }
                Err(error) => Err(error),
            };
            tally.note(index, self.hear(index, answer));
            sky.is_needed = tally.answered() < self.needed;
        }
        sky.note_rest(&mut tally.said);
        if tally.granted() >= self.needed {
            return Ok(Release::Done {
                others_wait: false,
                leftover: tally.is_in_doubt().then(|| claim.in_doubt(0)),
            });
        }
        match tally.lacking(self.nodes.len() - self.needed) {
            Some(cause) => Ok(Release::NotHeld(cause)),
            None => Ok(Release::Unknown {
                in_doubt: claim.in_doubt(0),
                error: self.no_quorum(&claim.name, &tally.said),
            }),
        }
    }

    fn leftovers(&self) -> Vec<InDoubt> {
        std::mem::take(&mut *self.leftovers.lock())
    }

    fn hands_off(&self) -> bool {
        false
    }

    /// Connects aside, once: nobody waits for it.
    fn get_ready_to_renew(&self, _lock: &str, _until: Instant) {
        for node in &self.nodes {
            if !node.got_ready.load(Ordering::Relaxed)
                && !node.got_ready.swap(true, Ordering::Relaxed)
                && !node.store.is_warm(Purpose::Renewal)
            {
                node.connect_aside(Line::Renewals);
            }
        }
    }

    fn transfer(&self, from: &Claim, _: &Claim, _: Instant) -> Result<Transfer> {
        // Half of the nodes might have the one and half the other.
        Err(Error::Unsupported {
            lock: Arc::clone(&from.name),
            reason: "a quorum hands no hold over".to_owned(),
        })
    }

    fn resolve(&self, in_doubt: &mut InDoubt, deadline: Instant) -> Result<bool> {
        self.forget(in_doubt);
        Ok(self.settle(in_doubt, self.settings.max_lease, deadline))
    }

    fn resolve_all(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        if let [in_doubt] = in_doubts {
            return vec![self.resolve(in_doubt, deadline)];
        }
        for in_doubt in in_doubts.iter_mut() {
            self.forget(in_doubt);
        }
        let timeout = self.node_timeout(self.settings.max_lease);
        // Each node at the same time, so that a silent one keeps nobody waiting but for its own time-out.
        let answers = thread::scope(|scope| {
            let started: Vec<_> = (0..)
                .zip(&self.nodes)
                .filter_map(|(index, node)| {
                    let mut parts = parts_at(in_doubts, index);
                    if parts.is_empty() || node.is_shunned(Purpose::Request(None)) {
                        return None;
                    }
                    let resolve = move || {
                        if !node.is_connected_by(deadline.min(Instant::now() + timeout)) {
                            return Vec::new();
                        }
                        let by = deadline.min(Instant::now() + timeout);
                        let mut of_node: Vec<&mut InDoubt> =
                            parts.iter_mut().map(|(_, part)| part).collect();
                        let outcomes = node.store.resolve_all(&mut of_node, by);
                        let places = parts.iter().map(|(place, _)| *place);
                        places.zip(outcomes).collect::<Vec<_>>()
                    };
                    let named = thread::Builder::new().name("redlatch-release".to_owned());
                    Some((index, node, named.spawn_scoped(scope, resolve)))
                })
                .collect();
            let joined = started.into_iter().map(|(index, node, thread)| {
                // Where there is no room for a thread, or it died, it is tried again later.
                let answers = thread.ok().and_then(|thread| thread.join().ok());
                (index, node, answers.unwrap_or_default())
            });
            joined.collect::<Vec<_>>()
        });
        for (index, node, answers) in answers {
            for (place, answer) in answers {
                match answer {
                    Err(error) => node.trip(&error),
                    Ok(is_settled) => {
                        node.reset();
                        let in_doubt = in_doubts.get_mut(place).filter(|_| is_settled);
                        if let Some(at) =
                            in_doubt.and_then(|in_doubt| in_doubt.not_after.get_mut(index))
                        {
                            *at = SETTLED;
                        }
                    }
                }
            }
        }
        let is_settled =
            |in_doubt: &&mut InDoubt| in_doubt.not_after.iter().all(|it| *it == SETTLED);
        in_doubts
            .iter()
            .map(|in_doubt| Ok(is_settled(in_doubt)))
            .collect()
    }

    fn force_release(&self, kind: Kind, name: &Arc<str>, deadline: Instant) -> Result<bool> {
        let lease = self.settings.max_lease;
        let mut said: Vec<Option<Vote>> = self.nodes.iter().map(|_| None).collect();
        let mut sky = self.launch_at(
            self.all(),
            Purpose::Request(None),
            lease,
            deadline,
            |_, node, by| node.store.launch_force_release(kind, name, by),
            Err,
        );
        let (mut answered, mut was_held) = (0, false);
        while let Some((index, answer)) = sky.next() {
            let what = match answer {
                Ok(freed) => {
                    answered += 1;
                    was_held |= freed;
                    Vote::Granted
                }
                Err(error) => Vote::Failed(error),
            };
            sky.is_needed = answered < self.needed;
            if let Some(place) = said.get_mut(index) {
                *place = Some(what);
            }
        }
        sky.note_rest(&mut said);
        if answered >= self.needed {
            Ok(was_held)
        } else {
            Err(self.no_quorum(name, &said))
        }
    }

    fn inspect(
        &self,
        kind: Kind,
        name: &Arc<str>,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding> {
        let lease = self.settings.max_lease;
        let mut said: Vec<Option<Vote>> = self.nodes.iter().map(|_| None).collect();
        let mut sky = self.launch_at(
            self.all(),
            Purpose::Request(visitor),
            lease,
            deadline,
            |_, node, by| node.store.launch_inspect(kind, name, visitor, by),
            Err,
        );
        let mut holdings = Vec::with_capacity(self.nodes.len());
        while let Some((index, answer)) = sky.next() {
            let what = match answer {
                Ok(holding) => {
                    holdings.push(holding);
                    Vote::Granted
                }
                Err(error) => Vote::Failed(error),
            };
            if let Some(place) = said.get_mut(index) {
                *place = Some(what);
            }
            sky.is_needed = holdings.len() < self.needed;
            let locked = holdings.iter().filter(|holding| holding.is_locked).count();
            let free = holdings.len() - locked;
            if visitor.is_none() && free > self.nodes.len() - self.needed {
                return Ok(Holding::default());
            }
        }
        sky.note_rest(&mut said);
        if holdings.len() < self.needed {
            return Err(self.no_quorum(name, &said));
        }
        // What a majority has at least.
        let last = self.needed - 1;
        let mut counts: Vec<u32> = holdings.iter().map(|holding| holding.count).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let mut locked: Vec<Option<Duration>> = holdings
            .iter()
            .filter(|holding| holding.is_locked)
            .map(|holding| holding.remaining)
            .collect();
        // The longest first, and for ever before all.
        locked.sort_unstable_by_key(|remaining| {
            std::cmp::Reverse(remaining.unwrap_or(Duration::MAX))
        });
        Ok(Holding {
            is_locked: locked.len() >= self.needed,
            count: counts.get(last).copied().unwrap_or_default(),
            remaining: locked.get(last).copied().flatten(),
        })
    }

    fn subscribe(&self, kind: Kind, name: &Arc<str>, _: u32, parker: &Arc<Parker>) -> Subscription {
        parker.need(u32::try_from(self.needed).unwrap_or(u32::MAX));
        let registration = self.notifier.join(name, parker);
        let parts: Vec<Subscription> = (0..)
            .zip(&self.nodes)
            .map(|(source, node)| node.store.subscribe(kind, name, source, parker))
            .collect();
        let hears = |what| parts.iter().filter(|part| part.delivery == what).count();
        let delivery = if hears(Delivery::Live) >= self.needed {
            Delivery::Live
        } else if hears(Delivery::Polling) > self.nodes.len() - self.needed {
            Delivery::Polling
        } else {
            Delivery::Pending
        };
        Subscription {
            registration,
            delivery,
            jitter: self.round_trip(),
            keep: Some(Box::new(parts)),
        }
    }

    fn node(&self) -> Arc<str> {
        let names: Vec<_> = self.nodes.iter().map(|node| node.name()).collect();
        names.join(", ").into()
    }

    fn place(&self) -> Arc<str> {
        let places: Vec<_> = self.nodes.iter().map(|node| node.store.place()).collect();
        places.join(", ").into()
    }

    fn longest_lease(&self) -> Duration {
        self.settings.max_lease
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        let mut warnings: Vec<HealthWarning> = self.flaws().into_iter().collect();
        for (looked_at, node) in self.nodes.iter().enumerate() {
            // One that is silent must leave time for those behind it.
            let now = Instant::now();
            let left = u32::try_from(self.nodes.len() - looked_at).unwrap_or(u32::MAX);
            let deadline = now + deadline.saturating_duration_since(now) / left;
            match node.store.check_as_node(&node.handle, deadline) {
                Ok(found) => warnings.extend(found),
                Err(error) => warnings.push(HealthWarning {
                    node: node.name(),
                    message: format!("it could not be looked at: {error}"),
                }),
            }
        }
        Ok(warnings)
    }

    fn notifier(&self) -> &Arc<Notifier> {
        &self.notifier
    }

    fn close(&self) {
        // The nodes belong to their own clients.
    }
}

/// What comes behind the quorum is waited for this much longer than half of the time that the quorum took.
const SOON: Duration = Duration::from_micros(300);

impl Quorum {
    /// Sends a request to all nodes of `among` that can be reached.
    fn launch_at<'a, T>(
        &'a self,
        among: u64,
        purpose: Purpose<'_>,
        lease: Duration,
        deadline: Instant,
        launch: impl Fn(usize, &'a Node, Instant) -> Flight<'a, T> + 'a,
        failed: impl Fn(Error) -> T + 'a,
    ) -> Sky<'a, T> {
        let order = self.in_order(among, &[], purpose);
        self.launch(order, purpose, lease, deadline, launch, failed)
    }

    /// Sends a request to the nodes that are connected at once, and to the others as soon as they are, which takes a time
    /// of its own; see [`Sky`]. Where a node cannot be connected for good, the answer is what `failed` makes of it.
    fn launch<'a, T>(
        &'a self,
        order: Order,
        purpose: Purpose<'_>,
        lease: Duration,
        deadline: Instant,
        launch: impl Fn(usize, &'a Node, Instant) -> Flight<'a, T> + 'a,
        failed: impl Fn(Error) -> T + 'a,
    ) -> Sky<'a, T> {
        let begun = Instant::now();
        let timeout = self.node_timeout(lease);
        let soon = deadline.min(begun + timeout);
        let mut sky = Sky {
            quorum: self,
            launch: Box::new(launch),
            failed: Box::new(failed),
            line: Line::of(purpose),
            needs_vote: !matches!(purpose, Purpose::Request(_)),
            timeout,
            deadline,
            soon,
            // What comes later than half of the lease leaves too little of it.
            connected_by: deadline.min(begun + lease / 2).max(soon),
            is_needed: true,
            first_sent: BootInstant::now(),
            first_sent_at: begun,
            has_sent: false,
            landed: Vec::new(),
            arrived: Vec::new(),
            aloft: Vec::new(),
            connecting: Vec::new(),
            asked: 0,
            out_of_reach: Vec::new(),
            aside: order.aside,
        };
        for index in order.first {
            sky.ask(index, 0);
        }
        sky
    }

    /// What makes a poor quorum of the number of its nodes.
    pub(crate) fn flaws(&self) -> Option<HealthWarning> {
        let nodes = self.nodes.len();
        let message = match nodes {
            0..=2 => format!(
                "{nodes} nodes are no quorum that survives the end of one; take 3 or 5 independent ones"
            ),
            even if even % 2 == 0 => format!(
                "of {even} nodes {} have to agree, so they survive no more failures than {} would",
                self.needed,
                even - 1
            ),
            _ => return None,
        };
        Some(HealthWarning {
            node: self.node(),
            message,
        })
    }
}

impl Node {
    fn name(&self) -> Arc<str> {
        self.store.node()
    }

    /// Whether it is to be left alone.
    fn is_shunned(self: &Arc<Node>, purpose: Purpose<'_>) -> bool {
        let line = Line::of(purpose);
        {
            let mut shunned = self.shunned.lock();
            let now = Instant::now();
            match shunned.deadline {
                Some(deadline) if now < deadline => return true,
                Some(_) => {
                    // Whoever comes first tries it; until that has an answer the others leave it alone.
                    shunned.deadline = Some(now + shunned.pause);
                }
                None => {
                    drop(shunned);
                    return self.is_slow_to_connect(line) && !self.store.is_warm(purpose);
                }
            }
        }
        if self.store.is_warm(purpose) {
            return false;
        }
        // It may still be silent, and nobody is to wait for that.
        self.connect_aside(line);
        true
    }

    /// Whether a request can be sent by this time, which is waited for.
    fn is_connected_by(self: &Arc<Node>, by: Instant) -> bool {
        if self.store.is_warm(Purpose::Request(None)) {
            return true;
        }
        let want = self.want(Line::Requests, by);
        self.links.wait(std::iter::once(&want), by);
        match want.outcome() {
            Some(Some(Outcome::Ready | Outcome::NoVote(_))) => true,
            Some(Some(Outcome::Failed(error))) => !error.may_pass(),
            Some(None) | None => false,
        }
    }

    /// Leaves it alone for a while, after an error that means that asking it costs its time-out.
    fn trip(&self, error: &Error) {
        if !matches!(error, Error::Unreachable { .. } | Error::Unknown { .. }) {
            return;
        }
        let mut shunned = self.shunned.lock();
        shunned.pause = (shunned.pause * 2).clamp(FIRST_SHUN, LONGEST_SHUN);
        shunned.deadline = Some(Instant::now() + shunned.pause);
        shunned.reason = reason_of(error);
    }

    /// Leaves it alone no longer, after it has answered.
    fn reset(&self) {
        let mut shunned = self.shunned.lock();
        if !shunned.pause.is_zero() {
            *shunned = Breaker::default();
        }
    }

    /// Leaves it alone no longer, now that it is connected. If it does not answer all the same, the pause goes on to grow.
    fn revive(&self) {
        self.shunned.lock().deadline = None;
    }
}

/// What all nodes said.
struct Tally {
    said: Vec<Option<Vote>>,
}

impl Tally {
    fn new(nodes: usize) -> Tally {
        Tally {
            said: (0..nodes).map(|_| None).collect(),
        }
    }

    fn note(&mut self, index: usize, said: Vote) {
        if let Some(place) = self.said.get_mut(index) {
            *place = Some(said);
        }
    }

    fn granted(&self) -> usize {
        let granted = |said: &&Option<Vote>| matches!(said, Some(Vote::Granted));
        self.said.iter().filter(granted).count()
    }

    /// How many have said something.
    fn answered(&self) -> usize {
        let answered = |said: &&Option<Vote>| {
            matches!(
                said,
                Some(Vote::Granted | Vote::Refused(_) | Vote::Lacks(_))
            )
        };
        self.said.iter().filter(answered).count()
    }

    /// Whether enough have granted it, or not enough can any more with `outstanding` answers to come.
    fn is_decided(&self, needed: usize, outstanding: usize) -> bool {
        let granted = self.granted();
        granted >= needed || granted + outstanding < needed
    }

    /// Whether a node may have granted it, or may yet do so.
    fn is_in_doubt(&self) -> bool {
        let mut said = self.said.iter().flatten();
        said.any(|said| matches!(said, Vote::Unknown(..)))
    }

    /// The nodes that have granted it or may have, with the expiry of their requests.
    fn open(&self) -> Vec<(usize, i64)> {
        let said = self.said.iter().enumerate();
        said.filter_map(|(index, said)| match said {
            Some(Vote::Granted) => Some((index, 0)),
            Some(Vote::Unknown(not_after, _)) => Some((index, *not_after)),
            _ => None,
        })
        .collect()
    }

    /// Why a hold is lost, if more than `spare` nodes lack it.
    fn lacking(&self, spare: usize) -> Option<LossCause> {
        let causes: Vec<&LossCause> = self
            .said
            .iter()
            .filter_map(|said| match said {
                Some(Vote::Lacks(cause)) => Some(cause),
                _ => None,
            })
            .collect();
        let held = causes.iter().find(|cause| ***cause != LossCause::Gone);
        let cause = held.or(causes.first())?;
        (causes.len() > spare).then(|| (*cause).clone())
    }
}

/// Requests that are under way, each to another node, and those that wait for a connection.
///
/// Each request has the time-out of a node from when it is sent. A connection that is being made is waited for as long
/// as a node may take; where too few others answer, for as long as there is time, unless the last attempt failed.
struct Sky<'a, T> {
    quorum: &'a Quorum,
    launch: Box<dyn Fn(usize, &'a Node, Instant) -> Flight<'a, T> + 'a>,
    failed: Box<dyn Fn(Error) -> T + 'a>,
    line: Line,
    needs_vote: bool,
    /// How long a node may take for a request.
    timeout: Duration,
    /// When all is over.
    deadline: Instant,
    /// Until when connections are waited for, and until when if they are needed.
    soon: Instant,
    connected_by: Instant,
    /// Whether there are too few answers without the nodes that are being connected.
    is_needed: bool,
    /// Just before the first request was sent.
    first_sent: BootInstant,
    first_sent_at: Instant,
    has_sent: bool,
    landed: Vec<(usize, T)>,
    /// Those for which something has arrived.
    arrived: Vec<Landing<'a, T>>,
    aloft: Vec<Landing<'a, T>>,
    connecting: Vec<Connecting<'a>>,
    /// The nodes that were asked, a bit each.
    asked: u64,
    /// Those that could not be asked.
    out_of_reach: Vec<(usize, Error)>,
    /// Those that are left alone as long as the others do.
    aside: Vec<usize>,
}

/// A request that was sent.
struct Landing<'a, T> {
    index: usize,
    /// When it is given up.
    by: Instant,
    flight: Box<dyn Aloft<T> + 'a>,
}

/// A request that waits for its connection.
struct Connecting<'a> {
    index: usize,
    want: Want<'a>,
    /// How often a connection that was made was of no use.
    tries: u32,
}

/// As often a connection that was made is of no use, because another call took it or the server closed it.
const MOST_TRIES: u32 = 5;

/// While answers are waited for, too, it is looked this often whether a connection is there.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl<'a, T> Sky<'a, T> {
    /// Sends the request to a node, or has it connected first. Returns whether it was sent.
    fn ask(&mut self, index: usize, tries: u32) -> bool {
        let Some(node) = self.quorum.nodes.get(index) else {
            return false;
        };
        let (sent, now) = (BootInstant::now(), Instant::now());
        let by = self.deadline.min(now + self.timeout);
        match (self.launch)(index, node, by) {
            Flight::Landed(answer) => self.landed.push((index, answer)),
            Flight::Aloft(flight) => self.aloft.push(Landing { index, by, flight }),
            Flight::Cold => {
                if tries < MOST_TRIES {
                    let want = node.want(self.line, by);
                    self.connecting.push(Connecting { index, want, tries });
                }
                return false;
            }
        }
        self.asked |= bit(index);
        if !self.has_sent {
            self.has_sent = true;
            (self.first_sent, self.first_sent_at) = (sent, now);
        }
        true
    }

    /// Sends the requests whose connections are there.
    fn ask_connected(&mut self) {
        for at in (0..self.connecting.len()).rev() {
            let outcome = self.connecting.get(at).and_then(|it| it.want.outcome());
            let Some(outcome) = outcome else {
                continue;
            };
            let Connecting { index, want, tries } = self.connecting.swap_remove(at);
            let node = want.node;
            drop(want);
            match outcome {
                Some(Outcome::NoVote(reason)) if self.needs_vote => {
                    let error = Error::Unavailable {
                        lock: "".into(),
                        node: node.name(),
                        reason,
                    };
                    let answer = (self.failed)(error);
                    self.landed.push((index, answer));
                }
                Some(Outcome::Ready | Outcome::NoVote(_)) => {
                    self.ask(index, tries + 1);
                }
                Some(Outcome::Failed(error)) if !error.may_pass() => {
                    // Some requests may be allowed all the same.
                    let was_sent = self.ask(index, MOST_TRIES);
                    let failed = (!was_sent).then(|| (index, (self.failed)(error)));
                    self.landed.extend(failed);
                }
                Some(Outcome::Failed(error)) => self.out_of_reach.push((index, error)),
                None => {}
            }
        }
    }

    /// Asks the nodes that were left alone, because the others do not do: one may have come back.
    fn ask_aside(&mut self) {
        self.soon = self.deadline.min(Instant::now() + self.timeout);
        self.connected_by = self.connected_by.max(self.soon);
        for index in std::mem::take(&mut self.aside) {
            self.ask(index, 0);
        }
    }

    /// Lets go of what is under way, and notes of each node that has not answered why.
    fn note_rest(mut self, said: &mut [Option<Vote>]) {
        self.give_up_connecting();
        for (index, said) in said.iter_mut().enumerate() {
            if said.is_none() && self.asked & bit(index) != 0 {
                *said = Some(Vote::Silent);
            }
        }
        for (index, error) in std::mem::take(&mut self.out_of_reach) {
            if let Some(place @ None) = said.get_mut(index) {
                *place = Some(Vote::Failed(error));
            }
        }
    }

    /// Sends what can be sent soon, without reading any answer.
    fn launch_rest(&mut self) {
        self.is_needed = false;
        loop {
            self.ask_connected();
            if self.connecting.is_empty() {
                return;
            }
            if Instant::now() >= self.soon {
                return self.give_up_connecting();
            }
            self.wait_for_connections(self.soon);
        }
    }

    /// Waits no longer for connections, which go on being made.
    fn give_up_connecting(&mut self) {
        for Connecting { index, want, .. } in self.connecting.drain(..) {
            if Instant::now() >= self.soon {
                want.note_slow();
            }
            let error = Error::Unreachable {
                lock: "".into(),
                node: want.node.name(),
                reason: "connecting takes longer than there was time".to_owned(),
                source: None,
            };
            self.out_of_reach.push((index, error));
        }
    }

    fn wait_for_connections(&self, deadline: Instant) {
        let wants = self.connecting.iter().map(|it| &it.want);
        self.quorum.links.wait(wants, deadline);
    }

    /// The time since the first request was sent.
    fn elapsed(&self) -> Duration {
        self.first_sent_at.elapsed()
    }

    /// How many may still say something, if they are needed.
    fn len(&self) -> usize {
        let under_way = self.landed.len() + self.arrived.len() + self.aloft.len();
        under_way + self.connecting.len() + self.aside.len()
    }

    /// The nodes that were asked and whose answers are still to come.
    fn bits(&self) -> u64 {
        let unread = self.aloft.iter().chain(&self.arrived);
        let unread = unread.map(|landing| landing.index);
        let landed = self.landed.iter().map(|(index, _)| *index);
        unread
            .chain(landed)
            .fold(0, |bits, index| bits | bit(index))
    }

    /// The next answer; when its time is over each says that it had none. `None` after the last.
    fn next(&mut self) -> Option<(usize, T)> {
        self.next_within(None)
    }

    /// The next answer that comes until `patience`.
    fn next_within(&mut self, patience: Option<Instant>) -> Option<(usize, T)> {
        loop {
            self.ask_connected();
            if let Some(next) = self.next_arrived(patience.unwrap_or(self.deadline)) {
                return Some(next);
            }
            let now = Instant::now();
            if let Some(at) = self.aloft.iter().position(|it| it.by <= now) {
                let Landing { index, by, flight } = self.aloft.swap_remove(at);
                if let Some(answer) = flight.land(by) {
                    return Some((index, answer));
                }
                continue;
            }
            if patience.is_some_and(|patience| patience <= now) {
                return None;
            }
            if self.is_needed && self.aloft.is_empty() && !self.aside.is_empty() {
                self.ask_aside();
                continue;
            }
            let is_hopeful = || !self.connecting.iter().all(|it| it.want.is_doubtful());
            let connected_by = if self.is_needed && is_hopeful() {
                self.connected_by
            } else {
                self.soon
            };
            if !self.connecting.is_empty() && connected_by <= now {
                self.give_up_connecting();
            }
            let ends = self.aloft.iter().map(|it| it.by);
            let ends = ends.chain((!self.connecting.is_empty()).then_some(connected_by));
            let wake_at = ends.min()?;
            self.wait(patience.map_or(wake_at, |patience| patience.min(wake_at)));
        }
    }

    /// The next answer that is there. One that has come in part has until `deadline` for the rest, but a little in any case.
    fn next_arrived(&mut self, deadline: Instant) -> Option<(usize, T)> {
        if let Some(next) = self.landed.pop() {
            return Some(next);
        }
        while let Some(Landing { index, by, flight }) = self.arrived.pop() {
            let whole_by = deadline
                .min(by)
                .max(Instant::now() + Duration::from_millis(5));
            if let Some(answer) = flight.land(whole_by) {
                return Some((index, answer));
            }
        }
        None
    }

    /// Waits until something arrives for some of the flights, or a connection is there.
    fn wait(&mut self, deadline: Instant) {
        if self.aloft.is_empty() {
            return self.wait_for_connections(deadline);
        }
        let deadline = match self.connecting.is_empty() {
            true => deadline,
            false => deadline.min(Instant::now() + LOOK_AGAIN),
        };
        let arrived = self.poll(deadline).unwrap_or_default();
        for at in (0..self.aloft.len()).rev() {
            if arrived & bit(at) != 0 {
                let flight = self.aloft.swap_remove(at);
                self.arrived.push(flight);
            }
        }
    }

    /// The flights for which something has arrived, by their places, a bit each.
    fn poll(&self, deadline: Instant) -> Option<u64> {
        if self.aloft.is_empty() {
            return None;
        }
        let mut fds: SmallVec<[PollFd<'_>; 8]> = SmallVec::new();
        for (at, landing) in self.aloft.iter().enumerate() {
            match landing.flight.fd() {
                Some(fd) => fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN)),
                None => return Some(bit(at)),
            }
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or(Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            });
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) if Instant::now() < deadline => {}
                Ok(0) => return None,
                Ok(_) => {
                    let arrived = fds.iter().enumerate();
                    let arrived = arrived.filter(|(_, fd)| !fd.revents().is_empty());
                    return Some(arrived.fold(0, |bits, (at, _)| bits | bit(at)));
                }
                // There is no memory to wait with: reading waits, too.
                Err(_) => return Some(bit(0)),
            }
        }
    }
}

/// What of these doubts concerns node `index`, each with its place among them.
fn parts_at(in_doubts: &[&mut InDoubt], index: usize) -> Vec<(usize, InDoubt)> {
    let open = in_doubts
        .iter()
        .enumerate()
        .filter_map(|(place, in_doubt)| {
            let not_after = in_doubt.not_after(index);
            let part = InDoubt {
                not_after: smallvec![not_after],
                ..(**in_doubt).clone()
            };
            (not_after != SETTLED).then_some((place, part))
        });
    open.collect()
}

impl Placement {
    /// Notes the nodes that did not answer a request, with its expiry.
    fn note_unknown(&mut self, open: &[(usize, i64)]) {
        for (node, not_after) in open.iter().filter(|(_, not_after)| *not_after > 0) {
            self.note(*node, *not_after, false);
        }
    }

    /// Notes that a request may still arrive at the node. The latest one counts.
    fn note(&mut self, node: usize, not_after: i64, is_behind: bool) {
        let mut open = self.open.iter_mut();
        match open.find(|open| open.node == node && open.is_behind == is_behind) {
            Some(open) => open.not_after = open.not_after.max(not_after),
            None => self.open.push(Open {
                node,
                not_after,
                is_behind,
            }),
        }
    }
}

fn bits(nodes: &[usize]) -> u64 {
    nodes.iter().fold(0, |bits, index| bits | bit(*index))
}

fn bit(index: usize) -> u64 {
    1 << (index % MOST_NODES)
}

/// What is wrong with a node, without its name.
fn reason_of(error: &Error) -> String {
    match error {
        Error::Unreachable { reason, .. }
        | Error::Unknown { reason, .. }
        | Error::Unavailable { reason, .. } => reason.clone(),
        error => error.to_string(),
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum")
            .field("nodes", &self.node())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::stores::memory::{Memory, World};

    const LEASE: Duration = Duration::from_secs(10);

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(2)
    }

    fn claim(visitor: &str, count: u32) -> Claim {
        Claim {
            kind: Kind::Reentrant,
            name: "a".into(),
            visitor: VisitorId::new(visitor, 1, 1),
            count,
            lease: LEASE,
        }
    }

    /// Three nodes, of which the last one is held by somebody else.
    fn with_one_taken() -> Quorum {
        let settings = Settings {
            node_timeout: None,
            max_lease: LEASE,
            max_extensions: None,
            trusts_new_nodes: true,
            connect_timeout: LEASE,
        };
        let stores = (0..3).map(|_| {
            let store = Memory::new(Arc::new(World::default()));
            (Arc::new(store) as Arc<dyn Store>, Arc::new(()) as _)
        });
        let quorum = Quorum::new(stores.collect(), settings, soon()).unwrap();
        let taken = quorum.nodes.last().unwrap();
        let granted = taken.store.acquire(&claim("other", 0), soon()).unwrap();
        assert!(matches!(granted, Attempt::Granted { .. }));
        quorum
    }

    fn trip(quorum: &Quorum, index: usize) {
        *quorum.nodes.get(index).unwrap().shunned.lock() = Breaker {
            deadline: Some(Instant::now() + LEASE),
            pause: LEASE,
            reason: String::new(),
        };
    }

    #[test]
    fn the_nodes_of_a_hold_are_asked_however_many_others_there_are() {
        let quorum = with_one_taken();
        let granted = quorum.acquire(&claim("me", 0), soon()).unwrap();
        assert!(matches!(granted, Attempt::Granted { .. }), "{granted:?}");
        for index in 0..2 {
            trip(&quorum, index);
            let renewals = quorum.renew(&[claim("me", 1)], soon());
            assert_eq!(renewals, [Renewal::Renewed]);
            trip(&quorum, index);
            let entered = quorum.acquire(&claim("me", 1), soon()).unwrap();
            assert!(matches!(entered, Attempt::Granted { .. }), "{entered:?}");
        }
    }

    #[test]
    fn what_may_still_arrive_is_kept_until_the_hold_is_freed() {
        let quorum = with_one_taken();
        quorum.acquire(&claim("me", 0), soon()).unwrap();
        let claim = claim("me", 1);
        let late = InDoubt {
            not_after: smallvec![SETTLED, 7, SETTLED],
            ..claim.in_doubt(0)
        };
        quorum.note_open(&claim.visitor, &late);
        let mut in_doubt = claim.in_doubt(0);
        quorum.forget(&mut in_doubt);
        assert_eq!(in_doubt.not_after[..], [0, 7, 0]);
        assert!(quorum.spreads.lock().is_empty());
    }
}
