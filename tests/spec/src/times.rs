//! The times that the keys of locks have in them, for those that let time pass by moving these.

use redlatch_server::{Keyspace, Score, Value};

/// No score that is a time in ms is so large, that of a permit without an end included.
const LEAST_MICROS: i64 = 1_000_000_000_000_000;

/// The times in a keyspace.
pub trait Times {
    /// Moves all times: `later` ms later, or earlier if that is below zero.
    fn shift(&mut self, later: i64);
}

impl Times for Keyspace {
    fn shift(&mut self, later: i64) {
        for (_, entry) in self.iter_mut() {
            if let Some(end) = &mut entry.expires {
                *end += later;
            }
            // The scores of all sorted sets are times, large ones in µs.
            if let Value::Sorted(members) = &mut entry.value {
                for (_, score) in members {
                    let time = score.whole();
                    let unit = if time > LEAST_MICROS { 1000 } else { 1 };
                    // One that stands before all others has no time.
                    let moved = if time == 0 { 0 } else { time + later * unit };
                    let looked = looked(*score).map(|at| with_look(moved, at + later));
                    *score = looked.unwrap_or(moved.into());
                }
            }
        }
    }
}

/// When one that waits has looked, in ms, by its score, or some multiple of the time that fits into one before that; `None` if that
/// is no such score, or it is not known.
pub fn looked(score: Score) -> Option<i64> {
    let tenths = (score.get().fract() * 2048.0) as i64;
    let since = (score.whole() / 100 - (tenths - 1)).rem_euclid(2047);
    (tenths > 0).then(|| (score.whole() / 100 - since) * 100)
}

/// The score of one that waits with this time, and has looked at the other, both in ms.
pub fn with_look(time: i64, looked: i64) -> Score {
    let tenths = (looked / 100).rem_euclid(2047) + 1;
    Score::new(time as f64 + tenths as f64 / 2048.0).unwrap_or(time.into())
}
