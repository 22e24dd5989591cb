//! Chooses one of the changes that are compiled in. This file becomes a module of the changed source.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of the change that is made; 0 for none.
const CHANGE: &str = "REDLATCH_CHANGE";
/// The file to which the numbers of the changes go that are reached. No change is made then.
const REACHED: &str = "REDLATCH_REACHED";

const UNREAD: u32 = u32::MAX;
const RECORDS: u32 = u32::MAX - 1;

static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);

/// Whether this change is made.
pub(crate) fn changed(number: u32) -> bool {
    match CHOSEN.load(Ordering::Relaxed) {
        chosen if chosen < RECORDS => chosen == number,
        _ => is_chosen(number),
    }
}

/// Whether none of these changes is made.
pub(crate) fn none_of(numbers: &[u32]) -> bool {
    // All of them are reached.
    numbers.iter().filter(|number| changed(**number)).count() == 0
}

#[cold]
fn is_chosen(number: u32) -> bool {
    if CHOSEN.load(Ordering::Relaxed) == UNREAD {
        let named = || env::var(CHANGE).ok()?.parse().ok();
        let chosen = match env::var_os(REACHED) {
            Some(_) => RECORDS,
            None => named().unwrap_or(0),
        };
        CHOSEN.store(chosen, Ordering::Relaxed);
    }
    match CHOSEN.load(Ordering::Relaxed) {
        RECORDS => {
            record(number);
            false
        }
        chosen => chosen == number,
    }
}

/// Writes a number once, at once: a process may be killed. It keeps no file open, as tests count them.
fn record(number: u32) {
    const WORDS: usize = 1 << 10;
    static SEEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
    let bit = 1 << (number % 64);
    let word = &SEEN[number as usize / 64 % WORDS];
    if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return;
    }
    let path = env::var_os(REACHED).unwrap_or_default();
    let file = OpenOptions::new().create(true).append(true).open(path);
    // A change without a record is said not to be reached.
    let _ = file.and_then(|mut file| file.write_all(format!("{number}\n").as_bytes()));
}
