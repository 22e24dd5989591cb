//! What the user has chosen to see.

use std::sync::Arc;
use std::time::Instant;

use redlatch::Holder;

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

#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) name: Arc<str>,
    pub(super) holder: Holder,
}

/// Where key presses go.
#[derive(Clone, Debug, Default)]
pub(super) enum ViewMode {
    #[default]
    Table,
    Filter,
    Inspect(Selection),
    /// Asks for confirmation before this hold is released.
    Ask(Selection),
}

#[derive(Default)]
pub(super) struct View {
    pub(super) mode: ViewMode,
    pub(super) filter: String,
    pub(super) sort: Sort,
    pub(super) is_paused: bool,
    /// The name and the visitor of the row under the cursor. `at` is the row's position.
    pub(super) row: Option<(Arc<str>, String)>,
    pub(super) at: usize,
    /// The result of the last action, and when it was first shown.
    pub(super) notice: Option<(String, Instant)>,
}
