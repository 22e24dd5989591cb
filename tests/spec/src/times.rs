//! The times that the keys of locks have in them, for those that let time pass by moving these.

use redlatch_server::{Keyspace, Score, Value};

/// No score that is a time in ms is so large, that of a permit without an end included.
const LEAST_MICROS: i64 = 1_000_000_000_000_000;

/// The times in a keyspace.
pub trait Times {
    /// Returns the times at which a key, or what a member of it stands for, ends.
    fn ends(&self) -> Vec<i64>;

    /// Moves all times: `later` ms later, or earlier if that is below zero.
    fn shift(&mut self, later: i64);
}

impl Times for Keyspace {
    fn ends(&self) -> Vec<i64> {
        let of_members = |value: &Value| match value {
            Value::Sorted(members) => {
                let times = members.iter().flat_map(|(_, score)| {
                    let silent = looked(*score).into_iter();
                    let silent =
                        silent.flat_map(|at| [1500, 1700, 10_000, 10_200].map(|it| at + it));
                    silent.chain([score.whole()])
                });
                times.collect()
            }
            Value::Hash(fields) => {
                let times = fields.iter().filter_map(|(_, text)| time_in(text));
                // Those who wait to write are forgotten some time after their ends, and waited for a while behind their arrival.
                let of_notes = times.flat_map(|(came, time)| {
                    let (patience, time) = (came.map(|came| came / 1000 + 3000), time.abs());
                    [Some(time), came.map(|_| time + 6000), patience]
                });
                of_notes.flatten().collect()
            }
            _ => Vec::new(),
        };
        let entries = self.iter().map(|(_, entry)| entry);
        entries
            .flat_map(move |entry| of_members(&entry.value).into_iter().chain(entry.expires))
            .collect()
    }

    fn shift(&mut self, later: i64) {
        for (_, entry) in self.iter_mut() {
            if let Some(end) = &mut entry.expires {
                *end += later;
            }
            // The scores of all sorted sets are times, large ones in µs.
            match &mut entry.value {
                Value::Sorted(members) => {
                    for (_, score) in members {
                        let time = score.whole();
                        let unit = if time > LEAST_MICROS { 1000 } else { 1 };
                        let moved = looked(*score).map(|at| with_look(time + later, at + later));
                        *score = moved.unwrap_or((time + later * unit).into());
                    }
                }
                Value::Hash(fields) => {
                    for (_, text) in fields {
                        *text = match time_in(text) {
                            Some((Some(came), time)) => {
                                format!("{}:{}", came + later * 1000, time + later).into_bytes()
                            }
                            Some((None, time)) => {
                                (time + later * time.signum()).to_string().into_bytes()
                            }
                            None => continue,
                        };
                    }
                }
                _ => {}
            }
        }
    }
}

/// When a waiter for a fair lock has looked, in ms, by its score; `None` if that is no such score, or it is not known.
pub fn looked(score: Score) -> Option<i64> {
    let tenths = (score.get().fract() * 2048.0) as i64;
    let since = (score.whole() / 100 - (tenths - 1)).rem_euclid(2047);
    (tenths > 0).then(|| (score.whole() / 100 - since) * 100)
}

/// The score of a waiter that counts as dead from `ends` on, and has looked at a time, both in ms.
pub fn with_look(ends: i64, looked: i64) -> Score {
    let tenths = (looked / 100).rem_euclid(2047) + 1;
    Score::new(ends as f64 + tenths as f64 / 2048.0).unwrap_or(ends.into())
}

/// The time in ms that the value of a field is or ends with, below zero if a sign marks it, and the time in µs before it, if there
/// is one.
pub fn time_in(text: &[u8]) -> Option<(Option<i64>, i64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (came, time) = match text.split_once(':') {
        Some((came, time)) => (Some(came.parse().ok()?), time),
        None => (None, text),
    };
    let time: i64 = time.parse().ok()?;
    // No count is so large, and no time in µs so small.
    (1_000_000_000_000..100_000_000_000_000)
        .contains(&time.abs())
        .then_some((came, time))
}
