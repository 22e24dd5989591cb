//! The entries of the timer of a client, and the batches that its threads hand to one another.

use std::sync::Arc;
use std::time::Instant;

#[cfg(feature = "in-memory")]
use crossbeam_channel::Sender;

use crate::engine::hold::Hold;
use crate::engine::timer::Timed;

/// An entry of the timer.
#[derive(Debug)]
pub(super) enum Job {
    /// A hold is to be renewed.
    Renew(Arc<Hold>),
    /// The validity of a hold ends.
    End(Arc<Hold>),
    /// All holds are to be renewed now.
    RenewAll,
    /// Threads are to be started for which there was no room.
    Staff,
    /// All that fell due before this is to be done; the sender is dropped when it is.
    #[cfg(feature = "in-memory")]
    Mark(Sender<Never>),
}

/// The holds that the thread which looks at the timer hands to the one that renews.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) holds: Vec<Arc<Hold>>,
    /// Dropped when these and all batches before are renewed.
    #[cfg(feature = "in-memory")]
    pub(super) marks: Vec<Sender<Never>>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        #[cfg(feature = "in-memory")]
        if !self.marks.is_empty() {
            return false;
        }
        self.holds.is_empty()
    }

    pub(super) fn append(&mut self, more: Batch) {
        self.holds.extend(more.holds);
        #[cfg(feature = "in-memory")]
        self.marks.extend(more.marks);
    }
}

/// Is never sent: a channel of these tells its end alone.
#[cfg(feature = "in-memory")]
#[derive(Debug)]
pub(super) enum Never {}

impl Job {
    pub(super) fn hold(&self) -> Option<Arc<Hold>> {
        match self {
            Job::Renew(hold) | Job::End(hold) => Some(Arc::clone(hold)),
            _ => None,
        }
    }
}

impl Timed for Job {
    fn is_due_at(&self, due: Instant) -> bool {
        match self {
            Job::Renew(hold) | Job::End(hold) => hold.is_due_at(due),
            Job::RenewAll | Job::Staff => true,
            #[cfg(feature = "in-memory")]
            Job::Mark(_) => true,
        }
    }
}
