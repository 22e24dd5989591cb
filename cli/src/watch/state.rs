//! The state of a watch. Derives the events between two snapshots.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redlatch::{Holder, LockInfo};

use super::event::{Event, EventKind};
use super::snapshot::Snapshot;
use super::view::View;
use crate::output::{marked_job, span};

/// The number of events that are kept.
const EVENTS: usize = 200;

/// The maximum number of holds that the library returns for one lock. If there are more, each query may return other holds.
const MOST_HOLDS: usize = 64;

pub(crate) struct State {
    pub(super) title: String,
    pub(super) beginning: String,
    pub(super) interval: Duration,
    /// The assumed lease of a lock whose lease is unknown.
    lease: Duration,
    pub(super) locks: BTreeMap<Arc<str>, WatchedLock>,
    /// The latest events, oldest first.
    pub(super) events: VecDeque<Event>,
    /// The servers that do not reply, and since when.
    pub(super) unreachable: BTreeMap<String, Instant>,
    pub(super) round_trip: Option<Duration>,
    /// Holds that this watch has released by force, and whose end no snapshot has shown yet.
    forced: BTreeSet<String>,
    pub(super) last_snapshot: Option<Instant>,
    pub(super) has_colour: bool,
    pub(super) view: View,
}

pub(super) struct WatchedLock {
    pub(super) info: LockInfo,
    /// When the snapshot ended. `asked` is when it began.
    pub(super) seen: Instant,
    asked: Instant,
    pub(super) holds: Vec<Hold>,
}

#[derive(Clone)]
pub(super) struct Hold {
    /// The holder, with details from earlier snapshots.
    pub(super) holder: Holder,
    pub(super) since: Instant,
    /// The longest remaining lease that was seen, an estimate of the lease.
    pub(super) full: Duration,
    /// How many snapshots in a row show no connection of the holder, after an earlier snapshot showed a connection.
    pub(super) missed: u32,
}

impl Hold {
    /// Whether the holder has no connection. A single snapshot may have met a reconnect.
    pub(super) fn is_disconnected(&self) -> bool {
        self.missed >= 2
    }
}

impl WatchedLock {
    /// Returns the remaining lease, if no renewal followed the snapshot.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.asked);
        self.info.expires.map(|left| left.saturating_sub(passed))
    }

    /// Whether the hold has ended by its expiry, not by a release.
    fn has_run_out(&self, hold: &Hold, now: Instant) -> bool {
        // A renewal comes when two thirds of the lease are left. If less than half is left, no renewal came.
        let is_overdue = self.info.expires.is_some_and(|left| left < hold.full / 2);
        is_overdue && self.left(now).is_some_and(|left| left.is_zero())
    }
}

impl State {
    pub(super) fn new(title: &str, beginning: &str, interval: Duration, lease: Duration) -> State {
        State {
            title: title.to_owned(),
            beginning: beginning.to_owned(),
            interval,
            lease,
            locks: BTreeMap::new(),
            events: VecDeque::new(),
            unreachable: BTreeMap::new(),
            round_trip: None,
            forced: BTreeSet::new(),
            last_snapshot: None,
            has_colour: false,
            view: View::default(),
        }
    }

    pub(super) fn record_forced(&mut self, visitor: String) {
        self.forced.insert(visitor);
    }

    pub(super) fn contended_locks(&self) -> usize {
        let listening = |it: &&WatchedLock| it.info.listening.unwrap_or_default() > 0;
        self.locks.values().filter(listening).count()
    }

    /// Returns the events since the previous snapshot.
    pub(super) fn apply(&mut self, snapshot: Snapshot) -> Vec<Event> {
        let mut changes = Changes {
            snapshot: &snapshot,
            events: Vec::new(),
        };
        self.compare_servers(&mut changes);
        let mut before = std::mem::take(&mut self.locks);
        for info in &snapshot.locks {
            let old = before.remove(&info.name);
            let watched = self.compare(old.as_ref(), info, &mut changes);
            if !watched.holds.is_empty() {
                self.locks.insert(Arc::clone(&info.name), watched);
            }
        }
        if snapshot.is_complete {
            for old in before.values() {
                for hold in &old.holds {
                    self.end(old, hold, &mut changes);
                }
            }
        } else {
            // A missing lock may be on an unreachable server, so no lock is removed.
            self.locks.append(&mut before);
        }
        self.last_snapshot = Some(snapshot.at);
        self.round_trip = snapshot.round_trip;
        let events = changes.events;
        // The table shows the holds of the first snapshot, so they are no events.
        let changes = events.iter().filter(|event| event.what != EventKind::Held);
        self.events.extend(changes.cloned());
        let excess = self.events.len().saturating_sub(EVENTS);
        self.events.drain(..excess);
        events
    }

    fn compare_servers(&mut self, changes: &mut Changes<'_>) {
        let snapshot = changes.snapshot;
        for (node, message) in &snapshot.unreachable {
            if !self.unreachable.contains_key(node) {
                self.unreachable.insert(node.clone(), snapshot.at);
                changes.push_node_event(EventKind::NodeLost, node, None, Some(message.clone()));
            }
        }
        self.unreachable.retain(|node, since| {
            let is_unreachable = snapshot.unreachable.contains_key(node);
            if !is_unreachable {
                let lasted = snapshot.at.saturating_duration_since(*since);
                changes.push_node_event(EventKind::NodeBack, node, Some(lasted), None);
            }
            is_unreachable
        });
    }

