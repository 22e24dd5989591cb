//! Which clients have used a lock on the present master: behind sentinels they do not return to an earlier one.
//!
//! A hold granted by a demoted master is excused, as the README excludes it, unless its client knew the new master for
//! a while: earlier requests may still be granted.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redlatch_world::scheduler::{self, Nanos};

use crate::sentinels::SENTINELS;
use crate::topology::{Kind, Replicated, SentinelFault};

#[derive(Debug, Default)]
struct Epochs {
    /// Whether no sentinel names a master that there never was.
    is_judged: bool,
    /// The longest time that a request may be in flight.
    grace: Nanos,
    /// By client, since when it knows the present master.
    known: BTreeMap<String, Nanos>,
    /// The master that each sentinel names.
    named: [usize; SENTINELS],
}

static EPOCHS: Mutex<Option<Epochs>> = Mutex::new(None);

fn epochs() -> MutexGuard<'static, Option<Epochs>> {
    EPOCHS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn begin(shape: &Replicated, command: Nanos) {
    let lies = |(_, _, trouble, _): &(_, _, SentinelFault, _)| *trouble == SentinelFault::Lies;
    *epochs() = Some(Epochs {
        is_judged: shape.kind == Kind::Sentinels && !shape.troubles.iter().any(lies),
        grace: 2 * command + scheduler::SECOND,
        ..Epochs::default()
    });
}

/// The part of a visitor that is its client; none of a token.
fn client_of(visitor: &str) -> Option<&str> {
    visitor.split_once(':').map(|(client, _)| client)
}

/// Another server is the master from now on.
pub(crate) fn turn() {
    epochs().iter_mut().for_each(|it| it.known.clear());
}

/// Notes the server that a sentinel names from now on.
pub(crate) fn note_named(sentinel: usize, server: usize) {
    epochs()
        .iter_mut()
        .for_each(|it| it.named[sentinel] = server);
}

/// Records that these visitors have locks on the present master.
pub(crate) fn note_known(visitors: impl Iterator<Item = String>) {
    if let Some(epochs) = &mut *epochs()
        && epochs.is_judged
    {
        let now = scheduler::now();
        for visitor in visitors {
            if let Some(client) = client_of(&visitor) {
                epochs.known.entry(client.to_owned()).or_insert(now);
            }
        }
    }
}

/// Whether this visitor, which has a lock on a demoted master, should have known the new one.
pub(crate) fn knows_better(server: usize, visitor: &str) -> bool {
    let epochs = epochs();
    let Some(epochs) = epochs.as_ref().filter(|epochs| epochs.is_judged) else {
        return false;
    };
    // Two sentinels together may return to an earlier master.
    let backers = epochs.named.iter().filter(|named| **named == server);
    let since = client_of(visitor).and_then(|client| epochs.known.get(client));
    let is_late = since.is_some_and(|since| scheduler::now() > since + epochs.grace);
    is_late && backers.count() < 2
}
