//! The output: JSON for programs, text for people.

use std::io::{self, Write};
use std::time::Duration;

use redlatch::{Holder, LockInfo};
use serde::Serialize;

use crate::errors::Failure;
use crate::escape::escape;
use crate::stderr;

/// The version of the JSON objects. Within one version, fields are only added.
pub(crate) const SCHEMA: u32 = 1;

/// The format is `cli/schema/lock.json`.
#[derive(Serialize)]
pub(crate) struct LockObject<'a> {
    schema: u32,
    name: &'a str,
    kind: &'static str,
    node: &'a str,
    holders: Vec<HolderObject<'a>>,
    expires_ms: Option<u64>,
    listening: Option<u32>,
    fence: Option<u64>,
    available: Option<i64>,
    nodes: Option<NodesObject>,
    mark_of: Option<&'a str>,
}

#[derive(Serialize)]
pub(crate) struct HolderObject<'a> {
    visitor: &'a str,
    client: Option<&'a str>,
    thread: Option<u64>,
    hold: Option<u64>,
    count: u32,
    by: &'a str,
    address: Option<&'a str>,
    host: Option<&'a str>,
    pid: Option<u32>,
}

#[derive(Serialize)]
struct NodesObject {
    held: u32,
    of: u32,
}

impl<'a> LockObject<'a> {
    /// `name` is the lock's name without the prefix, as the user types it.
    pub(crate) fn of(name: &'a str, info: &'a LockInfo) -> LockObject<'a> {
        LockObject {
            schema: SCHEMA,
            name,
            kind: info.kind.as_str(),
            node: &info.node,
            holders: info.holders.iter().map(HolderObject::of).collect(),
            expires_ms: info.expires.map(millis),
            listening: info.listening,
            fence: info.fence,
            available: info.available,
            nodes: info.nodes.map(|(held, of)| NodesObject { held, of }),
            mark_of: marked_job(name, info),
        }
    }
}

impl<'a> HolderObject<'a> {
    pub(crate) fn of(holder: &'a Holder) -> HolderObject<'a> {
        HolderObject {
            visitor: &holder.visitor,
            client: holder.client.as_deref(),
            thread: holder.thread,
            hold: holder.hold,
            count: holder.count,
            by: holder.by,
            address: holder.address.as_deref(),
            host: holder.host.as_deref(),
            pid: holder.pid,
        }
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn json(object: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(object).map_err(|error| Failure::output(&error.into()))?;
    text(&line)
}

pub(crate) fn text(line: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{line}").map_err(|error| Failure::output(&error))
}

pub(crate) fn note(text: &str) {
    stderr::print(format!("redlatch: {}\n", escape(text)));
}

/// The formats are `28.9 s`, `4m 12s`, `2h 01m`, `1d 01h`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..=59 => format!("{:.1} s", (span.as_secs_f64() * 10.0).floor() / 10.0),
        60..=3599 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The formats are `web-3/812 thread 7` and `1f6f…4d6e thread 31 (Redisson)`.
pub(crate) fn holder(holder: &Holder) -> String {
    let thread = match holder.thread {
        Some(thread) => format!(" thread {thread}"),
        None => String::new(),
    };
    let words = match (&holder.host, holder.pid, &holder.client) {
        (Some(host), Some(pid), _) => format!("{host}/{pid}{thread}"),
        (_, _, Some(client)) => {
            let (begin, end) = (
                client.get(..4),
                client.get(client.len().saturating_sub(4)..),
            );
            let short = match (begin, end) {
                (Some(begin), Some(end)) => format!("{begin}…{end}"),
                _ => client.clone(),
            };
            let by = match holder.by {
                "redlatch" => String::new(),
                by => format!(" ({by})"),
            };
            format!("{short}{thread}{by}")
        }
        _ => holder.visitor.clone(),
    };
    escape(&words)
}

/// Returns the job whose `run --once-per` mark this lock is. A mark is named `JOB:once` or `JOB:once:KEY`, has a count of
/// 1, and is never renewed.
pub(crate) fn marked_job<'a>(name: &'a str, info: &LockInfo) -> Option<&'a str> {
    let is_mark = matches!(&info.holders[..], [it] if it.count == 1 && it.by != "Redisson");
    let mut parts = name
        .match_indices(":once")
        .filter(|_| is_mark && info.expires.is_some());
    parts.find_map(|(at, part)| {
        let (job, rest) = (name.get(..at)?, name.get(at + part.len()..)?);
        (rest.is_empty() || rest.starts_with(':')).then_some(job)
    })
}

/// In tables, a mark has this text in place of its holder.
pub(crate) fn mark(left: Option<Duration>) -> String {
    format!(
        "mark, job may run again in {}",
        span(left.unwrap_or_default())
    )
}

pub(crate) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let length = |cell: &String| cell.chars().count();
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(length).max();
    let widths: Vec<usize> = (0..columns)
        .map(|at| width(at).unwrap_or_default())
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted() {
        let shown = |millis: u64| span(Duration::from_millis(millis));
        assert_eq!(shown(28_999), "28.9 s");
        assert_eq!(shown(0), "0.0 s");
        assert_eq!(shown(252_000), "4m 12s");
        assert_eq!(shown(7_260_000), "2h 01m");
        assert_eq!(shown(90_000_000), "1d 01h");
    }

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            table(&[row(["NAME", "KIND"]), row(["a", "b"])]),
            ["NAME  KIND", "a     b"]
        );
    }
}
