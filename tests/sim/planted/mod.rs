//! The bugs that are planted in the library, which the simulation and the scenarios of `tests/shuttle` have to find.

mod engine;
mod quorum;
mod redis;
mod waiting;

/// A replacement of source text that plants a bug. A bug with several replacements has a row for each.
#[derive(Debug)]
pub(crate) struct Bug {
    /// The name of the bug.
    pub(crate) name: &'static str,
    /// Below `src`.
    pub(crate) file: &'static str,
    /// The correct text, which occurs once in the file.
    pub(crate) find: &'static str,
    /// The replacement. `PLANTED` in it tells whether the bug is planted in this run; without it the text is correct.
    pub(crate) replace: &'static str,
}

/// All rows.
pub(crate) fn bugs() -> impl Iterator<Item = &'static Bug> {
    [engine::BUGS, waiting::BUGS, redis::BUGS, quorum::BUGS]
        .into_iter()
        .flatten()
}
