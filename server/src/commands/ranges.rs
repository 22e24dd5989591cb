//! Ranges of indices and of scores.

use std::ops::Range;

use super::{Answer, Refused, Sorted};
use crate::number::double;

/// Returns the indices from `first` to `last`, both included. Negative arguments count from the end.
pub(super) fn places(length: usize, first: i64, last: i64) -> Range<usize> {
    let length = length as i64;
    let at = |place: i64| {
        if place < 0 {
            place.saturating_add(length)
        } else {
            place
        }
    };
    let begin = at(first).clamp(0, length);
    let end = at(last).saturating_add(1).clamp(begin, length);
    begin as usize..end as usize
}

/// Returns an index. A negative argument counts from the end. `None` if it is out of range.
pub(super) fn place(length: usize, place: i64) -> Option<usize> {
    let place = if place < 0 {
        place.checked_add(length as i64)?
    } else {
        place
    };
    usize::try_from(place).ok().filter(|place| *place < length)
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    score: f64,
    is_open: bool,
}

impl Bound {
    fn read(text: &[u8]) -> Answer<Bound> {
        let (number, is_open) = match text.split_first() {
            Some((b'(', number)) => (number, true),
            _ => (text, false),
        };
        // `strtod` parses an empty text as 0.
        let number = if number.is_empty() { b"0" } else { number };
        let score = double(number).ok_or_else(|| Refused::new("ERR min or max is not a float"))?;
        Ok(Bound { score, is_open })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Scores {
    least: Bound,
    most: Bound,
}

impl Scores {
    /// Parses bounds such as `5`, `(5` (exclusive) or `-inf`.
    pub(super) fn read(least: &[u8], most: &[u8]) -> Answer<Scores> {
        Ok(Scores {
            least: Bound::read(least)?,
            most: Bound::read(most)?,
        })
    }

    /// Returns the indices of the members whose scores are in the range.
    pub(super) fn places(self, members: &Sorted) -> Range<usize> {
        let Scores { least, most } = self;
        let is_before = |score: f64| score < least.score || least.is_open && score == least.score;
        let is_in = |score: f64| score < most.score || !most.is_open && score == most.score;
        let begin = members.partition_point(|(_, score)| is_before(score.get()));
        let end = members.partition_point(|(_, score)| is_in(score.get()));
        begin..end.max(begin)
    }
}
