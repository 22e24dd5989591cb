//! The look of an operator at locks in memory.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use super::world::{Entry, Sides, State};
use super::{Memory, NODE};
use crate::ground::claim::{Form, Kind, LockId};
use crate::ground::clock::BootInstant;
use crate::ground::error::Result;
use crate::store::{Holder, LockInfo, LockKind, Scope};

impl Memory {
    /// The state of one lock.
    pub(super) fn describe_lock(&self, lock: &LockId) -> Result<LockInfo> {
        let LockId { kind, name } = lock;
        let now = self.world.timeline.now();
        self.world.with(*kind, name, |state| {
            let found = match kind.rules().form {
                Form::ReadWrite => state.sides.get(name).map(|it| it.told(name, now)),
                Form::Hash | Form::Text => state.holds.get(name).map(|it| it.told(name, now)),
                Form::Number => None,
            };
            let found = found.filter(|info| !info.holders.is_empty());
            let free = || LockInfo::free(name, LockKind::of(*kind), NODE.into());
            LockInfo {
                listening: state.listening(name),
                ..found.unwrap_or_else(free)
            }
        })
    }

    /// All locks of this scope.
    pub(super) fn locks_in(&self, scope: &Scope) -> Result<Vec<LockInfo>> {
        let now = self.world.timeline.now();
        self.world.with_any(&scope.prefix, |state| {
            let is_wanted = |name: &str| name.starts_with(&*scope.prefix);
            let holds = state.holds.iter().filter(|(name, entry)| {
                is_wanted(name)
                    && now < entry.ends
                    && (scope.has_tokens || entry.kind != Kind::Token)
            });
            let holds = holds.map(|(name, entry)| entry.told(name, now));
            let sides = state
                .sides
                .iter()
                .filter(|(name, it)| is_wanted(name) && now < it.ends);
            let sides = sides.map(|(name, sides)| sides.told(name, now));
            let sides = sides.filter(|info| !info.holders.is_empty());
            let counters = state.counters.iter().filter(|(name, counter)| {
                let has_ended = counter.ends.is_some_and(|ends| ends <= now);
                scope.has_counters && is_wanted(name) && !has_ended
            });
            let counters = counters.map(|(name, counter)| LockInfo {
                available: Some(counter.count),
                ..LockInfo::free(name, LockKind::Counter, NODE.into())
            });
            let mut found: Vec<LockInfo> = holds.chain(sides).chain(counters).collect();
            for info in &mut found {
                info.listening = state.listening(&info.name);
            }
            found.sort_by(|one, other| one.name.cmp(&other.name));
            found
        })
    }
}

impl State {
    /// How many clients wait for a lock.
    fn listening(&self, name: &str) -> Option<u32> {
        let clients = self.clients.iter().filter_map(std::sync::Weak::upgrade);
        u32::try_from(clients.filter(|client| client.has_waiters(name)).count()).ok()
    }
}

impl Entry {
    fn told(&self, name: &Arc<str>, now: BootInstant) -> LockInfo {
        let holder = match self.kind {
            Kind::Token => Holder::of_token(self.visitor.as_str()),
            _ => Holder::of_field(self.visitor.as_str(), self.count),
        };
        LockInfo {
            holders: vec![holder],
            expires: Some(now.until(self.ends).max(Duration::from_millis(1))),
            ..LockInfo::free(name, LockKind::of(self.kind), NODE.into())
        }
    }
}

impl Sides {
    fn told(&self, name: &Arc<str>, now: BootInstant) -> LockInfo {
        let kind = match self.is_written {
            true => LockKind::Write,
            false => LockKind::Read,
        };
        let stand = self.holds.iter().filter(|hold| now < hold.ends);
        let holders = stand.map(|hold| Holder::of_field(hold.visitor.as_str(), hold.count));
        LockInfo {
            holders: holders.collect(),
            expires: Some(now.until(self.ends).max(Duration::from_millis(1))),
            ..LockInfo::free(name, kind, NODE.into())
        }
    }
}