    fn compare(
        &mut self,
        old: Option<&WatchedLock>,
        info: &LockInfo,
        changes: &mut Changes<'_>,
    ) -> WatchedLock {
        let none = Vec::new();
        let before = old.map_or(&none, |old| &old.holds);
        let mut holds = Vec::with_capacity(info.holders.len());
        let mut fresh = Vec::new();
        for holder in &info.holders {
            let known = before.iter().find(|it| it.holder.visitor == holder.visitor);
            let left = info.expires.unwrap_or_default();
            match known {
                Some(known) => {
                    let hold = still(known, holder, left);
                    let is_mark = marked_job(&info.name, info).is_some();
                    if hold.is_disconnected() && !known.is_disconnected() && !is_mark {
                        changes.push_event(EventKind::Disconnected, info, Some(&hold), None);
                    }
                    holds.push(hold);
                }
                None => {
                    let hold = Hold {
                        holder: holder.clone(),
                        since: changes.snapshot.at,
                        full: self.likely_lease(left),
                        missed: 0,
                    };
                    fresh.push(hold.clone());
                    holds.push(hold);
                }
            }
        }
        let is_there = |hold: &&Hold| {
            let mut holders = info.holders.iter();
            holders.any(|it| it.visitor == hold.holder.visitor)
        };
        let gone: Vec<&Hold> = before.iter().filter(|it| !is_there(it)).collect();
        if before.len().max(holds.len()) < MOST_HOLDS || old.is_none() {
            self.push_hold_events(old, &gone, &fresh, info, changes);
        }
        WatchedLock {
            info: info.clone(),
            seen: changes.snapshot.at,
            asked: changes.snapshot.begun(),
            holds,
        }
    }

    fn push_hold_events(
        &mut self,
        old: Option<&WatchedLock>,
        gone: &[&Hold],
        fresh: &[Hold],
        info: &LockInfo,
        changes: &mut Changes<'_>,
    ) {
        if let (Some(old), [from], [to], 1) = (old, gone, fresh, info.holders.len()) {
            let is_forced = self.forced.contains(&from.holder.visitor);
            if !is_forced && !old.has_run_out(from, changes.snapshot.at) {
                changes.push_event(EventKind::HandedOver, info, Some(from), Some(to));
                return;
            }
        }
        for hold in gone {
            if let Some(old) = old {
                self.end(old, hold, changes);
            }
        }
        let what = match self.last_snapshot {
            Some(_) => EventKind::Acquired,
            None => EventKind::Held,
        };
        for hold in fresh {
            changes.push_event(what, info, None, Some(hold));
        }
    }

    fn end(&mut self, old: &WatchedLock, hold: &Hold, changes: &mut Changes<'_>) {
        let what = if self.forced.remove(&hold.holder.visitor) {
            EventKind::Forced
        } else if old.has_run_out(hold, changes.snapshot.at) {
            EventKind::Expired
        } else {
            EventKind::Ended
        };
        changes.push_event(what, &old.info, Some(hold), None);
    }

    /// Estimates the lease from one snapshot: a hold that is renewed has at least about two thirds of it left.
    fn likely_lease(&self, left: Duration) -> Duration {
        match left <= self.lease && left >= self.lease * 3 / 5 {
            true => self.lease,
            false => left,
        }
    }
}

/// A hold that continues keeps the known details of its process.
fn still(known: &Hold, holder: &Holder, left: Duration) -> Hold {
    let mut hold = Hold {
        holder: holder.clone(),
        since: known.since,
        full: known.full.max(left),
        missed: 0,
    };
    if holder.address.is_none() && known.holder.address.is_some() {
        hold.holder.address.clone_from(&known.holder.address);
        hold.holder.host.clone_from(&known.holder.host);
        hold.holder.pid = known.holder.pid;
        hold.missed = known.missed.saturating_add(1);
    }
    hold
}

struct Changes<'a> {
    snapshot: &'a Snapshot,
    events: Vec<Event>,
}

impl Changes<'_> {
    fn push_event(
        &mut self,
        what: EventKind,
        info: &LockInfo,
        from: Option<&Hold>,
        to: Option<&Hold>,
    ) {
        let message = marked_job(&info.name, info).map(|job| {
            let left = info.expires.filter(|_| to.is_some());
            let when = left.map_or(String::new(), |left| format!(" in {}", span(left)));
            format!("mark of --once-per; {job} may run again{when}")
        });
        self.events.push(Event {
            clock: self.snapshot.clock,
            what,
            name: Some(Arc::clone(&info.name)),
            node: info.node.to_string(),
            from: from.map(|it| it.holder.clone()),
            to: to.map(|it| it.holder.clone()),
            lasted: from.map(|it| self.snapshot.at.saturating_duration_since(it.since)),
            message,
        });
    }

    fn push_node_event(
        &mut self,
        what: EventKind,
        node: &str,
        lasted: Option<Duration>,
        message: Option<String>,
    ) {
        self.events.push(Event {
            clock: self.snapshot.clock,
            what,
            name: None,
            node: node.to_owned(),
            from: None,
            to: None,
            lasted,
            message,
        });
    }
}
