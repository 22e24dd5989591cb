//! Holds whose row a transaction of this process has locked.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use ::mysql::params;

use super::lock_table::lease_of;
use super::{MySql, Session};
use crate::ground::claim::{Claim, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::store::Store;

/// A row of a lock table that a transaction has.
#[derive(PartialEq, Eq)]
struct Pin {
    /// A forked thread has a copy of what its parent has pinned.
    pid: u32,
    place: Arc<str>,
    name: Arc<str>,
}

thread_local! {
    /// The rows that transactions of this thread have. Each begins and ends on one thread.
    static PINS: RefCell<Vec<Pin>> = const { RefCell::new(Vec::new()) };
}

/// What stands in the row of a lock that has an owner.
impl MySql {
    /// What is wrong with using the row of this hold from another connection than the one that has pinned it.
    pub(super) fn pinned_error(&self, lock: &Arc<str>, visitor: &VisitorId) -> Option<Error> {
        let is_pinned = self.pinned.lock().contains(visitor);
        is_pinned.then(|| Error::in_its_transaction(lock))
    }

    /// Fails if a transaction of the calling thread has this row, through whichever client: to wait for it would be to
    /// wait for oneself.
    pub(crate) fn check_not_pinned_here(&self, name: &Arc<str>) -> Result<()> {
        let is_here = |pins: &RefCell<Vec<Pin>>| {
            let pins = pins.borrow();
            !pins.is_empty() && pins.contains(&self.pin_of(name))
        };
        // A thread past its thread-local values has no transaction.
        match PINS.try_with(is_here) {
            Ok(true) => Err(Error::in_its_transaction(name)),
            _ => Ok(()),
        }
    }

    fn pin_of(&self, name: &Arc<str>) -> Pin {
        Pin {
            pid: std::process::id(),
            place: self.place(),
            name: Arc::clone(name),
        }
    }

    /// Puts the row of a hold under the protection of a transaction; `None` if the hold is gone.
    pub(crate) fn pin(&self, claim: &Claim, idle_limit: Duration) -> Result<Option<Session>> {
        // Without transactions in the table's engine a pin holds nothing.
        self.check_lock_table(&claim.name, self.deadline())?;
        let permit = self.pool.transaction_slot(self.deadline());
        let permit = permit.map_err(|fault| self.error(&claim.name, fault))?;
        let mut session = Session::begin(self, &claim.name, None, Some(idle_limit), permit)?;
        let params = params! { "r" => &*claim.name, "o" => claim.visitor.as_str() };
        let rows = session.select(&self.statements.pin, params)?;
        Ok((!rows.is_empty()).then_some(session))
    }

    /// Extends the lease of a pinned hold within its transaction. Returns whether the row is still ours.
    pub(crate) fn extend_pinned(&self, session: &mut Session, claim: &Claim) -> Result<bool> {
        let params = params! {
            "r" => &*claim.name, "o" => claim.visitor.as_str(), "us" => lease_of(claim)
        };
        Ok(session.change(&self.statements.extend_pinned, params)?.0 > 0)
    }

    /// Why the row of a hold is not its own any more.
    pub(crate) fn cause_of_loss(&self, claim: &Claim) -> Result<LossCause> {
        let deadline = self.deadline();
        let found = self.pool.with(deadline, |connection| {
            MySql::look(connection, &self.statements, &claim.name, deadline)
        });
        Ok(
            match found.map_err(|fault| self.lock_error(&claim.name, fault))? {
                Some(found) if found.owner != claim.visitor.as_str() && found.left.is_some() => {
                    LossCause::held_by(&found.owner)
                }
                _ => LossCause::Gone,
            },
        )
    }

    /// Notes that a transaction of the calling thread has the row of this visitor.
    pub(crate) fn note_pinned(&self, name: &Arc<str>, visitor: &VisitorId) {
        self.pinned.lock().insert(visitor.clone());
        let _ = PINS.try_with(|pins| pins.borrow_mut().push(self.pin_of(name)));
    }

    /// Notes that it has it no longer.
    pub(crate) fn note_unpinned(&self, name: &Arc<str>, visitor: &VisitorId) {
        self.pinned.lock().remove(visitor);
        let pin = self.pin_of(name);
        let _ = PINS.try_with(|pins| pins.borrow_mut().retain(|other| *other != pin));
    }
}
