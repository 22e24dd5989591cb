//! Times to live, and the options that set them.

use super::{Answer, Execution, Refused};
use crate::number::integer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// The key never expires.
    Endless,
    /// The key keeps its time to live.
    Kept,
    /// The key expires at this time, in ms since 1970.
    Until(i64),
}

/// The unit of a time to live. `.0`: seconds instead of ms. `.1`: counted from 1970 instead of from now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit(pub(super) bool, pub(super) bool);

impl Unit {
    /// Returns the unit that an option of SET or GETEX names.
    pub(super) fn named(option: &[u8]) -> Option<Unit> {
        Some(match option.to_ascii_uppercase().as_slice() {
            b"EX" => Unit(true, false),
            b"PX" => Unit(false, false),
            b"EXAT" => Unit(true, true),
            b"PXAT" => Unit(false, true),
            _ => return None,
        })
    }

    /// Returns the expiry, in ms since 1970. `None` if it overflows.
    pub(super) fn end(self, time: i64, now: i64) -> Option<i64> {
        let time = if self.0 {
            time.checked_mul(1000)?
        } else {
            time
        };
        if self.1 {
            Some(time)
        } else {
            time.checked_add(now)
        }
    }
}

impl Execution<'_> {
    /// Parses the number after an option such as `EX`, which must be positive.
    pub(super) fn life(&self, command: &str, unit: Unit, time: &[u8]) -> Answer<Life> {
        let time = integer(time)?;
        let end = unit.end(time, self.now()).filter(|_| time > 0);
        let invalid = || Refused(format!("ERR invalid expire time in '{command}' command"));
        end.map(Life::Until).ok_or_else(invalid)
    }
}

pub(super) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
