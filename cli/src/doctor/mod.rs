//! `redlatch doctor`: prints the findings of `Client::examine` and of probes, and which promises the servers keep.

mod kinds;
pub(crate) mod probes;
mod promises;
mod services;

use std::process::ExitCode;

use redlatch::{Error, HealthWarning, Severity};
use serde::Serialize;

use crate::connect::Backend;
use crate::errors::{Failure, message_of};
use crate::escape::escape;
use crate::exit_codes::NO;
use crate::output::{SCHEMA, json, note, table, text};
use promises::Promise;

/// The arguments of `redlatch doctor`.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Acquire no lock: skips the clock, pub/sub and dry-run checks
    #[arg(long)]
    read_only: bool,
    /// Try this kind of lock; repeat for each kind
    #[arg(long = "kind", value_name = "KIND", conflicts_with = "read_only", value_parser = kinds::NAMES)]
    kinds: Vec<String>,
    /// Exit with 1 on a note, too
    #[arg(long)]
    strict: bool,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: crate::connect::ConnectArgs,
}

#[derive(Serialize)]
struct Finding {
    #[serde(serialize_with = "serialize_severity")]
    severity: Severity,
    code: &'static str,
    node: String,
    seen: String,
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
            // The name of the library's test lock does not help the reader.
            seen: found.message.replace("lock \"redlatch:preflight\": ", ""),
            advice: Some(found.advice).filter(|advice| !advice.is_empty()),
        };
        // The library checks the rights for reentrant locks. Token locks need fewer rights.
        if finding.code == "rights"
            && finding.severity == Severity::Danger
            && backend.uses_token_locks()
        {
            finding.severity = Severity::Note;
            finding.advice = Some(
                "token locks need fewer rights; the dry run shows whether these are enough"
                    .to_owned(),
            );
        }
        finding
    }

    /// A probe failed after a lock was acquired. If only the probe lacks a right, no lock is in danger.
    fn of_failed_probe(node: &str, code: &'static str, error: &Error) -> Finding {
        let mut finding = Finding::of_error(Some(node), code, error);
        if error.kind() == "permission" {
            finding.severity = Severity::Note;
            finding.seen = format!("{code} was not checked: {}", finding.seen);
        }
        finding
    }

    /// `None` for `node` stands for all servers.
    fn of_error(node: Option<&str>, code: &'static str, error: &Error) -> Finding {
        let (code, advice) = match error.kind() {
            "permission" if node.is_some() => (
                "rights",
                "grant the user this right; if the user may use only some names, give their prefix with --prefix",
            ),
            "permission" => (
                "rights",
                "correct the user and password (--user, REDLATCH_PASSWORD), or grant the rights listed in docs/rights.md",
            ),
            "untrusted" => (
                "reachable",
                "correct --ca, --cert and --key, or replace the server's certificate",
            ),
            "unreachable" | "unknown" => (
                "reachable",
                "start the server if it is down, check for a stopped or busy process (kill -CONT, SLOWLOG GET), or \
                 correct --url; redis-cli PING from this machine tests the connection",
            ),
            "unavailable" => (
                code,
                "fix the cause that the server reports, or wait if it is starting or failing over",
            ),
            "unexpected" => (
                code,
                "correct the address: another service answers there, or a proxy changes the replies",
            ),
            "invalid_config" => ("cluster-state", "use --cluster for a cluster"),
            "not_replicated" => (code, "restore the replicas, or lower --wait-replicas"),
            "no_quorum" => (code, "restore the nodes that gave no usable reply"),
            // The message of this error ends with advice.
            "schema" => ("lock-table", "create or correct the table"),
            _ => (
                code,
                "fix what the message says, then run redlatch doctor again",
            ),
        };
        let node = node.or(error.node()).unwrap_or("the server");
        let message = message_of(error);
        Finding::danger(node, code, message, advice)
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    if !args.kinds.is_empty() && args.connection.is_quorum()? {
        return Err(Failure::usage(
            "--kind needs one server, a cluster, replicas or sentinels; a Redlock has only one kind of lock",
        ));
    }
    let backend = args.connection.open()?;
    let mut findings: Vec<Finding> = Vec::new();
    let mut code = None;
    match backend.examine() {
        Ok(found) => {
            findings.extend(found.into_iter().map(|found| Finding::of(found, &backend)));
            let probed = probes::probe(&args.connection, &backend, &findings, args.read_only);
            findings.extend(probed);
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
            "traffic to this server is plain text, including passwords",
            "use TLS (rediss://, mysqls://) unless the network is private",
        )
    }));
    // No promise can be checked on unreachable servers.
    let promises = match code {
        None => promises::of(&findings, &backend, args.read_only),
        Some(_) => Vec::new(),
    };
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
        note("--read-only: clock, pub/sub and locking were not checked");
    }
    let limit = match args.strict {
        true => Severity::Note,
        false => Severity::Danger,
    };
    let verdict = if severity >= limit { NO } else { 0 };
    Failure::exit_with(printed, code.unwrap_or(verdict))
}

/// The name of a group may contain the names of all its servers.
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
