use std::fmt;

use crate::ground::claim::{ID_LENGTH, VisitorId};

/// The id of a permit of a [`PermitSemaphore`](crate::PermitSemaphore): 16 bytes, as 32 hexadecimal digits.
///
/// Any process that knows the id can release the permit or change its lease, even a process that uses Redisson.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PermitId {
    pub(crate) visitor: VisitorId,
}

impl PermitId {
    /// Parses an id in the format that Redisson and [`PermitId::as_str`] write. Returns `None` if `text` is not 32
    /// hexadecimal digits.
    pub fn parse(text: &str) -> Option<PermitId> {
        let is_id = text.len() == ID_LENGTH && text.bytes().all(|it| it.is_ascii_hexdigit());
        is_id.then(|| PermitId {
            visitor: VisitorId::of_field(text.to_ascii_lowercase()),
        })
    }

    /// Returns the id as 32 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        self.visitor.as_str()
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
