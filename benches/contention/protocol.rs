//! The commands of worker processes and the results that they write. The package of the peers shares this file.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

/// The holder reports its unlock only after this time, so that the report does not disturb the measurement.
pub(crate) const OUT_OF_THE_WAY: Duration = Duration::from_millis(5);

/// A command to a worker process.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// All threads acquire and release repeatedly. Reply: the CPU time in ns, and the number of failed acquisitions;
    /// the results are in the file.
    Load(Load),
    /// Reply: nothing, once it is held; then when the release began.
    Hold(Duration),
    /// Acquires and releases at once. Reply: when the wait began and when it acquired.
    Wait,
}

#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// On the clock shared by all processes.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// How long each thread sleeps while it holds the lock.
    pub(crate) inside: Duration,
    pub(crate) file: String,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Load(rush) => write!(
                f,
                "rush {} {} {} {}",
                rush.start,
                rush.end,
                rush.inside.as_micros(),
                rush.file
            ),
            Order::Hold(hold) => write!(f, "hold {}", hold.as_micros()),
            Order::Wait => f.write_str("wait"),
        }
    }
}

impl Order {
    pub(crate) fn parse(line: &str) -> Order {
        let number = |word: &str| -> u64 { word.parse().expect("a number") };
        match line.splitn(5, ' ').collect::<Vec<_>>()[..] {
            ["rush", start, end, inside, file] => Order::Load(Load {
                start: number(start),
                end: number(end),
                inside: Duration::from_micros(number(inside)),
                file: file.to_owned(),
            }),
            ["hold", hold] => Order::Hold(Duration::from_micros(number(hold))),
            ["wait"] => Order::Wait,
            _ => panic!("no such order: {line}"),
        }
    }
}

/// One acquisition of one thread, in ns on the clock shared by all processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquisition {
    pub(crate) asked: u64,
    pub(crate) had: u64,
    /// Just before the release.
    pub(crate) left: u64,
}

/// The acquisitions of one thread.
pub(crate) type Notes = Vec<Acquisition>;

/// Capacity for the results of one thread, so that it never reallocates while it is measured.
pub(crate) fn notes() -> Notes {
    Vec::with_capacity(1 << 17)
}

pub(crate) fn write(file: &str, threads: &[Notes]) {
    let file = File::create(file).expect("a file for the notes");
    let mut file = BufWriter::new(file);
    let mut put = |number: u64| {
        file.write_all(&number.to_le_bytes())
            .expect("the notes are written");
    };
    for notes in threads {
        put(notes.len() as u64);
        for stay in notes {
            put(stay.asked);
            put(stay.had);
            put(stay.left);
        }
    }
    file.flush().expect("the notes are written");
}

pub(crate) fn read(file: &Path) -> Vec<Notes> {
    let bytes = fs::read(file).expect("the notes");
    let (words, _) = bytes.as_chunks();
    let mut numbers = words.iter().map(|word| u64::from_le_bytes(*word));
    let mut threads = Vec::new();
    while let Some(length) = numbers.next() {
        let mut next = || numbers.next().expect("a whole note");
        let notes = (0..length).map(|_| Acquisition {
            asked: next(),
            had: next(),
            left: next(),
        });
        threads.push(notes.collect());
    }
    threads
}
