//! Styles of the screen.

use ratatui::style::{Color, Modifier, Style};

#[derive(Clone, Copy)]
pub(super) struct Paint {
    has_colour: bool,
}

impl Paint {
    pub(super) fn new(has_colour: bool) -> Paint {
        Paint { has_colour }
    }

    pub(super) fn of(self, color: Color) -> Style {
        match self.has_colour {
            true => Style::new().fg(color),
            false => Style::new(),
        }
    }

    pub(super) fn bold() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim() -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}
