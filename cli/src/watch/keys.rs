//! What the keys do.

use std::sync::Arc;
use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::State;
use super::view::{Chosen, Mode};

/// What a key asks of the rest of the program.
#[derive(Debug)]
pub(super) enum Wish {
    Nothing,
    Quit,
    /// Leave the terminal to the shell for a while.
    Stop,
    /// Draw all of it, as others have drawn over it.
    Redraw,
    /// Look now.
    Look,
    /// End this hold.
    End(Chosen),
}

/// So many lines are a page.
const PAGE: usize = 10;

/// Takes a key in.
pub(super) fn press(state: &mut State, key: KeyEvent, now: Instant) -> Wish {
    if key.kind == KeyEventKind::Release {
        return Wish::Nothing;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Wish::Quit,
            KeyCode::Char('z') => Wish::Stop,
            KeyCode::Char('l') => Wish::Redraw,
            _ => Wish::Nothing,
        };
    }
    state.view.said = None;
    match state.view.mode.clone() {
        Mode::Table => in_table(state, key.code, now),
        Mode::Filter => in_filter(state, key.code),
        Mode::Inspect(chosen) => in_inspect(state, key.code, chosen),
        Mode::Ask(chosen) => {
            state.view.mode = Mode::Table;
            // Every other key is a no.
            match key.code {
                KeyCode::Char('y' | 'Y') => Wish::End(chosen),
                _ => {
                    state.view.said = Some(("nothing was ended".to_owned(), now));
                    Wish::Nothing
                }
            }
        }
    }
}

fn in_table(state: &mut State, code: KeyCode, now: Instant) -> Wish {
    match code {
        KeyCode::Char('q') => return Wish::Quit,
        KeyCode::Char('/') => state.view.mode = Mode::Filter,
        KeyCode::Esc => state.view.filter.clear(),
        KeyCode::Char('s') => state.view.sort = state.view.sort.next(),
        KeyCode::Char('p') => {
            state.view.is_paused = !state.view.is_paused;
            if !state.view.is_paused {
                return Wish::Look;
            }
        }
        KeyCode::Enter => state.view.mode = chosen(state, now).map_or(Mode::Table, Mode::Inspect),
        KeyCode::Char('u') => state.view.mode = chosen(state, now).map_or(Mode::Table, Mode::Ask),
        KeyCode::Down | KeyCode::Char('j') => go(state, now, |at| at + 1),
        KeyCode::Up | KeyCode::Char('k') => go(state, now, |at| at.saturating_sub(1)),
        KeyCode::PageDown | KeyCode::Char(' ') => go(state, now, |at| at + PAGE),
        KeyCode::PageUp => go(state, now, |at| at.saturating_sub(PAGE)),
        KeyCode::Home | KeyCode::Char('g') => go(state, now, |_| 0),
        KeyCode::End | KeyCode::Char('G') => go(state, now, |_| usize::MAX),
        _ => {}
    }
    Wish::Nothing
}

fn in_filter(state: &mut State, code: KeyCode) -> Wish {
    let view = &mut state.view;
    match code {
        KeyCode::Char(sign) => view.filter.push(sign),
        KeyCode::Backspace => drop(view.filter.pop()),
        KeyCode::Enter => view.mode = Mode::Table,
        KeyCode::Esc => {
            view.filter.clear();
            view.mode = Mode::Table;
        }
        _ => {}
    }
    Wish::Nothing
}

fn in_inspect(state: &mut State, code: KeyCode, chosen: Chosen) -> Wish {
    match code {
        KeyCode::Char('u') => state.view.mode = Mode::Ask(chosen),
        KeyCode::Char('q') | KeyCode::Enter | KeyCode::Esc => state.view.mode = Mode::Table,
        _ => {}
    }
    Wish::Nothing
}

/// The hold on which the cursor is.
fn chosen(state: &State, now: Instant) -> Option<Chosen> {
    let rows = state.rows(now);
    Some(rows.get(state.cursor(&rows))?.chosen())
}

/// Moves the cursor.
fn go(state: &mut State, now: Instant, to: fn(usize) -> usize) {
    let rows = state.rows(now);
    let at = to(state.cursor(&rows)).min(rows.len().saturating_sub(1));
    let row = rows
        .get(at)
        .map(|row| (Arc::clone(row.name), row.hold.holder.visitor.clone()));
    (state.view.at, state.view.row) = (at, row);
}
