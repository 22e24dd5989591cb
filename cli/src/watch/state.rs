//! What a watch knows: what two looks tell apart, and what is shown of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redlatch::{Holder, LockInfo};

use super::event::{Event, What};
use super::look::Look;
use super::view::View;
use crate::output::{marked_job, span};

/// So many events are kept.
const EVENTS: usize = 200;

/// So many holds of one lock are read at most; of more, not the same ones each time.
const MOST_HOLDS: usize = 64;

/// What a watch knows.
pub(crate) struct State {
    pub(super) place: String,
    pub(super) beginning: String,
    pub(super) interval: Duration,
    /// The lease of locks of which nobody says anything else.
    lease: Duration,
    pub(super) locks: BTreeMap<Arc<str>, Watched>,
    /// The last events, the newest behind.
    pub(super) events: VecDeque<Event>,
    /// The servers that do not answer, and since when.
    pub(super) silent: BTreeMap<String, Instant>,
    pub(super) round_trip: Option<Duration>,
    /// The holds that were ended from here, until a look shows it.
    ended_here: BTreeSet<String>,
    /// When it looked last.
    pub(super) looked: Option<Instant>,
    pub(super) has_colour: bool,
    pub(super) view: View,
}

/// A lock as it was seen last.
pub(super) struct Watched {
    pub(super) info: LockInfo,
    /// When that was, and when it was asked for.
    pub(super) seen: Instant,
    asked: Instant,
    pub(super) holds: Vec<Hold>,
}

/// A hold that has been seen.
#[derive(Clone)]
pub(super) struct Hold {
    /// All that was ever known of its holder.
    pub(super) holder: Holder,
    pub(super) since: Instant,
    /// The longest life that was seen, which is about its lease.
    pub(super) full: Duration,
    /// How many looks in a row have found no connection of its process, which had one before.
    pub(super) missed: u32,
}

impl Hold {
    /// Whether its process has no connection left; one that connects anew may be missed once.
    pub(super) fn is_disconnected(&self) -> bool {
        self.missed >= 2
    }
}

impl Watched {
    /// How long it lasts without a renewal.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.asked);
        self.info.expires.map(|left| left.saturating_sub(passed))
    }

    /// Whether it must have ended by its lease, and not by its holder.
    fn has_run_out(&self, hold: &Hold, now: Instant) -> bool {
        // It is renewed with two thirds left, so half of it means that no renewal came.
        let is_overdue = self.info.expires.is_some_and(|left| left < hold.full / 2);
        is_overdue && self.left(now).is_some_and(|left| left.is_zero())
    }
}

impl State {
    pub(super) fn new(place: &str, beginning: &str, interval: Duration, lease: Duration) -> State {
        State {
            place: place.to_owned(),
            beginning: beginning.to_owned(),
            interval,
            lease,
            locks: BTreeMap::new(),
            events: VecDeque::new(),
            silent: BTreeMap::new(),
            round_trip: None,
            ended_here: BTreeSet::new(),
            looked: None,
            has_colour: false,
            view: View::default(),
        }
    }

    /// Remembers that a hold was ended from here.
    pub(super) fn was_ended_here(&mut self, visitor: String) {
        self.ended_here.insert(visitor);
    }

    /// How many locks are waited for.
    pub(super) fn waited_for(&self) -> usize {
        let listening = |it: &&Watched| it.info.listening.unwrap_or_default() > 0;
        self.locks.values().filter(listening).count()
    }

    /// Takes a look in, and returns what has happened since the last one.
    pub(super) fn take(&mut self, look: Look) -> Vec<Event> {
        let mut news = News {
            look: &look,
            events: Vec::new(),
        };
        self.compare_servers(&mut news);
        let mut before = std::mem::take(&mut self.locks);
        for info in &look.locks {
            let old = before.remove(&info.name);
            let watched = self.compare(old.as_ref(), info, &mut news);
            if !watched.holds.is_empty() {
                self.locks.insert(Arc::clone(&info.name), watched);
            }
        }
        if look.is_whole {
            for old in before.values() {
                for hold in &old.holds {
                    self.end(old, hold, &mut news);
                }
            }
        } else {
            // A server that does not answer has freed nothing.
            self.locks.append(&mut before);
        }
        self.looked = Some(look.at);
        self.round_trip = look.round_trip;
        let events = news.events;
        // What is held at first stands in the table.
        let news = events.iter().filter(|event| event.what != What::Held);
        self.events.extend(news.cloned());
        let excess = self.events.len().saturating_sub(EVENTS);
        self.events.drain(..excess);
        events
    }

