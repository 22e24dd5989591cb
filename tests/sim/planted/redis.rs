//! Bugs of the store on Redis, except for its scripts.

use super::Bug;

pub(super) const BUGS: &[Bug] = &[
    // A batch under a hold: the script that runs it has to check the hold.
    Bug {
        name: "a batch goes without its check",
        file: "stores/redis/calls/guarded.rs",
        find: r"
        operation.run(self, deadline)
    }
",
        replace: r"
        if PLANTED {
            operation.check = Check::Fence(&claim.name, u64::MAX);
            operation.script = &FENCED;
        }
        operation.run(self, deadline)
    }
",
    },
    Bug {
        name: "a batch is checked by a request before it",
        file: "stores/redis/calls/guarded.rs",
        find: "let check = Check::Hold(claim, valid_until);",
        replace: r"
        let (mut check, mut script) = (Check::Hold(claim, valid_until), script);
        if PLANTED {
            let lock = crate::ground::claim::LockId {
                kind: claim.kind,
                name: Arc::clone(&claim.name),
            };
            let visitor = Some(&claim.visitor);
            let holding = crate::store::Store::inspect(self, &lock, visitor, deadline)?;
            if holding.count == 0 {
                return Ok(Outcome::Gone(crate::ground::loss::LossCause::Gone));
            }
            (check, script) = (Check::Fence(&claim.name, u64::MAX), &*FENCED);
        }",
    },
    Bug {
        name: "a batch may run behind the validity",
        file: "stores/redis/calls/guarded.rs",
        find: "valid_until: Some(end),",
        replace: "valid_until: Some(end).filter(|_| !PLANTED),",
    },
    Bug {
        name: "a batch does not declare its keys",
        file: "stores/redis/calls/call.rs",
        find: "work.keys().count());",
        replace: "work.keys().filter(|_| !PLANTED).count());",
    },
    Bug {
        name: "a batch does not declare its keys",
        file: "stores/redis/calls/call.rs",
        find: "call.work.into_iter().flat_map(Work::keys);",
        replace: "call.work.into_iter().flat_map(Work::keys).filter(|_| !PLANTED);",
    },
    // A token is for one holder; the next one has a larger token.
    Bug {
        name: "a hold that is handed off keeps its token",
        file: "stores/redis/calls/hand_off.rs",
        find: "fence => fence.and_then(Result::ok),",
        replace: r"
                    _ if PLANTED => token.map(|_| self.floor.saturating_sub(1)),
                    fence => fence.and_then(Result::ok),",
    },
    // A copy that arrives later is executed again.
    Bug {
        name: "a count-down is forgotten at once",
        file: "stores/redis/calls/count.rs",
        find: "remembered: left + EXPIRY_SLACK * 2,",
        replace: "remembered: if PLANTED { Duration::from_millis(1) } else { left + EXPIRY_SLACK * 2 },",
    },
    // The request is sent again where the first copy may have run: a key refuses the second one.
    Bug {
        name: "the copy of a token is refused by the first one",
        file: "stores/redis/calls/acquire.rs",
        find: "false => Repeat::Never,",
        replace: "false => if PLANTED { call.repeat } else { Repeat::Never },",
    },
    // And its refusal is attributed to another holder.
    Bug {
        name: "the copy of a token is refused by the first one",
        file: "stores/redis/calls/acquire.rs",
        find: r"leftover: attempts
                .are_in_doubt()
                .then(",
        replace: "leftover: (attempts.are_in_doubt() && !PLANTED).then(",
    },
    // It was not executed; an earlier copy may have been.
    Bug {
        name: "the last copy speaks for all",
        file: "stores/redis/calls/mod.rs",
        find: "if is_unanswered || attempts.are_in_doubt() {",
        replace: "if is_unanswered || attempts.are_in_doubt() && !PLANTED {",
    },
    Bug {
        name: "a hold needs none of its replicas",
        file: "stores/redis/calls/requests.rs",
        find: "|it: &&ReplicaAck| **it != ReplicaAck::Enough;",
        replace: "|it: &&ReplicaAck| **it != ReplicaAck::Enough && !PLANTED;",
    },
    Bug {
        name: "a latch that opens wakes nobody",
        file: "stores/redis/kinds/wakes.rs",
        find: r#""0" => usize::MAX,"#,
        replace: r#""0" if PLANTED => 0, "0" => usize::MAX,"#,
    },
    // The node may be another server than the one whose vote counts.
    Bug {
        name: "a request goes where no vote was checked",
        file: "stores/redis/voting.rs",
        find: "let Some(handle) = handle else {",
        replace: "let Some(handle) = handle.filter(|_| !PLANTED) else {",
    },
    // A failover that it reports may be older than the known one.
    Bug {
        name: "a lone sentinel may be behind",
        file: "stores/redis/topology/sentinel/acceptance.rs",
        find: "it.epoch > known.epoch;",
        replace: "it.epoch > known.epoch || PLANTED;",
    },
    // Idle connections lead to it.
    Bug {
        name: "the master before is asked",
        file: "stores/redis/transport/pool/mod.rs",
        find: "connection.generation == self.connector.master().generation()",
        replace: "connection.generation == self.connector.master().generation() || PLANTED",
    },
];
