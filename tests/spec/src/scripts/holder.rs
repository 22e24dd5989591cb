//! The holder of a reentrant lock.

use super::ANOTHER_TYPE;
use crate::commands::{Answer, Redis, Refused};
use crate::reply::Reply;

/// The holder of a lock.
pub(super) enum Holder {
    /// Nobody has it.
    Nobody,
    /// This field is its only one, and looks like a visitor with a count.
    Visitor(Vec<u8>),
    /// A hash that is no lock.
    NoLock,
}

/// Longer fields are not looked into.
const LONGEST: usize = 256;

/// Finds out who has the lock: a hash of one field `text:number` or `text:number:more`, and a count.
pub(super) fn holder_of(redis: &Redis<'_>, key: &[u8]) -> Answer<Holder> {
    let fields = match redis.hlen(key) {
        Ok(0) => return Ok(Holder::Nobody),
        Ok(2..) => return Ok(Holder::NoLock),
        // A user without the right to HLEN gets the names of all fields.
        Ok(1) | Err(_) => redis.hkeys(key)?,
    };
    let [field] = &*fields else {
        return Ok(match fields.len() {
            0 => Holder::Nobody,
            _ => Holder::NoLock,
        });
    };
    let is_visitor = field.len() > LONGEST || is_visitor(field);
    if is_visitor && is_count(&redis.hget(key, field)?.unwrap_or_default()) {
        return Ok(Holder::Visitor(field.clone()));
    }
    Ok(Holder::NoLock)
}

impl Holder {
    /// The refusal of what is no lock.
    pub(super) fn no_lock() -> Refused {
        Refused::new("WRONGTYPE this hash is no lock, or one of another kind")
    }

    /// Its words for somebody whose hold is gone.
    pub(super) fn told(self) -> Reply {
        match self {
            Holder::Nobody => Reply::text(""),
            Holder::Visitor(field) => Reply::text(super::begin(&field, 128)),
            Holder::NoLock => Reply::text(ANOTHER_TYPE),
        }
    }
}

/// Whether a field is to be freed by force: a long one only if its begin or its end looks like a visitor.
pub(super) fn may_be_freed(field: &[u8]) -> bool {
    field.len() <= LONGEST || {
        let (begin, end) = (&field[..LONGEST], &field[field.len() - LONGEST..]);
        is_visitor(end) || numbers(begin).any(|(_, rest)| !rest.is_empty())
    }
}

/// Whether somewhere behind the first sign stands a colon, digits, and the end or a colon and one more sign.
fn is_visitor(field: &[u8]) -> bool {
    numbers(field).any(|(is_end, rest)| is_end || !rest.is_empty())
}

/// Each number behind a colon: whether it ends the field, and what stands behind the colon that follows it.
fn numbers(field: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    let colons = (1..field.len()).filter(|at| field[*at] == b':');
    colons.filter_map(|at| {
        let rest = &field[at + 1..];
        let digits = rest.iter().take_while(|sign| sign.is_ascii_digit()).count();
        let behind = &rest[digits..];
        (digits > 0).then(|| {
            (
                behind.is_empty(),
                behind.strip_prefix(b":").unwrap_or_default(),
            )
        })
    })
}

fn is_count(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}
