//! `redlatch doctor`: the dangers to the locks of this server, and the promises that hold there.

mod kinds;
pub(crate) mod live;
mod promises;
mod services;

use std::process::ExitCode;

use redlatch::{Error, HealthWarning, Severity};
use serde::Serialize;

use crate::connect::Backend;
use crate::errors::{Failure, NO, message_of};
use crate::escape::escape;
use crate::output::{SCHEMA, json, note, table, text};
use promises::Promise;

/// The arguments of `redlatch doctor`.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Take no lock: leaves out the clock, the messages and the dry run
    #[arg(long)]
    read_only: bool,
    /// Try this kind of lock; say it once for each
    #[arg(long = "kind", value_name = "KIND", conflicts_with = "read_only", value_parser = kinds::NAMES)]
    kinds: Vec<String>,
    /// End with 1 on a note, too
    #[arg(long)]
    strict: bool,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: crate::connect::ConnectArgs,
}

/// Something that was looked at.
#[derive(Serialize)]
struct Finding {
    #[serde(serialize_with = "serialize_severity")]
    severity: Severity,
    code: &'static str,
    node: String,
    /// The state that was seen.
    seen: String,
    /// The thing to do about it.
    advice: Option<String>,
}

#[derive(Serialize)]
struct DoctorReport<'a> {
    schema: u32,
    #[serde(serialize_with = "serialize_severity")]
    severity: Severity,
    findings: &'a [Finding],
    promises: &'a [Promise],
}

fn serialize_severity<S: serde::Serializer>(severity: &Severity, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(severity.as_str())
}

