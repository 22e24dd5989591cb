//! The visitor that the attempts of one wait have.

use crate::ground::claim::{Rules, VisitorId};

/// The visitor of a wait: one for all its attempts where a refused one leaves something in the store, else one for each,
/// so that an attempt can be withdrawn while the next one runs.
#[derive(Debug)]
pub(super) struct WaitVisitor {
    rules: &'static Rules,
    kept: Option<VisitorId>,
}

impl WaitVisitor {
    pub(super) fn new(rules: &'static Rules) -> WaitVisitor {
        WaitVisitor { rules, kept: None }
    }

    /// The visitor that all attempts have, where one has.
    pub(super) fn kept(&self) -> Option<&VisitorId> {
        self.kept.as_ref()
    }

    /// The visitor of the next attempt.
    pub(super) fn next(&mut self, make: impl FnOnce() -> VisitorId) -> VisitorId {
        let visitor = self.kept.take().unwrap_or_else(make);
        let is_kept = self.rules.places_in_store;
        self.kept = is_kept.then(|| visitor.clone());
        visitor
    }

    /// The visitor that has a place in the store, if one was asked for and is not retired.
    pub(super) fn take(&mut self) -> Option<VisitorId> {
        self.kept.take()
    }

    /// Never asks for this visitor again: to clear up after an attempt would withdraw a hold of it.
    pub(super) fn retire(&mut self) {
        self.kept = None;
    }
}
