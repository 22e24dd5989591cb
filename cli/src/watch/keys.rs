//! Handles keys.

use std::sync::Arc;
use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::State;
use super::view::{Selection, ViewMode};

/// What the event loop has to do after a key.
#[derive(Debug)]
pub(super) enum Action {
    Nothing,
    Quit,
    Suspend,
    /// Another program may have written to the terminal.
    Redraw,
    Snapshot,
    /// Release this hold by force.
    EndHold(Selection),
}

const PAGE: usize = 10;

pub(super) fn press(state: &mut State, key: KeyEvent, now: Instant) -> Action {
    if key.kind == KeyEventKind::Release {
        return Action::Nothing;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Action::Quit,
            KeyCode::Char('z') => Action::Suspend,
            KeyCode::Char('l') => Action::Redraw,
            _ => Action::Nothing,
        };
    }
    state.view.notice = None;
    match state.view.mode.clone() {
        ViewMode::Table => in_table(state, key.code, now),
        ViewMode::Filter => in_filter(state, key.code),
        ViewMode::Inspect(selection) => in_inspect(state, key.code, selection),
        ViewMode::Ask(selection) => {
            state.view.mode = ViewMode::Table;
            match key.code {
                KeyCode::Char('y' | 'Y') => Action::EndHold(selection),
                _ => {
                    state.view.notice = Some(("nothing was released".to_owned(), now));
                    Action::Nothing
                }
            }
        }
    }
}

fn in_table(state: &mut State, code: KeyCode, now: Instant) -> Action {
    match code {
        KeyCode::Char('q') => return Action::Quit,
        KeyCode::Char('/') => state.view.mode = ViewMode::Filter,
        KeyCode::Esc => state.view.filter.clear(),
        KeyCode::Char('s') => state.view.sort = state.view.sort.next(),
        KeyCode::Char('p') => {
            state.view.is_paused = !state.view.is_paused;
            if !state.view.is_paused {
                return Action::Snapshot;
            }
        }
        KeyCode::Enter => {
            state.view.mode = selection(state, now).map_or(ViewMode::Table, ViewMode::Inspect)
        }
        KeyCode::Char('u') => {
            state.view.mode = selection(state, now).map_or(ViewMode::Table, ViewMode::Ask)
        }
        KeyCode::Down | KeyCode::Char('j') => go(state, now, |at| at + 1),
        KeyCode::Up | KeyCode::Char('k') => go(state, now, |at| at.saturating_sub(1)),
        KeyCode::PageDown | KeyCode::Char(' ') => go(state, now, |at| at + PAGE),
        KeyCode::PageUp => go(state, now, |at| at.saturating_sub(PAGE)),
        KeyCode::Home | KeyCode::Char('g') => go(state, now, |_| 0),
        KeyCode::End | KeyCode::Char('G') => go(state, now, |_| usize::MAX),
        _ => {}
    }
    Action::Nothing
}

fn in_filter(state: &mut State, code: KeyCode) -> Action {
    let view = &mut state.view;
    match code {
        KeyCode::Char(character) => view.filter.push(character),
        KeyCode::Backspace => drop(view.filter.pop()),
        KeyCode::Enter => view.mode = ViewMode::Table,
        KeyCode::Esc => {
            view.filter.clear();
            view.mode = ViewMode::Table;
        }
        _ => {}
    }
    Action::Nothing
}

fn in_inspect(state: &mut State, code: KeyCode, selection: Selection) -> Action {
    match code {
        KeyCode::Char('u') => state.view.mode = ViewMode::Ask(selection),
        KeyCode::Char('q') | KeyCode::Enter | KeyCode::Esc => state.view.mode = ViewMode::Table,
        _ => {}
    }
    Action::Nothing
}

fn selection(state: &State, now: Instant) -> Option<Selection> {
    let rows = state.rows(now);
    Some(rows.get(state.cursor(&rows))?.selection())
}

fn go(state: &mut State, now: Instant, to: fn(usize) -> usize) {
    let rows = state.rows(now);
    let at = to(state.cursor(&rows)).min(rows.len().saturating_sub(1));
    let row = rows
        .get(at)
        .map(|row| (Arc::clone(row.name), row.hold.holder.visitor.clone()));
    (state.view.at, state.view.row) = (at, row);
}
