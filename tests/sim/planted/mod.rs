//! The bugs that are planted in the library, which the simulation has to find, and the scenarios of `tests/shuttle`.

mod engine;
mod quorum;
mod redis;
mod waiting;

/// A place where the source is changed, for a bug. A bug that needs several places has a row for each.
#[derive(Debug)]
pub(crate) struct Bug {
    /// What the bug is.
    pub(crate) name: &'static str,
    /// Below `src`.
    pub(crate) file: &'static str,
    /// The correct text, which is once in the file.
    pub(crate) find: &'static str,
    /// What stands there instead. `PLANTED` in it is whether the bug is planted in this run; without, it is correct, too.
    pub(crate) replace: &'static str,
}

/// All rows.
pub(crate) fn bugs() -> impl Iterator<Item = &'static Bug> {
    [engine::BUGS, waiting::BUGS, redis::BUGS, quorum::BUGS]
        .into_iter()
        .flatten()
}
