//! Counts of events, to detect worlds in which an event never happens.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

pub fn count(what: &'static str) {
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    *counts.entry(what).or_default() += 1;
}

/// All counts on one line: name, `=`, number, each followed by `; `.
pub fn line() -> String {
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut line = String::new();
    for (what, count) in &*counts {
        // Writing to a string cannot fail.
        let _ = write!(line, "{what}={count}; ");
    }
    line
}
