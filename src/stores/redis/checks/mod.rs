//! Checks a server's settings for risks to locks.
//!
//! If the user lacks the right to a query, the check reports a finding, not an error. The checks change nothing.

mod replicas;
mod rights;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::ground::error::Result;
use crate::store::HealthWarning;
use crate::stores::redis::Redis;
use crate::stores::redis::findings::Findings;
use crate::stores::redis::replies::text_of;
use crate::stores::redis::server::Node;
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::{CallError, Connection, encode, lacks, share};
use settings::{ClientSettings, Info, Settings};

/// A lock name that is used only to test rights.
const LOCK: &str = "redlatch:preflight";

pub(super) fn check(store: &Redis, deadline: Instant) -> Result<Vec<HealthWarning>> {
    let lock: Arc<str> = LOCK.into();
    let client = ClientSettings {
        is_cluster: matches!(store.topology, Topology::Cluster(_)),
        can_fail_over: store.topology.can_fail_over(),
        wait_replicas: store.replication.map_or(0, |wanted| wanted.replicas),
    };
    // Even if the master is silent, time must remain for the later queries to sentinels and replicas.
    let by = share(deadline, 1 + usize::from(client.can_fail_over));
    let mut have_answered: Vec<Arc<str>> = Vec::new();
    let checks = store.topology.each(by, |node, connection, deadline| {
        let mut has_answered = false;
        let asked = (connection, &mut has_answered);
        let checked = check_node(&lock, node, asked, client, deadline);
        have_answered.extend(has_answered.then(|| node.name()));
        checked
    });
    let watchers = store.topology.watchers(deadline);
    let is_alone = checks.len() == 1 && watchers.is_empty();
    let mut all = Vec::new();
    for (node, checked) in checks {
        let fault = match checked.flatten() {
            Ok(found) => {
                all.extend(found.all);
                continue;
            }
            Err(fault) => fault,
        };
        let is_slow = fault.is_timeout() && have_answered.contains(&node);
        if is_alone && !is_slow {
            return Err(store.error_about(node, &lock, &[], fault));
        }
        let mut found = Findings::about(&node);
        found.unreachable(&fault, is_slow.then_some("reachable"));
        all.extend(found.all);
    }
    all.extend(watchers);
    Ok(all)
}

/// The outer error is a fault of the connection. The inner error is an error reply to `INFO`.
fn check_node(
    lock: &Arc<str>,
    node: &Node,
    (connection, has_answered): (&mut Connection, &mut bool),
    client: ClientSettings,
    deadline: Instant,
) -> Result<Result<Findings, CallError>, CallError> {
    let mut found = Findings::about(&node.name());
    let mut ask = |words: &[&str]| match connection.call(&encode(words), deadline) {
        Err(fault) if !matches!(fault, CallError::Server(_)) => Err(fault),
        answer => {
            *has_answered = true;
            Ok(answer)
        }
    };
    let mut may_not = Vec::new();
    match ask(&["INFO"])? {
        Ok(info) => {
            let mut info = text_of(&info);
            // Only the reply to HELLO identifies Google Memorystore: the paths of the modules contain "google".
            let hello = ask(&["HELLO"])?;
            if format!("{hello:?}").to_ascii_lowercase().contains("google") {
                info += &format!("\r\n{}:Google Memorystore\r\n", settings::SERVICE);
            }
            let info = Info(&info);
            let mut settings = Settings::new();
            for name in info.settings() {
                match ask(&["CONFIG", "GET", name])? {
                    Ok(Value::Array(pair)) => {
                        settings.extend(pair.get(1).map(|value| (name, text_of(value))));
                    }
                    Err(CallError::Server(text)) if text.starts_with("NOPERM") => {
                        may_not = vec!["CONFIG GET (+config|get)"];
                    }
                    // Some products lack CONFIG GET, so other errors are ignored.
                    _ => {}
                }
            }
            settings::find(&mut found, &info, &settings, client);
        }
        // A missing right to INFO is not a risk to locks.
        Err(CallError::Server(text)) if lacks(&text, "info") => may_not.push("INFO (+info)"),
        Err(fault) => return Ok(Err(fault)),
    }
    if client.is_cluster {
        match ask(&["CLUSTER", "INFO"])? {
            Ok(info) => settings::find_cluster_state(&mut found, &text_of(&info)),
            Err(CallError::Server(text)) if text.starts_with("NOPERM") => {
                may_not.push("CLUSTER INFO (+cluster|info)");
            }
            Err(fault) => found.unreachable(&fault, None),
        }
    }
    for command in may_not {
        let message = format!("the user may not run {command}");
        let advice =
            "allow the command so that the check can read those settings; locks work without it";
        found.note("rights", message, advice);
    }
    rights::find(&mut found, lock, node, connection, deadline)?;
    for (whose, days) in connection.ending_certificates() {
        let message = format!("the certificate of {whose} ends in {days} days");
        let advice = "replace it before then; after that no new connection can be made";
        found.note("certificate", message, advice);
    }
    Ok(Ok(found))
}
