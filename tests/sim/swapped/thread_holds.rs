//! The checker's view of the library: the holds of a thread, as that thread sees them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Owner;
use crate::ground::claim::Kind;
use crate::ground::loss::LossCause;

/// A hold at this moment, by the clock of the inspecting process.
#[derive(Clone, Debug)]
pub struct HoldView {
    /// The name of its lock, and for a read-write lock the side.
    pub name: String,
    /// Whether it is a token lock.
    pub is_token: bool,
    /// Its visitor id.
    pub visitor: String,
    /// Whether it is neither released nor known to be lost.
    pub is_held: bool,
    /// Whether it is known to be lost.
    pub is_lost: bool,
    /// Whether it is valid.
    pub is_valid: bool,
    /// How long it stays valid without a renewal.
    pub remaining: Duration,
    /// The number of levels.
    pub count: u32,
    /// The renewed lease, if there is one.
    pub renewed: Option<Duration>,
    /// Its fencing token, if it has one.
    pub fence: Option<u64>,
    /// Why it was lost, if it was.
    pub cause: Option<LossCause>,
}

/// A thread whose holds are inspected.
#[derive(Clone, Debug)]
pub struct WatchedThread(Weak<Owner>);

/// Initializes what all processes share, once before they are forked from this one.
pub fn warm_up() {
    for kind in [
        Kind::Reentrant,
        Kind::Token,
        Kind::Fenced,
        Kind::Latch,
        Kind::Permits,
        Kind::Read,
        Kind::Write,
        Kind::Fair,
    ] {
        let flaw = crate::stores::redis::flaw(kind, "lock", "lock");
        debug_assert!(flaw.is_none());
    }
}

/// Lets the holds of the calling thread be inspected from now on.
pub fn watch() -> WatchedThread {
    let me = Owner::current(std::process::id());
    WatchedThread(me.map_or_else(Weak::new, |me| Arc::downgrade(&me)))
}

/// The present holds of a thread of this library; `None` while it changes them.
pub fn holds_of(thread: &WatchedThread) -> Option<Vec<HoldView>> {
    let Some(owner) = thread.0.upgrade() else {
        return Some(Vec::new());
    };
    let keys: Vec<_> = {
        let stacks = owner.held.stacks.try_lock()?;
        stacks.stacks.keys().cloned().collect()
    };
    if keys.is_empty() {
        return Some(Vec::new());
    }
    // A locked mutex unwinds the checker, which must not wait.
    let look = || {
        let holds = keys.iter().filter_map(|key| owner.held.current(key));
        let seen = holds.map(|hold| HoldView {
            // Each side of a read-write lock separately.
            name: match hold.kind {
                Kind::Read => format!("{} read", hold.name),
                Kind::Write => format!("{} write", hold.name),
                _ => hold.name.as_ref().to_owned(),
            },
            is_token: hold.kind == Kind::Token,
            visitor: hold.visitor.as_str().to_owned(),
            is_held: hold.is_held(),
            is_lost: hold.loss_cause().is_some(),
            is_valid: hold.is_valid(),
            remaining: hold.remaining_validity(),
            count: hold.count(),
            renewed: hold.renewed_lease(),
            fence: hold.fence(),
            cause: hold.loss_cause(),
        });
        seen.collect()
    };
    catch_unwind(AssertUnwindSafe(look)).ok()
}
