//! KEYS and ARGV.

use crate::commands::{Answer, Refused};

/// The keys or the arguments of a script, counted from 1 as Lua does.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a>(pub &'a [&'a [u8]]);

impl<'a> Args<'a> {
    /// How many there are.
    pub fn count(self) -> usize {
        self.0.len()
    }

    /// The one at this place; nothing if there are fewer.
    pub fn find(self, place: usize) -> Option<&'a [u8]> {
        self.0.get(place.checked_sub(1)?).copied()
    }

    /// The one at this place; empty if there are fewer.
    pub fn text(self, place: usize) -> &'a [u8] {
        self.find(place).unwrap_or_default()
    }

    /// The one at this place, a whole number.
    ///
    /// # Errors
    ///
    /// A refusal if it is none: the library sends no others, so the words are not those of Lua.
    pub fn number(self, place: usize) -> Answer<i64> {
        let number = std::str::from_utf8(self.text(place)).ok();
        let number = number.and_then(|text| text.parse().ok());
        number.ok_or_else(|| Refused::new(format!("ERR argument {place} is no number")))
    }

    /// The last one, which is the number of the request.
    ///
    /// # Errors
    ///
    /// As [`Args::number`].
    pub fn request(self) -> Answer<i64> {
        self.number(self.count())
    }
}
