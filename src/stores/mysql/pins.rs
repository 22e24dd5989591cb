//! Pins: rows of holds that a transaction of this process has locked.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use ::mysql::params;

use super::MySql;
use super::lock_table::{cause_of_loss, lease_of};
use super::session::{Session, row_wait};
use crate::ground::claim::Claim;
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::store::Holder;
use crate::stores::patience;

thread_local! {
    /// The rows that transactions of this thread have locked: the lock table, and the name. A transaction begins and ends on
    /// one thread.
    static PINS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

impl MySql {
    /// Fails if a transaction of the calling thread has this row locked, through any client: the thread would wait for
    /// itself.
    pub(crate) fn check_not_pinned_here(&self, name: &Arc<str>) -> Result<()> {
        let pin = self.pin_of(name);
        // A thread whose thread-local values are gone has no transaction.
        match PINS.try_with(|pins| pins.borrow().contains(&pin)) {
            Ok(true) => Err(Error::in_its_transaction(name)),
            _ => Ok(()),
        }
    }

    /// Begins a transaction and locks the row of a hold in it; `None` if the hold is gone.
    pub(crate) fn pin(&self, claim: &Claim, idle_limit: Duration) -> Result<Option<Session>> {
        // In an engine without transactions a pin would lock nothing.
        self.check_own(&self.tables.locks, &claim.name, self.deadline())?;
        let slot = self.pools.transaction_slot(patience(self.deadline()));
        let slot = slot.map_err(|error| self.error(&claim.name, error))?;
        let wait = row_wait(self.command_timeout);
        let mut session = Session::begin(self, &claim.name, None, Some(idle_limit), wait, slot)?;
        let params = params! { "r" => &*claim.name, "o" => claim.visitor.as_str() };
        let fences: Vec<u64> = session.query(&self.statements.pin, params)?;
        Ok((!fences.is_empty()).then_some(session))
    }

    /// Extends the lease of a pinned hold within its transaction. Returns whether the row is still ours.
    pub(crate) fn extend_pinned(&self, session: &mut Session, claim: &Claim) -> Result<bool> {
        let params = params! {
            "r" => &*claim.name, "o" => claim.visitor.as_str(), "us" => lease_of(claim)
        };
        Ok(session.execute(&self.statements.extend_pinned, params)?.0 > 0)
    }

    /// Finds out why a hold is lost.
    pub(crate) fn cause_of_loss(&self, claim: &Claim) -> Result<LossCause> {
        let found = self.holder(&claim.name, self.deadline())?;
        let is_other = |holder: &Holder| holder.visitor != claim.visitor.as_str();
        let found = found.filter(|found| found.holders.iter().all(is_other));
        Ok(cause_of_loss(found.as_ref()))
    }

    /// Notes that a transaction of the calling thread has locked the row.
    pub(crate) fn note_pinned(&self, name: &Arc<str>) {
        let _ = PINS.try_with(|pins| pins.borrow_mut().push(self.pin_of(name)));
    }

    /// Removes the note of [`MySql::note_pinned`].
    pub(crate) fn note_unpinned(&self, name: &Arc<str>) {
        let pin = self.pin_of(name);
        let _ = PINS.try_with(|pins| pins.borrow_mut().retain(|it| *it != pin));
    }

    fn pin_of(&self, name: &str) -> String {
        format!("{}/{name}", self.facts.area)
    }
}
