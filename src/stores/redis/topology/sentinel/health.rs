//! Checks whether the sentinels agree on the master, and whether enough of them run for a failover.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use super::Shared;
use super::report::{Report, report_in};
use crate::store::HealthWarning;
use crate::stores::redis::findings::Findings;
use crate::stores::redis::replies::field_of;
use crate::stores::redis::topology::unreachable_replicas;
use crate::stores::redis::transport::{CallError, share};

const CODE: &str = "sentinel-quorum";

/// What one sentinel reports about the master.
#[derive(Debug, Default)]
struct Watched {
    report: Option<Report>,
    /// How many sentinels must report the master as down; 0 if unknown.
    quorum: usize,
    /// How many sentinels this sentinel knows, including itself; 0 if unknown.
    known: usize,
    is_down: bool,
}

/// Reads the replies to `GET-MASTER-ADDR-BY-NAME` and `SENTINEL MASTER`.
fn watched_in(address: &Value, details: &Value) -> Watched {
    let report = report_in(address, details);
    let field = |name: &str| field_of(details, name);
    let number = |wanted: &str| field(wanted)?.parse::<usize>().ok();
    let flags = field("flags").unwrap_or_default();
    Watched {
        report,
        quorum: number("quorum").unwrap_or_default(),
        known: number("num-other-sentinels").map_or(0, |others| others.saturating_add(1)),
        is_down: (flags.split(',')).any(|flag| matches!(flag, "s_down" | "o_down")),
    }
}

impl Shared {
    pub(super) fn health(&self, deadline: Instant) -> Vec<HealthWarning> {
        // Sorted by name, because the order of the list changes after each failure.
        let mut sentinels = self.order();
        sentinels.sort_by(|one, other| one.address.node.cmp(&other.address.node));
        let mut answers = Vec::new();
        let mut replicas = Vec::new();
        for (asked, sentinel) in sentinels.iter().enumerate() {
            let by = share(deadline, sentinels.len() - asked + 1);
            let node = Arc::clone(&sentinel.address.node);
            let told = sentinel.ask_for(&self.name, by);
            let told = told.map(|(address, details)| watched_in(&address, &details));
            answers.push((node, told));
            if replicas.is_empty() {
                // An error is ignored here. If the sentinel does not reply, `told` has the error already.
                let announced = sentinel.replicas(&self.name, &self.credentials, by);
                replicas = announced.unwrap_or_default();
            }
        }
        let mut found = findings(&self.name, &self.known_master.node(), &answers);
        found.extend(unreachable_replicas(&replicas, deadline));
        found
    }
}

