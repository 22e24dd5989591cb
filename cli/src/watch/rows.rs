//! Filters and sorts the table.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use super::state::{Hold, State, WatchedLock};
use super::view::{Selection, Sort};
use crate::escape::escape;
use crate::output::{holder, marked_job};

#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) lock: &'a WatchedLock,
    pub(super) hold: &'a Hold,
}

impl Row<'_> {
    /// Whether the lock is a mark of `run --once-per`.
    pub(super) fn is_mark(&self) -> bool {
        marked_job(self.name, &self.lock.info).is_some()
    }

    pub(super) fn selection(&self) -> Selection {
        Selection {
            name: Arc::clone(self.name),
            holder: self.hold.holder.clone(),
        }
    }
}

impl State {
    pub(super) fn rows(&self, now: Instant) -> Vec<Row<'_>> {
        let wanted = self.view.filter.to_lowercase();
        let matches = |row: &Row<'_>| {
            let has = |text: String| text.to_lowercase().contains(&wanted);
            wanted.is_empty() || has(escape(row.name)) || has(holder(&row.hold.holder))
        };
        let all = self.locks.iter().flat_map(|(name, lock)| {
            let holds = lock.holds.iter();
            holds.map(move |hold| Row { name, lock, hold })
        });
        let mut rows: Vec<Row<'_>> = all.filter(matches).collect();
        match self.view.sort {
            // The map is sorted by name.
            Sort::Name => {}
            Sort::Held => rows.sort_by_key(|row| row.hold.since),
            Sort::Expires => {
                rows.sort_by_key(|row| (row.lock.info.expires.is_none(), row.lock.left(now)));
            }
            Sort::Listening => rows.sort_by_key(|row| Reverse(row.lock.info.listening)),
        }
        rows
    }

    /// The cursor stays on its row as long as this row exists.
    pub(super) fn cursor(&self, rows: &[Row<'_>]) -> usize {
        let is_row = |row: &Row<'_>| {
            let (name, visitor) = (row.name, &row.hold.holder.visitor);
            self.view
                .row
                .as_ref()
                .is_some_and(|(of, by)| of == name && by == visitor)
        };
        let found = rows.iter().position(is_row);
        found.unwrap_or_else(|| self.view.at.min(rows.len().saturating_sub(1)))
    }
}
