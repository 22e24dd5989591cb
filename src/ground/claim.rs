//! Who asks for what: the visitor and its claim. Plain data that stores, watchdog and log lines share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The id of one hold in the store: `client uuid:thread number:hold number`; for a token lock its random token.
///
/// An id belongs to one hold and never to a second one, so that a request that arrives late can only touch the hold it
/// was sent for. Redisson uses the same field for `uuid:thread id` and compares it as text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VisitorId {
    field: Arc<str>,
}

impl VisitorId {
    pub(crate) fn new(client: &str, thread: u64, hold: u64) -> VisitorId {
        // Without the machinery of `format!`, which takes twice as long: it stands in the way of every acquisition.
        let parts = [client, ":", &thread.to_string(), ":", &hold.to_string()];
        VisitorId {
            field: parts.concat().into(),
        }
    }

    /// A random token of 20 bytes, as the Redis documentation has it: letters and digits, 119 bits of chance.
    fn token() -> VisitorId {
        const SIGNS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut token = String::with_capacity(20);
        while token.len() < 20 {
            let random = uuid::Uuid::new_v4().into_bytes();
            // Byte 6 has the version in it. What lies beyond the signs is left out, so that all are equally likely.
            let signs = random.iter().enumerate().filter(|(at, _)| *at != 6);
            let signs = signs.filter_map(|(_, byte)| SIGNS.get(usize::from(byte & 63)));
            token.extend(signs.take(20 - token.len()).map(|sign| char::from(*sign)));
        }
        VisitorId {
            field: token.into(),
        }
    }

    /// The token of part `part` of a hold that is made of several, which no other part and no other hold has.
    pub(crate) fn token_of_part(&self, part: usize) -> VisitorId {
        // A token has no colon.
        VisitorId {
            field: format!("{}-{part}", self.field.replace(':', "-")).into(),
        }
    }

    /// Returns the id in the form that it has in the store.
    pub fn as_str(&self) -> &str {
        &self.field
    }
}

impl fmt::Display for VisitorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)
    }
}

impl fmt::Debug for VisitorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VisitorId({})", self.field)
    }
}

/// The rules of a lock, and how it stands in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Entered again by its holder; in Redis Redisson's hash.
    #[default]
    Reentrant,
    /// Entered once; in Redis a string that holds the token of its holder.
    Token,
}

impl Kind {
    /// The identity of a hold that is about to begin.
    pub(crate) fn visitor(self, client: &str, thread: u64, hold: u64) -> VisitorId {
        match self {
            Kind::Reentrant => VisitorId::new(client, thread, hold),
            Kind::Token => VisitorId::token(),
        }
    }

    pub(crate) fn is_reentrant(self) -> bool {
        self == Kind::Reentrant
    }
}

/// What one visitor wants of the store, or has there.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) kind: Kind,
    /// The name of the lock, prefix included.
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// The hold count as this process knows it; 0 before a hold begins.
    pub(crate) count: u32,
    /// How long the hold is to last, counted from the send: the latest end that any live lease of it counts on. Where the
    /// hold is given back, how long it may last in the store if that does not get there.
    pub(crate) lease: Duration,
}
