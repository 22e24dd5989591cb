use std::fmt;
use std::sync::Arc;

use itoa::Buffer;

use crate::ground::claim::ID_LENGTH;
use crate::ground::random;

/// The id of one hold in the store. For most locks, the id is `client uuid:thread number:hold number`. For permits of a
/// semaphore, the number of permits and `*` precede this text. For a token lock, the id is a random token. For permits with
/// ids, the id has 32 hexadecimal digits for each permit.
///
/// An id belongs to one hold only. So a late request can affect only the hold for which it was sent. Redisson stores
/// `uuid:thread id` in the same place. Redisson only compares ids as text, so ids of both formats can coexist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VisitorId {
    field: Arc<str>,
}

impl VisitorId {
    pub(crate) fn new(client: &str, thread: u64, hold: u64) -> VisitorId {
        let (mut first, mut second) = (Buffer::new(), Buffer::new());
        let parts = [client, ":", first.format(thread), ":", second.format(hold)];
        VisitorId::of_field(parts.concat())
    }

    /// Appends the suffix with which Redisson marks writers.
    pub(super) fn writing(&self) -> VisitorId {
        VisitorId::of_field(format!("{}:write", self.field))
    }

    /// A random token of 20 letters and digits. The token has 119 random bits.
    pub(super) fn token() -> VisitorId {
        const SIGNS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut token = String::with_capacity(20);
        while token.len() < 20 {
            let random = random::uuid().into_bytes();
            // Byte 6 is not random, because it contains the UUID version. Of the 64 values of six bits, the last two are
            // skipped. So all 62 characters are equally likely.
            let signs = random.iter().enumerate().filter(|(at, _)| *at != 6);
            let signs = signs.filter_map(|(_, byte)| SIGNS.get(usize::from(byte & 63)));
            token.extend(signs.take(20 - token.len()).map(|sign| char::from(*sign)));
        }
        VisitorId::of_field(token)
    }

    pub(super) fn token_of_part(&self, part: usize) -> VisitorId {
        // A token contains no colon, in contrast to other ids.
        VisitorId::of_field(format!("{}-{part}", self.field.replace(':', "-")))
    }

    /// Puts the number of permits before the id, so that any process that releases the permits can read the number.
    pub(crate) fn of_permits(&self, permits: u32) -> VisitorId {
        VisitorId::of_field(format!("{permits}*{}", self.field))
    }

    pub(super) fn of_ids(permits: u32) -> VisitorId {
        let ids = (0..permits).map(|_| random::uuid().simple().to_string());
        VisitorId::of_field(ids.collect::<String>())
    }

    /// Splits an id that consists of permit ids. An id with `*` or `:` contains no permit ids, and is returned whole.
    pub(crate) fn owners(&self) -> impl Iterator<Item = VisitorId> {
        let length = match self.field.contains(['*', ':']) {
            true => self.field.len(),
            false => ID_LENGTH,
        };
        let starts = (0..self.field.len()).step_by(length.max(1));
        starts.filter_map(move |at| {
            let field = self.field.get(at..at + length)?;
            Some(VisitorId::of_field(field))
        })
    }

    pub(crate) fn of_field(field: impl Into<Arc<str>>) -> VisitorId {
        let field = field.into();
        VisitorId { field }
    }

    /// Returns the id as the store contains it.
    pub fn as_str(&self) -> &str {
        &self.field
    }
}

impl fmt::Display for VisitorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)
    }
}
