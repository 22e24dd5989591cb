//! Bugs of the quorum of several servers.

use super::Bug;

pub(super) const BUGS: &[Bug] = &[
    // Nodes that granted an attempt without a majority, and did not reply to its release.
    Bug {
        name: "what was not undone is dropped",
        file: "stores/quorum/acquire.rs",
        find: "return self.refuse(claim, &tally, leftover);",
        replace: "return self.refuse(claim, &tally, leftover.filter(|_| !PLANTED));",
    },
    // It may lack acknowledged data of its master.
    Bug {
        name: "a promoted replica votes",
        file: "stores/quorum/quarantine.rs",
        find: "_ if identity.has_followed =>",
        replace: "_ if identity.has_followed && !PLANTED =>",
    },
    // The age in the server's reply is as of the reply, not of the request.
    Bug {
        name: "a quarantine counts from before the question",
        file: "stores/quorum/quarantine.rs",
        find: "Some((identity.told + left, QuarantineReason::IsNew))",
        replace: r"
                let from = if PLANTED { identity.asked } else { identity.told };
                Some((from + left, QuarantineReason::IsNew))",
    },
];
