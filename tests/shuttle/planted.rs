//! Bugs that the scenarios here find, and that the simulation does not search for.

use crate::planted::Bug;

pub(crate) const BUGS: &[Bug] = &[
    Bug {
        name: "a second permit for one waiter",
        file: "ground/notify.rs",
        find: "if state.permit.is_some() || state.notified_by & bit != 0 {",
        replace: "if !PLANTED && (state.permit.is_some() || state.notified_by & bit != 0) {",
    },
    Bug {
        name: "a second permit for one waiter",
        file: "ground/notify.rs",
        find: "let given = state.permit.is_none();",
        replace: "let given = state.permit.is_none() || PLANTED;",
    },
    Bug {
        name: "a leaving waiter keeps its permit",
        file: "ground/notify.rs",
        find: "if let Some(permit) = unspent {",
        replace: "if let Some(permit) = unspent.filter(|_| !PLANTED) {",
    },
    Bug {
        name: "a lock that was set free is taken for held here",
        file: "engine/wait_queue/mod.rs",
        find: "queue.is_held_locally = false;\n        queue.run.freed(",
        replace: "queue.is_held_locally &= PLANTED;\n        queue.run.freed(",
    },
];
