//! How far it is: a bar on a terminal, elsewhere a line now and then.

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
            // A bar that is not drawn hurts nobody.
            let _ = io::stderr().flush();
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!("{sold} of {items}");
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
