//! Bugs that the scenarios here find, and which the simulation does not look for.

use crate::planted::Bug;

pub(crate) const BUGS: &[Bug] = &[
    Bug {
        name: "a second permit for one waiter",
        file: "ground/notify.rs",
        find: "if state.permit.is_some() || state.heard & bit != 0 {",
        replace: "if !PLANTED && (state.permit.is_some() || state.heard & bit != 0) {",
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
    // Whether there is a queue is asked before its mutex is locked, so that one may begin in between.
    Bug {
        name: "a lock is set free beside its queue",
        file: "engine/wait_queue/mod.rs",
        find: r"
        let mut first = None;
        // Over both looks",
        replace: r"
        if PLANTED && !self.wait_queues.lock().contains_key(lock) {
            return self.resting.freed(lock, yields);
        }
        let mut first = None;
        // Over both looks",
    },
];