    fn compare_servers(&mut self, news: &mut News<'_>) {
        let look = news.look;
        for (node, message) in &look.silent {
            if !self.silent.contains_key(node) {
                self.silent.insert(node.clone(), look.at);
                news.tell_of_node(What::NodeLost, node, None, Some(message.clone()));
            }
        }
        self.silent.retain(|node, since| {
            let is_silent = look.silent.contains_key(node);
            if !is_silent {
                let lasted = look.at.saturating_duration_since(*since);
                news.tell_of_node(What::NodeBack, node, Some(lasted), None);
            }
            is_silent
        });
    }

    /// Compares two looks at one lock, and returns what is known of it now.
    fn compare(&mut self, old: Option<&Watched>, info: &LockInfo, news: &mut News<'_>) -> Watched {
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
                        news.tell(What::Disconnected, info, Some(&hold), None, news.look);
                    }
                    holds.push(hold);
                }
                None => {
                    let hold = Hold {
                        holder: holder.clone(),
                        since: news.look.at,
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
            self.tell_of_holds(old, &gone, &fresh, info, news);
        }
        Watched {
            info: info.clone(),
            seen: news.look.at,
            asked: news.look.begun(),
            holds,
        }
    }

    fn tell_of_holds(
        &mut self,
        old: Option<&Watched>,
        gone: &[&Hold],
        fresh: &[Hold],
        info: &LockInfo,
        news: &mut News<'_>,
    ) {
        if let (Some(old), [from], [to], 1) = (old, gone, fresh, info.holders.len()) {
            let is_forced = self.ended_here.contains(&from.holder.visitor);
            if !is_forced && !old.has_run_out(from, news.look.at) {
                news.tell(What::HandedOver, info, Some(from), Some(to), news.look);
                return;
            }
        }
        for hold in gone {
            if let Some(old) = old {
                self.end(old, hold, news);
            }
        }
        let what = match self.looked {
            Some(_) => What::Acquired,
            None => What::Held,
        };
        for hold in fresh {
            news.tell(what, info, None, Some(hold), news.look);
        }
    }

    /// Tells of the end of a hold.
    fn end(&mut self, old: &Watched, hold: &Hold, news: &mut News<'_>) {
        let what = if self.ended_here.remove(&hold.holder.visitor) {
            What::Forced
        } else if old.has_run_out(hold, news.look.at) {
            What::Expired
        } else {
            What::Ended
        };
        news.tell(what, &old.info, Some(hold), None, news.look);
    }

    /// The lease of a hold of which one moment was seen: one that is renewed is never below two thirds.
    fn likely_lease(&self, left: Duration) -> Duration {
        match left <= self.lease && left >= self.lease * 3 / 5 {
            true => self.lease,
            false => left,
        }
    }
}

/// A hold that goes on; what was known of its process stays known.
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

/// The events of one look.
struct News<'a> {
    look: &'a Look,
    events: Vec<Event>,
}

impl News<'_> {
    fn tell(
        &mut self,
        what: What,
        info: &LockInfo,
        from: Option<&Hold>,
        to: Option<&Hold>,
        look: &Look,
    ) {
        let message = marked_job(&info.name, info).map(|job| {
            let left = info.expires.filter(|_| to.is_some());
            let when = left.map_or(String::new(), |left| format!(" in {}", span(left)));
            format!("the mark of --once-per, {job} may run again{when}")
        });
        self.events.push(Event {
            clock: look.clock,
            what,
            name: Some(Arc::clone(&info.name)),
            node: info.node.to_string(),
            from: from.map(|it| it.holder.clone()),
            to: to.map(|it| it.holder.clone()),
            lasted: from.map(|it| look.at.saturating_duration_since(it.since)),
            message,
        });
    }

    fn tell_of_node(
        &mut self,
        what: What,
        node: &str,
        lasted: Option<Duration>,
        message: Option<String>,
    ) {
        self.events.push(Event {
            clock: self.look.clock,
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
