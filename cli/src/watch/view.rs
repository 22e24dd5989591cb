//! Which of the locks are shown, and what is asked about them.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use redlatch::Holder;

use super::state::{Hold, State, Watched};
use crate::output::{holder, visible};

/// The order of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    Held,
    Expires,
    Listening,
}

impl Sort {
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Name => Sort::Held,
            Sort::Held => Sort::Expires,
            Sort::Expires => Sort::Listening,
            Sort::Listening => Sort::Name,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Held => "held",
            Sort::Expires => "expires",
            Sort::Listening => "listening",
        }
    }
}

/// One hold of one lock.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) name: Arc<str>,
    pub(super) holder: Holder,
}

/// What the keys go to.
#[derive(Clone, Debug, Default)]
pub(super) enum Mode {
    #[default]
    Table,
    /// The filter is being typed.
    Filter,
    /// One hold is shown in full.
    Inspect(Chosen),
    /// Whether this hold shall end is asked.
    Ask(Chosen),
}

/// How the locks are shown.
#[derive(Default)]
pub(super) struct View {
    pub(super) mode: Mode,
    pub(super) filter: String,
    pub(super) sort: Sort,
    pub(super) is_paused: bool,
    /// The name and the visitor of the row on which the cursor is, and where that was.
    pub(super) row: Option<(Arc<str>, String)>,
    pub(super) at: usize,
    /// What became of the last request, and when that was said.
    pub(super) said: Option<(String, Instant)>,
}

/// A line of the table.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) lock: &'a Watched,
    pub(super) hold: &'a Hold,
}

impl Row<'_> {
    pub(super) fn chosen(&self) -> Chosen {
        Chosen {
            name: Arc::clone(self.name),
            holder: self.hold.holder.clone(),
        }
    }
}

impl State {
    /// The lines of the table, in its order.
    pub(super) fn rows(&self, now: Instant) -> Vec<Row<'_>> {
        let wanted = self.view.filter.to_lowercase();
        let matches = |row: &Row<'_>| {
            let has = |text: String| text.to_lowercase().contains(&wanted);
            wanted.is_empty() || has(visible(row.name)) || has(holder(&row.hold.holder))
        };
        let all = self.locks.iter().flat_map(|(name, lock)| {
            let holds = lock.holds.iter();
            holds.map(move |hold| Row { name, lock, hold })
        });
        let mut rows: Vec<Row<'_>> = all.filter(matches).collect();
        match self.view.sort {
            // They are kept so.
            Sort::Name => {}
            Sort::Held => rows.sort_by_key(|row| row.hold.since),
            Sort::Expires => {
                rows.sort_by_key(|row| (row.lock.info.expires.is_none(), row.lock.left(now)));
            }
            Sort::Listening => rows.sort_by_key(|row| Reverse(row.lock.info.listening)),
        }
        rows
    }

    /// The place of the cursor, which stays on its row as long as that is there.
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
