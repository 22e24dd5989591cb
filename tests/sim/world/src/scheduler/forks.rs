//! The child of a fork: a copy of the world in which one thread is left, and which may do nothing to the others.

use super::{Pace, core};

/// What a child does that it must not do; its process ends with this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// It waits for a thread that it does not have.
    Waits = 3,
    /// It sends something, or ends a connection.
    Sends = 4,
    /// It answers something else than that it is a child.
    Answers = 5,
}

/// Notes that this process is the child of a fork.
pub fn enter() {
    let mut core = core();
    core.is_forked = true;
    core.pace = Pace {
        switch: 0.0,
        ranks: false,
        jump: 0.0,
        longest_jump: 1,
    };
}

pub fn is_forked() -> bool {
    core().is_forked
}

/// Ends the child if it is about to do something to a connection.
pub fn check_connection() {
    if is_forked() {
        exit(Breach::Sends);
    }
}

pub fn exit(breach: Breach) -> ! {
    std::process::exit(breach as i32)
}
