//! A progress bar on a terminal, elsewhere a line every two seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const WIDTH: u64 = 40;
const LINE_EVERY: Duration = Duration::from_secs(2);

pub(crate) struct Progress {
    items: u64,
    is_terminal: bool,
    last_line: Instant,
}

impl Progress {
    pub(crate) fn new(items: u64) -> Progress {
        Progress {
            items,
            is_terminal: io::stderr().is_terminal(),
            last_line: Instant::now(),
        }
    }

    pub(crate) fn show(&mut self, sold: u64) {
        let items = self.items;
        if self.is_terminal {
            let full = (sold * WIDTH / items.max(1)).min(WIDTH) as usize;
            let (bar, rest) = ("#".repeat(full), ".".repeat(WIDTH as usize - full));
            eprint!("\r[{bar}{rest}] {sold} of {items}");
            // An error only means that the bar is not drawn.
            let _ = io::stderr().flush();
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!("{sold} of {items}");
        }
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
