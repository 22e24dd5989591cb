//! A look at the server's settings for what endangers locks.
//!
//! A look that the user may not take is a finding of its own, and no error. Nothing is changed on the server.

mod quorum;
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
use crate::stores::redis::replies::text_of;
use crate::stores::redis::server::Node;
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::{CallError, Connection, share};
pub(super) use quorum::{changes_id, flushes};
use settings::{Place, Settings};

/// The name of a lock that nobody has, under which the rights are tried.
const LOCK: &str = "redlatch:preflight";

/// The answers of one node.
struct Look {
    /// Its settings, or why they were not told.
    info: Result<String, CallError>,
    /// The state of its cluster, where the client knows it as a node of one.
    cluster: Option<Result<String, CallError>>,
    settings: Settings,
    /// The rights to commands that the user lacks.
    missing: Vec<String>,
    /// Why those outside of scripts could not be tried, which takes a connection of its own.
    not_connected: Option<CallError>,
}

pub(super) fn check(store: &Redis, deadline: Instant) -> Result<Vec<HealthWarning>> {
    let lock: Arc<str> = LOCK.into();
    let place = Place {
        is_cluster: matches!(store.topology, Topology::Cluster(_)),
        can_fail_over: store.topology.can_fail_over(),
        wait_replicas: store.replication.map_or(0, |wanted| wanted.replicas),
    };
    // Those who watch over it must have time to answer where it is silent.
    let is_watched = store.topology.is_watched();
    let by = match is_watched {
        true => share(deadline, 2),
        false => deadline,
    };
    let looks = store.topology.each(by, |node, connection, deadline| {
        look(&lock, node, connection, place.is_cluster, deadline)
    });
    let watchers = store.topology.watchers(deadline);
    let is_alone = looks.len() == 1 && !is_watched;
    let mut found = Vec::new();
    for (node, look) in looks {
        let look = match look {
            Err(fault) if is_alone => return Err(store.error(&lock, fault, deadline)),
            Err(fault) => {
                found.push(unreachable(&node, &fault));
                continue;
            }
            Ok(look) => look,
        };
        let about = |command: &str| {
            HealthWarning::note(
                &node,
                "rights",
                format!("the user may not run {command}"),
                "allow it, so that the check sees those settings; locks work without it",
            )
        };
        match &look.info {
            Ok(info) => {
                found.extend(settings::findings(&node, info, &look.settings, place));
                if look.settings.is_refused {
                    found.push(about("CONFIG GET (+config|get)"));
                }
            }
            // It may not look; that alone is no danger.
            Err(CallError::Server(text)) if is_refused(text, "info") => {
                found.push(about("INFO (+info)"));
            }
            Err(fault) if is_alone => return Err(store.error(&lock, fault.clone(), deadline)),
            Err(fault) => found.push(unreachable(&node, fault)),
        }
        match &look.cluster {
            None => {}
            Some(Ok(info)) => found.push(settings::cluster_state(&node, info)),
            Some(Err(CallError::Server(text))) if text.starts_with("NOPERM") => {
                found.push(about("CLUSTER INFO (+cluster|info)"));
            }
            Some(Err(fault)) => found.push(unreachable(&node, fault)),
        }
        if !look.missing.is_empty() {
            found.push(HealthWarning::danger(
                &node,
                "rights",
                format!(
                    "the user lacks rights that locks need: {}",
                    look.missing.join(" ")
                ),
                "give them with ACL SETUSER; docs/rights.md says which lock needs which",
            ));
        } else if look.not_connected.is_none() {
            let message = "all commands of Client::lock are allowed";
            found.push(HealthWarning::ok(&node, "rights", message));
        }
        found.extend(look.not_connected.map(|fault| not_connected(&node, &fault)));
    }
    found.extend(watchers);
    Ok(found)
}

/// Whether this is the refusal of a command for want of a right.
fn is_refused(text: &str, command: &str) -> bool {
    text.starts_with("NOPERM") && text.contains(&format!("'{command}'"))
}

fn unreachable(node: &Arc<str>, fault: &CallError) -> HealthWarning {
    HealthWarning::danger(
        node,
        "reachable",
        format!("it could not be asked: {}", fault.reason()),
        "look whether it runs, answers PING, and can be reached from here; its locks cannot be had",
    )
}

/// The finding that a server which answers takes no further connection.
fn not_connected(node: &Arc<str>, fault: &CallError) -> HealthWarning {
    let reason = fault.reason();
    let is_refused = matches!(fault, CallError::Server(_) | CallError::Untrusted(_));
    if is_refused && !fault.is_for_want_of_room() && !fault.is_passing() {
        return HealthWarning::danger(
            node,
            "connection",
            format!("it refuses further connections: {reason}"),
            "put the password, the user or the certificate right: when the connections that are there end, no lock can be had",
        );
    }
    HealthWarning::note(
        node,
        "connection",
        format!(
            "no further connection could be made, so the right to listen was not tried: {reason}"
        ),
        "look why it takes none (its maxclients, the open files of this process, the network); who waits needs one, too",
    )
}

fn look(
    lock: &Arc<str>,
    node: &Node,
    connection: &mut Connection,
    is_cluster: bool,
    deadline: Instant,
) -> Result<Look, CallError> {
    let mut ask =
        |command: &redis::Cmd| match connection.call(&command.get_packed_command(), deadline) {
            Err(fault) if !matches!(fault, CallError::Server(_)) => Err(fault),
            answer => Ok(answer),
        };
    let info = ask(&redis::cmd("INFO"))?.map(|info| text_of(&info));
    let cluster = match is_cluster {
        true => Some(ask(redis::cmd("CLUSTER").arg("INFO"))?.map(|info| text_of(&info))),
        false => None,
    };
    let mut settings = Settings::default();
    for name in Settings::wanted(info.as_deref().unwrap_or_default()) {
        match ask(redis::cmd("CONFIG").arg("GET").arg(name))? {
            Ok(Value::Array(pair)) => {
                if let [_, value] = &pair[..] {
                    settings.tell(name, text_of(value));
                }
            }
            Ok(_) => {}
            Err(CallError::Server(text)) if text.starts_with("NOPERM") => {
                settings.is_refused = true;
            }
            // Some products have no such command; what it says stays unknown.
            Err(_) => {}
        }
    }
    let mut missing = rights::missing_in_scripts(lock, node, connection, deadline)?;
    let outside = rights::add_missing_outside_scripts(lock, node, &mut missing, deadline);
    Ok(Look {
        info,
        cluster,
        settings,
        missing,
        not_connected: outside.err(),
    })
}
