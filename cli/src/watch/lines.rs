//! Prints events as lines, for logs and programs.

use std::thread;

use super::Settings;
use super::event::instant;
use super::snapshot::{Snapshot, take};
use super::state::State;
use crate::connect::Backend;
use crate::errors::Failure;
use crate::output::{json, text};

/// Prints events until the reader closes the output.
pub(super) fn run(
    backend: &Backend,
    mut state: State,
    first: Snapshot,
    settings: &Settings,
) -> Result<(), Failure> {
    let mut next = Some(first);
    loop {
        let snapshot = match next.take() {
            Some(first) => first,
            None => take(backend, &settings.beginning)?,
        };
        let pause = settings.pause_after(&snapshot);
        for event in state.apply(snapshot) {
            if settings.is_json {
                json(&event.object())?;
                continue;
            }
            let line = format!("{} {}", instant(event.clock), event.words());
            match settings.has_colour && event.is_bad() {
                true => text(&format!("\u{1b}[31m{line}\u{1b}[0m"))?,
                false => text(&line)?,
            }
        }
        thread::sleep(pause);
    }
}
