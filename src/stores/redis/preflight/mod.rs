//! A look at the server's settings for what endangers locks.
//!
//! A look that the user may not take is a finding of its own, and no error. Nothing is changed on the server.

mod replicas;
mod rights;
mod settings;
#[cfg(test)]
mod tests;
mod told;

use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::ground::error::Result;
use crate::store::HealthWarning;
use crate::stores::redis::Redis;
use crate::stores::redis::replies::text_of;
use crate::stores::redis::server::Node;
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::{CallError, Connection, lacks, share};
use rights::{Rights, Untried, effect_of_lacking};
use told::{Place, Settings};

/// The name of a lock that nobody has, under which the rights are tried.
const LOCK: &str = "redlatch:preflight";

/// The answers of one node.
struct Look {
    /// Its settings, or why they were not told.
    info: Result<String, CallError>,
    /// The state of its cluster, where the client knows it as a node of one.
    cluster: Option<Result<String, CallError>>,
    settings: Settings,
    rights: Rights,
    /// The effects of commands that nobody there knows.
    unknown: Vec<&'static str>,
    /// The certificates that end within days, with how many are left.
    ending: Vec<(&'static str, u64)>,
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
    let mut have_answered: Vec<Arc<str>> = Vec::new();
    let looks = store.topology.each(by, |node, connection, deadline| {
        let mut has_answered = false;
        let answers = (connection, &mut has_answered);
        let looked = look(&lock, node, answers, place.is_cluster, deadline);
        have_answered.extend(has_answered.then(|| node.name()));
        looked
    });
    let watchers = store.topology.watchers(deadline);
    let is_alone = looks.len() == 1 && !is_watched;
    let mut found = Vec::new();
    for (node, look) in looks {
        let look = match look {
            Err(fault) => {
                let is_slow = fault.is_timeout() && have_answered.contains(&node);
                if is_alone && !is_slow {
                    return Err(store.error_about(node, &lock, &[], fault));
                }
                found.push(unreachable(&node, &fault, is_slow.then_some("reachable")));
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
            Err(CallError::Server(text)) if lacks(text, "info") => {
                found.push(about("INFO (+info)"));
            }
            Err(fault) if is_alone => {
                return Err(store.error_about(node, &lock, &[], fault.clone()));
            }
            Err(fault) => found.push(unreachable(&node, fault, None)),
        }
        match &look.cluster {
            None => {}
            Some(Ok(info)) => found.push(settings::cluster_state(&node, info)),
            Some(Err(CallError::Server(text))) if text.starts_with("NOPERM") => {
                found.push(about("CLUSTER INFO (+cluster|info)"));
            }
            Some(Err(fault)) => found.push(unreachable(&node, fault, None)),
        }
        found.extend(of_rights(&node, &look.rights));
        found.extend(look.unknown.iter().map(|effect| {
            let message = format!("refused, maybe by a proxy: {effect}");
            let advice = "locks work without it; let it pass if you can (docs/services.md)";
            HealthWarning::note(&node, "connection", message, advice)
        }));
        for (whose, days) in look.ending {
            let message = format!("the certificate of {whose} ends in {days} days");
            let advice = "replace it before; when it has ended, no new connection can be made";
            found.push(HealthWarning::note(&node, "certificate", message, advice));
        }
    }
    found.extend(watchers);
    Ok(found)
}

/// The findings about what the user may do.
fn of_rights(node: &Arc<str>, rights: &Rights) -> Vec<HealthWarning> {
    const CODE: &str = "rights";
    let mut found = Vec::new();
    let mut needed = rights.missing.clone();
    needed.retain(|right| effect_of_lacking(right).is_none());
    if !needed.is_empty() {
        found.push(HealthWarning::danger(
            node,
            CODE,
            format!("the user lacks rights that locks need: {}", needed.join(" ")),
            "give them with ACL SETUSER, and rename none of these commands; docs/rights.md says which lock needs which",
        ));
    }
    for right in &rights.missing {
        found.extend(effect_of_lacking(right).map(|effect| {
            let message = format!("the user lacks {right}: {effect}");
            let advice =
                "give it with ACL SETUSER, and do not rename it; locks can be taken without it";
            HealthWarning::note(node, CODE, message, advice)
        }));
    }
    if rights.scripting_is_off {
        found.push(HealthWarning::danger(
            node,
            "state",
            match rights.has_commands {
                true => {
                    "scripting is off: the server knows no EVAL, so only token locks can be had"
                }
                false => "scripting is off: the server knows no EVAL, so no lock can be had",
            },
            "let EVAL have its name (rename-command), or keep locks on a server that runs scripts",
        ));
    }
    if found.is_empty() && rights.untried.is_none() && rights.untried_outside.is_none() {
        let message = "all commands of Client::lock are allowed";
        found.push(HealthWarning::ok(node, CODE, message));
    }
    if rights.sends_texts {
        found.push(HealthWarning::note(
            node,
            CODE,
            "scripts cannot be called by their hash, so that each request carries its text",
            "allow it (+evalsha), or do not rename EVALSHA; locks work without it",
        ));
    }
    found.extend(rights.untried.as_ref().map(|fault| {
        let reason = fault.reason();
        match fault.is_passing() {
            true => HealthWarning::danger(
                node,
                "state",
                format!("it takes no requests of locks now: {reason}"),
                "wait until it does (INFO persistence, INFO replication and CLUSTER INFO say what keeps it); its locks \
                 cannot be had until then",
            ),
            false => HealthWarning::note(
                node,
                CODE,
                format!("the rights of the user could not be tried: {reason}"),
                "take a lock to see whether it may",
            ),
        }
    }));
    found.extend(rights.untried_outside.as_ref().map(|untried| match untried {
        Untried::NotConnected(fault) => unreachable(node, fault, Some("connection")),
        Untried::NotAnswered(command, fault) => HealthWarning::note(
            node,
            "connection",
            format!("{command} was not answered: {}", fault.reason()),
            match fault.is_timeout() {
                true => {
                    "check again, with a longer command_timeout if the server is far; if it stays so, look what is between, \
                     as some proxies know no such command"
                }
                false => {
                    "look what is between, as some proxies know no such command; who waits is woken by no message then, and \
                     looks about once a second"
                }
            },
        ),
    }));
    found
}

/// The finding about a server that gave no connection, or no answer. `answered` is its code if it did before.
fn unreachable(
    node: &Arc<str>,
    fault: &CallError,
    answered: Option<&'static str>,
) -> HealthWarning {
    let reason = fault.reason();
    let is_refused = match fault {
        CallError::Untrusted(_) => true,
        CallError::Server(text) => ["NOAUTH", "WRONGPASS"]
            .iter()
            .any(|sign| text.contains(sign)),
        _ => false,
    };
    match (is_refused, answered) {
        (true, _) => HealthWarning::danger(
            node,
            "connection",
            format!("it refuses connections: {reason}"),
            "put the password, the user or the certificate right; without a connection its locks cannot be had",
        ),
        (false, Some(code)) => HealthWarning::note(
            node,
            code,
            format!("it answered, but not to all that is asked here: {reason}"),
            "check again, with a longer command_timeout if the server is far or slow; look whether it takes more connections \
             (its maxclients, the open files of this process, the network), as who waits needs one",
        ),
        (false, None) => HealthWarning::danger(
            node,
            "reachable",
            format!("it could not be asked: {reason}"),
            "look whether it runs, answers PING, and can be reached from here; its locks cannot be had",
        ),
    }
}

/// Commands without which locks work, and what is lost.
const UNNEEDED: [(&[&str], &str, &str); 2] = [
    (
        &["TIME"],
        "time",
        "TIME (the first request on each connection is sent twice)",
    ),
    (
        &["CLIENT", "GETNAME"],
        "client",
        "CLIENT (nobody can tell the process of a holder)",
    ),
];

/// Looks at a node over its connection, and tells whether it has answered to anything.
fn look(
    lock: &Arc<str>,
    node: &Node,
    (connection, has_answered): (&mut Connection, &mut bool),
    is_cluster: bool,
    deadline: Instant,
) -> Result<Look, CallError> {
    let mut ask =
        |command: &redis::Cmd| match connection.call(&command.get_packed_command(), deadline) {
            Err(fault) if !matches!(fault, CallError::Server(_)) => Err(fault),
            answer => {
                *has_answered = true;
                Ok(answer)
            }
        };
    let mut info = ask(&redis::cmd("INFO"))?.map(|info| text_of(&info));
    // It shows itself in the paths of its modules alone.
    if let (Ok(info), Ok(hello)) = (&mut info, ask(&redis::cmd("HELLO"))?)
        && format!("{hello:?}").to_ascii_lowercase().contains("google")
    {
        *info += &format!("\r\n{}:Google Memorystore\r\n", settings::SERVICE);
    }
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
    let mut unknown = Vec::new();
    for (words, command, effect) in UNNEEDED {
        match ask(redis::Cmd::new().arg(words))? {
            Err(CallError::Server(text))
                if lacks(&text, command) && !text.starts_with("NOPERM") =>
            {
                unknown.push(effect);
            }
            _ => {}
        }
    }
    Ok(Look {
        info,
        unknown,
        cluster,
        settings,
        ending: connection.ending_certificates(),
        rights: rights::tried(lock, node, connection, deadline)?,
    })
}
