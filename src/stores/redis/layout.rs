//! The row of each kind of lock: all that this store has to know of it, besides its scripts.

use crate::ground::claim::Kind;

/// The properties of locks of one kind in Redis.
pub(super) struct Layout {
    /// Whether a release publishes a message. Programs that share a layout without messages leave waiters to poll.
    pub(super) publishes: bool,
    /// Whether a first acquisition that was cut off is sent again: its field cannot be that of another hold of this
    /// client. A copy that got no answer may come after the release then, and has to be cleared up after.
    pub(super) repeats_acquisition: bool,
    /// The word by which the script of rights tries the commands of this kind.
    pub(super) rights: &'static str,
}

/// All kinds, in the order in which a script is looked for by its hash.
pub(super) const KINDS: [Kind; 2] = [Kind::Reentrant, Kind::Token];

impl Layout {
    pub(super) fn of(kind: Kind) -> &'static Layout {
        match kind {
            Kind::Reentrant => &Layout {
                publishes: true,
                repeats_acquisition: false,
                rights: "",
            },
            Kind::Token => &Layout {
                publishes: false,
                repeats_acquisition: true,
                rights: "token",
            },
        }
    }
}
