//! How often what has happened, so that a world in which something never happens shows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

pub fn count(what: &'static str) {
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    *counts.entry(what).or_default() += 1;
}

/// All counts on one line: name, `=`, number, each with `; ` behind it.
pub fn line() -> String {
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut line = String::new();
    for (what, count) in &*counts {
        // A string takes it all.
        let _ = write!(line, "{what}={count}; ");
    }
    line
}
