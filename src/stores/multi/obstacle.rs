//! The part that was in the way last.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::member::Part;
use super::{MultiStore, share};
use crate::ground::claim::LockId;
use crate::store::Refusal;

/// The place of the part that refused the last attempt; 0 also if none did.
#[derive(Debug, Default)]
pub(super) struct Obstacle(AtomicUsize);

impl Obstacle {
    pub(super) fn note(&self, place: usize) {
        self.0.store(place, Ordering::Relaxed);
    }
}

impl MultiStore {
    /// Returns the refusal of the part that refused the last attempt, if others would be taken before it and it is still
    /// held. To take those and to give them back would wake everybody else who waits, each of whom would do the same.
    pub(super) fn still_in_the_way(&self, deadline: Instant) -> Option<Refusal> {
        let place = self.obstacle.0.load(Ordering::Relaxed);
        // A quorum that cannot answer says that it may be held, which is an outage, and no refusal.
        let is_simple = |member: &&Part| !member.store.facts().is_composite;
        let member = self.members.get(place).filter(is_simple)?;
        if place == 0 {
            return None;
        }
        let by = share(deadline, self.members.len() + 2);
        obstacles(&member.lock)
            .into_iter()
            .flatten()
            .find_map(|lock| {
                // Where the answer is an error, the attempt itself says why.
                let holding = member.store.inspect(&lock, None, by).ok()?;
                holding.is_locked.then(|| Refusal {
                    retry_after: holding.remaining,
                    ..Refusal::default()
                })
            })
    }
}

/// The locks of which each is in the way of `lock` when somebody has it: other readers are in no reader's way.
pub(super) fn obstacles(lock: &LockId) -> [Option<LockId>; 2] {
    let rules = lock.kind.rules();
    let other = rules.side.map(|side| LockId {
        kind: side.other,
        name: lock.name.clone(),
    });
    [(!rules.is_shared).then(|| lock.clone()), other]
}