impl Finding {
    fn ok(node: &str, code: &'static str, seen: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Ok,
            code,
            node: node.to_owned(),
            seen: seen.into(),
            advice: None,
        }
    }

    fn note(node: &str, code: &'static str, seen: impl Into<String>, advice: &str) -> Finding {
        Finding {
            severity: Severity::Note,
            advice: Some(advice.to_owned()),
            ..Finding::ok(node, code, seen)
        }
    }

    fn danger(node: &str, code: &'static str, seen: impl Into<String>, advice: &str) -> Finding {
        Finding {
            severity: Severity::Danger,
            ..Finding::note(node, code, seen, advice)
        }
    }

    fn of(found: HealthWarning, backend: &Backend) -> Finding {
        let mut finding = Finding {
            severity: found.severity,
            code: found.code,
            node: found.node.to_string(),
            // The lock under which it was looked at says nothing.
            seen: found.message.replace("lock \"redlatch:preflight\": ", ""),
            advice: Some(found.advice).filter(|advice| !advice.is_empty()),
        };
        // The library looks at the rights of the reentrant lock.
        if finding.code == "rights"
            && finding.severity == Severity::Danger
            && backend.uses_token_locks()
        {
            finding.severity = Severity::Note;
            finding.advice = Some(
                "token locks need fewer rights: the dry run tells whether these are enough"
                    .to_owned(),
            );
        }
        finding
    }

    /// A look that failed after a lock was taken: one that the user may not take endangers no lock.
    fn of_failed_probe(node: &str, code: &'static str, error: &Error) -> Finding {
        let mut finding = Finding::of_error(Some(node), code, error);
        if error.kind() == "permission" {
            finding.severity = Severity::Note;
            finding.seen = format!("{code} was not looked at: {}", finding.seen);
        }
        finding
    }

    /// A look that failed; without `node` the look at the whole place.
    fn of_error(node: Option<&str>, code: &'static str, error: &Error) -> Finding {
        let (code, advice) = match error.kind() {
            "permission" if node.is_some() => (
                "rights",
                "give the user this right; if it may use some names only, say with --prefix how they begin",
            ),
            "permission" => (
                "rights",
                "correct the user and the password (--user, REDLATCH_PASSWORD), or give the user the rights of docs/rights.md",
            ),
            "untrusted" => (
                "reachable",
                "correct --ca, --cert and --key, or the certificate of the server",
            ),
            "unreachable" | "unknown" => (
                "reachable",
                "start it if it is down, wake it if it is stopped or busy (kill -CONT, SLOWLOG GET), or correct the address \
                 (--url, REDLATCH_URL); redis-cli PING from this machine shows whether it answers",
            ),
            "unavailable" => (
                code,
                "correct what the server complains of, or wait if it is starting or failing over",
            ),
            "unexpected" => (
                code,
                "correct the address: something else than the server answers there, or a proxy changes its answers",
            ),
            "invalid_config" => ("cluster-state", "name the cluster with --cluster"),
            "not_replicated" => (code, "bring the replicas back, or lower --wait-replicas"),
            "no_quorum" => (code, "bring back the nodes that gave no usable answer"),
            // What it says ends with the advice.
            "schema" => ("lock-table", "correct the table, or make it"),
            _ => (code, "correct what the message says, and look again"),
        };
        let node = node.or(error.node()).unwrap_or("the server");
        // The lock is one of ours, and its name says nothing.
        let said = message_of(error);
        Finding::danger(node, code, said, advice)
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    if !args.kinds.is_empty() && args.connection.is_quorum()? {
        return Err(Failure::usage(
            "--kind needs one server, or several that belong together: a Redlock has one kind",
        ));
    }
    let backend = args.connection.open()?;
    let mut findings: Vec<Finding> = Vec::new();
    let mut code = None;
    match backend.examine() {
        Ok(found) => {
            findings.extend(found.into_iter().map(|found| Finding::of(found, &backend)));
            let live = live::probe(&args.connection, &backend, &findings, args.read_only);
            findings.extend(live);
            if let [(node, client)] = &backend.clients()[..] {
                findings.extend(kinds::try_kinds(node, client, &args.kinds));
            }
        }
        Err(error) => {
            findings.push(Finding::of_error(None, "reachable", &error));
            code = Some(Failure::from(error).code());
        }
    }
    findings.extend(services::findings(&findings, &backend));
    findings.extend(backend.plain_text_hosts().iter().map(|node| {
        Finding::note(
            node,
            "plain-text",
            "all goes to it as plain text, passwords too",
            "use TLS (rediss://, mysqls://), unless the network is private",
        )
    }));
    // Nothing can be said of a server that was not seen.
    let promises = match code {
        None => promises::of(&findings, &backend, args.read_only),
        Some(_) => Vec::new(),
    };
    // The worst first: at night only those are read.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let severity = findings.first().map_or(Severity::Ok, |it| it.severity);
    let printed = match args.json {
        true => json(&DoctorReport {
            schema: SCHEMA,
            severity,
            findings: &findings,
            promises: &promises,
        }),
        false => print(&findings, &promises),
    };
    if args.read_only && code.is_none() && !args.json && printed.is_ok() {
        note("the clock, the messages and a lock were not tried, because of --read-only");
    }
    let limit = match args.strict {
        true => Severity::Note,
        false => Severity::Danger,
    };
    let verdict = if severity >= limit { NO } else { 0 };
    Failure::exit_with(printed, code.unwrap_or(verdict))
}

/// A name that leaves room on the line: a group may have the names of all its servers.
fn brief(node: &str) -> String {
    const WIDTH: usize = 40;
    let name = escape(node);
    match name.char_indices().nth(WIDTH) {
        Some(_) => {
            let kept: String = name.chars().take(WIDTH - 1).collect();
            format!("{kept}…")
        }
        None => name,
    }
}

fn print(findings: &[Finding], promises: &[Promise]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for it in findings {
        rows.push(vec![
            it.severity.to_string(),
            it.code.to_owned(),
            brief(&it.node),
            escape(&it.seen),
        ]);
        if let Some(advice) = &it.advice {
            let blank = String::new;
            rows.push(vec![
                blank(),
                blank(),
                blank(),
                format!("-> {}", escape(advice)),
            ]);
        }
    }
    for line in table(&rows) {
        text(&line)?;
    }
    if !promises.is_empty() {
        text("")?;
    }
    let rows: Vec<_> = promises
        .iter()
        .map(|it| {
            vec![
                it.promise.to_owned(),
                format!("{} ({})", it.answer, escape(&it.because)),
            ]
        })
        .collect();
    for line in table(&rows) {
        text(&line)?;
    }
    Ok(())
}
