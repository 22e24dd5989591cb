//! The events as lines, for logs and programs.

use std::thread;

use super::Settings;
use super::event::instant;
use super::look::{Look, look};
use super::state::State;
use crate::connect::Place;
use crate::errors::Failure;
use crate::output::{json, text};

/// Prints events until the output is closed.
pub(super) fn run(
    place: &Place,
    mut state: State,
    first: Look,
    settings: &Settings,
) -> Result<(), Failure> {
    let mut next = Some(first);
    loop {
        let look = match next.take() {
            Some(first) => first,
            None => look(place, &settings.beginning)?,
        };
        let pause = settings.pause_after(&look);
        for event in state.take(look) {
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
