//! Messages while redlatch waits for the lock.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use redlatch::Lock;

use crate::escape::escape;
use crate::output::{holder, note};
use crate::stderr;

/// A shorter wait prints nothing.
const FIRST_MESSAGE: Duration = Duration::from_secs(1);

/// The interval of messages if stderr is no terminal.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The sequence that clears the line of the terminal.
const CLEAR: &str = "\r\u{1b}[K";

const CLEAR_TIMEOUT: Duration = Duration::from_millis(250);

/// Prints messages until it is dropped.
pub(super) struct WaitProgress {
    /// The drop of this sender wakes the printing thread.
    _ends: Sender<()>,
    state: Arc<Mutex<WaitState>>,
}

#[derive(Default)]
struct WaitState {
    has_ended: bool,
    /// Whether the terminal shows a line that has to be cleared.
    is_shown: bool,
}

impl WaitProgress {
    pub(super) fn begin(title: String, locks: Vec<Lock>) -> WaitProgress {
        let (ends, ended) = bounded(0);
        let state = Arc::<Mutex<WaitState>>::default();
        let shared = Arc::clone(&state);
        let show = move || {
            let begun = Instant::now();
            let is_terminal = io::stderr().is_terminal();
            let mut pause = FIRST_MESSAGE;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                // If the server is slow, the wait may end during this query.
                let line = line_of(&title, &locks, begun.elapsed());
                let mut state = lock_state(&shared);
                if state.has_ended {
                    return;
                }
                if is_terminal {
                    stderr::print(format!("{CLEAR}{line}"));
                    state.is_shown = true;
                } else {
                    note(&line);
                    pause = LOG_INTERVAL;
                }
            }
        };
        // If the thread cannot be started, nothing is printed.
        let _ = thread::Builder::new()
            .name("redlatch-waits".to_owned())
            .spawn(show);
        WaitProgress { _ends: ends, state }
    }
}

impl Drop for WaitProgress {
    fn drop(&mut self) {
        let mut state = lock_state(&self.state);
        state.has_ended = true;
        if state.is_shown {
            stderr::print(CLEAR.to_owned());
            stderr::flush(CLEAR_TIMEOUT);
        }
    }
}

/// A panic cannot leave a partial state.
fn lock_state(state: &Mutex<WaitState>) -> MutexGuard<'_, WaitState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn line_of(title: &str, locks: &[Lock], waited: Duration) -> String {
    let holders = locks.iter().find_map(|lock| {
        let info = lock.describe().ok()?;
        info.holders.into_iter().next()
    });
    let held_by = match &holders {
        Some(it) => format!(", held by {}", holder(it)),
        None => String::new(),
    };
    let seconds = waited.as_secs();
    let title = escape(title);
    format!(
        "waiting for {title}{held_by}, {:02}:{:02}",
        seconds / 60,
        seconds % 60
    )
}
