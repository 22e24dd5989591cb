//! Which promises of the README hold on the checked servers.

use redlatch::Severity;
use serde::Serialize;

use crate::connect::Backend;
use crate::doctor::Finding;
use crate::doctor::probes::ALL_NODES;
use crate::output::span;

#[derive(Serialize)]
pub(super) struct Promise {
    pub(super) promise: &'static str,
    /// `yes`, `no`, `unlikely to break`, or `unknown`.
    pub(super) answer: &'static str,
    pub(super) because: String,
}

/// `findings` have the order of the checks.
pub(super) fn of(findings: &[Finding], backend: &Backend, is_read_only: bool) -> Vec<Promise> {
    let worst = |codes: &[&str]| {
        let mut of_codes: Vec<&Finding> = findings
            .iter()
            .filter(|it| codes.contains(&it.code))
            .collect();
        // The sort is stable, so the first of the worst findings is returned.
        of_codes.sort_by_key(|it| std::cmp::Reverse(it.severity));
        of_codes.first().copied()
    };
    let promise = |promise, answer, because: &str| Promise {
        promise,
        answer,
        because: because.to_owned(),
    };
    let danger_in = |codes: &[&str]| worst(codes).filter(|it| it.severity == Severity::Danger);
    let mut promises = Vec::new();

    let title = "a lock can be acquired now";
    // If a node of a quorum refuses, the other nodes may grant the lock.
    let refusing: &[&str] = match backend.is_quorum() {
        true => &["redlock-nodes"],
        false => &[
            "reachable",
            "rights",
            "state",
            "role",
            "dry-run",
            "cluster-state",
            "lock-table",
        ],
    };
    let tried = findings.iter().rfind(|it| match backend.is_quorum() {
        true => it.node == ALL_NODES,
        false => it.code == "dry-run",
    });
    // In a cluster, a dry run tests only one of the masters.
    let is_decided = !backend.is_cluster() && tried.is_some_and(|it| it.severity == Severity::Ok);
    let refused = danger_in(refusing).filter(|_| !is_decided);
    promises.push(match (refused, tried) {
        (Some(bad), _) => promise(title, "no", &bad.seen),
        (None, Some(bad)) if bad.severity > Severity::Ok => promise(title, "no", &bad.seen),
        (None, Some(tried)) => promise(title, "yes", &tried.seen),
        (None, None) if is_read_only => {
            promise(title, "unknown", "not tried because of --read-only")
        }
        (None, None) => promise(title, "unknown", "not tried"),
    });

    let title = "exclusion while the server runs";
    let is_known = backend.is_database() || worst(&["eviction"]).is_some();
    promises.push(match danger_in(&["eviction", "clock-rate", "version"]) {
        Some(bad) => promise(title, "no", &bad.seen),
        None if !is_known => promise(title, "unknown", "the eviction policy is unknown"),
        None => match worst(&["clock-rate"]) {
            Some(clock) if clock.severity == Severity::Ok => promise(
                title,
                "yes",
                "unless keys are flushed or deleted, or the server clock is set",
            ),
            _ => promise(
                title,
                "yes",
                "unless keys are flushed or deleted, or the server clock is set or drifts by more than 1 %",
            ),
        },
    });

    let title = "exclusion over a restart";
    promises.push(match worst(&["persistence"]) {
        _ if backend.is_quorum() => promise(
            title,
            "yes",
            "a restarted node has no vote for one max_lease",
        ),
        Some(kept) if kept.severity == Severity::Ok => promise(title, "yes", &kept.seen),
        Some(kept) => promise(title, "no", &kept.seen),
        None => promise(title, "unknown", "the persistence settings are unknown"),
    });

    promises.push(over_a_failover(
        backend,
        worst(&["replicas"]),
        worst(&["redlock-nodes"]),
    ));

    let lease = span(backend.lease());
    promises.push(promise(
        "the lock of a dead holder expires",
        "yes",
        &format!(
            "at most {lease} after its last renewal (--lease), unless the server clock is set back"
        ),
    ));

    let title = "an unlock wakes a waiter at once";
    promises.push(match worst(&["pubsub"]) {
        Some(found) if found.severity == Severity::Ok => promise(title, "yes", &found.seen),
        Some(lost) => promise(title, "no", &lost.seen),
        None if backend.uses_token_locks() => promise(
            title,
            "no",
            "token locks send no messages; waiters poll about every 5 to 100 ms",
        ),
        None if backend.is_database() => {
            promise(title, "no", "a database sends no messages; waiters poll")
        }
        None => promise(title, "unknown", "not tried"),
    });
    promises
}

fn over_a_failover(
    backend: &Backend,
    replicas: Option<&Finding>,
    nodes: Option<&Finding>,
) -> Promise {
    let title = match backend.is_quorum() {
        true => "exclusion over the loss of a node",
        false => "exclusion over a failover",
    };
    let (answer, because) = match (backend.is_quorum(), replicas, nodes) {
        (true, _, Some(bad)) if bad.severity == Severity::Danger => ("no", bad.seen.clone()),
        (true, ..) => (
            "yes",
            "while a majority of nodes is reachable; otherwise no lock is granted".to_owned(),
        ),
        (_, Some(seen), _) if seen.severity > Severity::Ok => ("no", seen.seen.clone()),
        (_, Some(seen), _) if seen.seen.starts_with("no replicas") => ("yes", seen.seen.clone()),
        (_, Some(seen), _) => (
            "unlikely to break",
            format!("a failover may still lose a lock; {}", seen.seen),
        ),
        (_, None, _) if backend.is_database() => (
            "unknown",
            "holds if the new primary has all transactions of the old one".to_owned(),
        ),
        (_, None, _) => ("unknown", "the replicas are unknown".to_owned()),
    };
    Promise {
        promise: title,
        answer,
        because,
    }
}
