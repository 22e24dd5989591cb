//! The line that tells a person what is waited for.

use std::io::{self, IsTerminal, Write};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use redlatch::Lock;

use crate::output::{holder, note, visible};

/// Shorter waits are nobody's concern.
const SOON: Duration = Duration::from_secs(1);

/// How often it is said where no line can be renewed.
const SELDOM: Duration = Duration::from_secs(60);

/// A wait that is told of until it ends.
pub(super) struct Waiting {
    ends: Option<Sender<()>>,
    teller: Option<JoinHandle<()>>,
}

impl Waiting {
    pub(super) fn begin(title: String, locks: Vec<Lock>) -> Waiting {
        let (ends, ended) = bounded(0);
        let tell = move || {
            let begun = Instant::now();
            let is_terminal = io::stderr().is_terminal();
            let mut pause = SOON;
            let mut is_told = false;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let line = line_of(&title, &locks, begun.elapsed());
                if is_terminal {
                    // The line before may have been longer.
                    let _ = write!(io::stderr(), "\r\u{1b}[K{line}");
                    is_told = true;
                } else {
                    note(&line);
                    pause = SELDOM;
                }
            }
            if is_told {
                let _ = write!(io::stderr(), "\r\u{1b}[K");
            }
        };
        // Without room for a thread nothing is told.
        let teller = thread::Builder::new()
            .name("redlatch-waits".to_owned())
            .spawn(tell);
        Waiting {
            ends: Some(ends),
            teller: teller.ok(),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(teller) = self.teller.take() {
            // It only writes; what it could not do is nobody's loss.
            let _ = teller.join();
        }
    }
}

fn line_of(title: &str, locks: &[Lock], waited: Duration) -> String {
    // One that cannot be asked now is waited for all the same.
    let holders = locks.iter().find_map(|lock| {
        let info = lock.describe().ok()?;
        info.holders.into_iter().next()
    });
    let held_by = match &holders {
        Some(it) => format!(", held by {}", holder(it)),
        None => String::new(),
    };
    let seconds = waited.as_secs();
    let title = visible(title);
    format!(
        "waiting for {title}{held_by}, {:02}:{:02}",
        seconds / 60,
        seconds % 60
    )
}
