//! How the locks are shown, and what the keys go to.

use std::sync::Arc;
use std::time::Instant;

use redlatch::Holder;

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
pub(super) struct Selection {
    pub(super) name: Arc<str>,
    pub(super) holder: Holder,
}

/// What the keys go to.
#[derive(Clone, Debug, Default)]
pub(super) enum ViewMode {
    #[default]
    Table,
    /// The filter is being typed.
    Filter,
    /// One hold is shown in full.
    Inspect(Selection),
    /// Whether this hold shall end is asked.
    Ask(Selection),
}

/// How the locks are shown.
#[derive(Default)]
pub(super) struct View {
    pub(super) mode: ViewMode,
    pub(super) filter: String,
    pub(super) sort: Sort,
    pub(super) is_paused: bool,
    /// The name and the visitor of the row on which the cursor is, and where that was.
    pub(super) row: Option<(Arc<str>, String)>,
    pub(super) at: usize,
    /// What became of the last request, and when that was said.
    pub(super) notice: Option<(String, Instant)>,
}
