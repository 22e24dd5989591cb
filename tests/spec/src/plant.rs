//! Bugs of scripts, which the simulation plants and has to find.

use std::sync::OnceLock;

static PLANTED: OnceLock<String> = OnceLock::new();

/// Plants a bug of the scripts in this process, by its name.
pub fn plant(bug: &str) {
    PLANTED.get_or_init(|| bug.to_owned());
}

pub(crate) fn is_planted(bug: &str) -> bool {
    PLANTED.get().is_some_and(|planted| planted == bug)
}