fn findings(
    name: &str,
    group: &Arc<str>,
    answers: &[(Arc<str>, Result<Watched, CallError>)],
) -> Vec<HealthWarning> {
    let mut all = Findings::about(group);
    let mut masters = BTreeSet::new();
    let (mut usable, mut quorum, mut known) = (0, 0, answers.len());
    for (node, answer) in answers {
        let mut found = Findings::about(node);
        match answer {
            Err(fault) => found.note(
                CODE,
                format!("this sentinel did not answer: {}", fault.reason()),
                "check that it runs and can be reached from here",
            ),
            Ok(Watched { report: None, .. }) => found.danger(
                CODE,
                format!("this sentinel knows no master {name}"),
                "correct the name (--sentinel), or add the master to this sentinel (SENTINEL MONITOR)",
            ),
            Ok(
                watched @ Watched {
                    report: Some(it), ..
                },
            ) => {
                usable += 1;
                quorum = quorum.max(watched.quorum);
                known = known.max(watched.known);
                masters.insert(it.node());
                if watched.is_down {
                    let message = format!("this sentinel reports the master {} as down", it.node());
                    let advice = "check that it runs; if the other sentinels agree, they fail over";
                    found.danger(CODE, message, advice);
                }
            }
        }
        all.all.extend(found.all);
    }
    let masters: Vec<String> = masters.into_iter().collect();
    if masters.len() > 1 {
        all.danger(
            CODE,
            format!("the sentinels name different masters: {}", masters.join(", ")),
            "a failover may be in progress; if this persists, find out which master the replicas follow, and run \
                SENTINEL RESET on the sentinels that name another",
        );
    }
    // Sentinels that are not configured here count as alive.
    let alive = usable + (known - answers.len());
    let needed = quorum.max(known / 2 + 1);
    if alive < needed {
        let message = format!(
            "{alive} of {known} sentinels answer, and a failover needs {needed}: if the master dies, nothing replaces it"
        );
        all.danger(CODE, message, "bring the sentinels back");
    }
    if answers.len() < 3 {
        let message = format!(
            "sentinels named here: {}; the client follows any single one that reports a failover",
            answers.len()
        );
        let advice = "run three or more sentinels, and name them all";
        all.note(CODE, message, advice);
    }
    if all.all.is_empty() {
        let masters = masters.join(", ");
        all.ok(
            CODE,
            format!("{alive} of {known} sentinels answer, and name {masters}"),
        );
    }
    all.all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Severity;

    fn says(port: u16, others: usize) -> Result<Watched, CallError> {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let address = Value::Array(vec![text("10.0.0.1"), text(&port.to_string())]);
        let details = [
            "flags",
            "master",
            "quorum",
            "2",
            "num-other-sentinels",
            &others.to_string(),
        ];
        let details = Value::Array(details.map(text).to_vec());
        Ok(watched_in(&address, &details))
    }

    fn silent() -> Result<Watched, CallError> {
        Err(CallError::NotSent("refused".into()))
    }

    #[test]
    fn too_few_sentinels_for_a_failover_are_a_danger() {
        let worst = |answers: Vec<Result<Watched, CallError>>| {
            let report = answers.into_iter().map(|answer| ("one".into(), answer));
            let found = findings("m", &"all".into(), &report.collect::<Vec<_>>());
            found.iter().map(|it| it.severity).max()
        };
        let [ok, note, danger] = [Severity::Ok, Severity::Note, Severity::Danger].map(Some);
        assert_eq!(worst(vec![says(1, 2), says(1, 2), says(1, 2)]), ok);
        assert_eq!(worst(vec![says(1, 2), says(1, 2), silent()]), note);
        assert_eq!(worst(vec![says(1, 2), silent(), silent()]), danger);
        assert_eq!(worst(vec![silent(), silent(), silent()]), danger);
        assert_eq!(worst(vec![says(1, 2), says(2, 2), says(1, 2)]), danger);
        assert_eq!(
            worst(vec![says(1, 2), says(1, 2), Ok(Watched::default())]),
            danger
        );
        // Two of five sentinels are configured. One of these two is silent.
        assert_eq!(worst(vec![says(1, 4), silent()]), note);
        assert_eq!(worst(vec![says(1, 0)]), danger);
        // A majority of all sentinels must reply.
        let two_of_five = vec![says(1, 4), says(1, 4), silent(), silent(), silent()];
        assert_eq!(worst(two_of_five), danger);
        assert_eq!(
            worst(vec![says(1, 3), says(1, 3), says(1, 3), says(1, 3)]),
            ok
        );
    }

    #[test]
    fn a_master_that_is_down_is_reported() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        // Only the address is known, because the user has no right to query the details.
        let address = Value::Array(vec![text("h"), text("1")]);
        let watched = watched_in(&address, &Value::Nil);
        assert_eq!(watched.report.map(|it| it.node()).as_deref(), Some("h:1"));
        assert_eq!(
            (watched.quorum, watched.known, watched.is_down),
            (0, 0, false)
        );
        for (flags, is_down) in [("master", false), ("master,s_down,o_down", true)] {
            let details = Value::Array(vec![text("flags"), text(flags)]);
            assert_eq!(watched_in(&Value::Nil, &details).is_down, is_down);
        }
    }
}
